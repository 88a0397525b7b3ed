"""Boxes that a running network gains are filled, and go on as if they had been there always."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from errata import Network, tumbling
from errata.client import rows
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import NewVersionError
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.takeover import Filled, NewArc
from errata.run.worker import Worker
from errata.settings.loading import load
from errata.settings.place import Place
from errata.spark_jobs.backfill import Backfill, BackfillFailedError, CannotBackfillError, check
from errata.spark_jobs.run import Options, run_jobs
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.cluster import FencedError, TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import DAY_MS, TopicSpec
from tests.errata.conftest import Errata, environ, errata  # noqa: F401  fixtures
from tests.spark_jobs.at_work import Fed, at_work
from tests.spark_jobs.kept import Kept

TAPE = """
from errata import Network, hopping

net = Network("grown")
trades = net.source(
    "trades", topic="grown-trades", format="json", identity=["key"], event_time="at", keep="10y",
    partition_by=["key"], lateness="1m", partitions=2,
    fields={"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"},
)
real = trades.where("real", "n <> 7")
options = dict(by=["product"], window=hopping("30m", every="20m"), keep="10y", s="sum(n)",
               most="max(n)", c="count(*)")
real.aggregate("live", **options)
trades.aggregate("far", place="spark", **options)
"""
MORE = """
late = real.aggregate("late", mode="downstream", scope="later", **options)
late.sink("grown-late", envelope="upsert", format="json")
away = trades.aggregate("away", place="spark", **options)
away.where("many", "c > 2")
"""


class Running(Fed):
    """One version of the network: its own processes in a thread, and its jobs when asked."""

    def __init__(self, broker: EmbeddedBroker, path: Path, session: Any) -> None:
        self.place = Place(dict(broker.settings), path.parent / "state")
        super().__init__(KafkaCluster(self.place.kafka), topic="grown-trades", kinds=4)
        self.path, self.session = path, session

    @contextmanager
    def version(self) -> Iterator[Worker]:
        """Run what is deployed, until it is told to end or another version comes."""
        worker = Worker(load(str(self.path)), self.place)
        for name, scope in worker.plan.topology.scopes.items():
            if not scope.on_spark:
                worker.add_scope(name)
        worker.add_scope("ingest.trades")
        worker.add_sweepers()
        with at_work(worker, NewVersionError, FencedError):
            yield worker

    def jobs(self, plan: Plan) -> None:
        """Let the jobs take everything that is complete."""
        view = View(self.cluster, plan=plan)
        shared = Shared(self.cluster, plan, SchemaRegistry(self.cluster), view, DAY_MS)
        folder = (
            self.place.state
            / plan.network
            / plan.deployment.id
            / f"spark.v{plan.deployment.version}"
        )
        options = Options(str(folder), once=True)
        kafka = self.place.kafka
        boxes, session = list(plan.topology.spark), self.session
        run_jobs(shared, boxes, session=session, kafka=kafka, options=options, stop=lambda: False)

    def settle(self, plan: Plan, *, jobs: bool = False) -> None:
        """Wait until all that was sent is processed; behind jobs if they have run."""
        ours = [s.name for s in plan.topology.scopes.values() if jobs or s.inputs == ("trades",)]
        self.processed(
            plan, [name for name in ours if jobs or not plan.topology.scopes[name].on_spark]
        )

    def table(self, plan: Plan, arc: str) -> list[dict[str, Any]]:
        """What an arc folds to, as people see it."""
        return rows.fold(plan.topology.arcs[arc], pl.concat(self.believed(plan, arc))).to_dicts()

    def sunk(self, topic: str) -> list[dict[str, Any]]:
        """What an upsert sink holds."""
        held: dict[bytes, bytes | None] = {}
        for partition in range(self.cluster.partitions(topic)):
            place = TopicPartition(topic, partition)
            reader, end = self.cluster.reader({place: 0}), self.cluster.end(place)
            while reader.position(place) < end:
                for records in reader.poll():
                    held |= dict(zip(records.keys, records.values, strict=True))
            reader.close()
        return [json.loads(value) for value in held.values() if value is not None]


@pytest.fixture
def streaming(spark: Any) -> Any:
    """A session for streaming jobs beside the one of all tests."""
    session = spark.newSession()
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    for key, value in {
        "streaming.stateStore.providerClass": provider,
        "streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "streaming.stateStore.rocksdb.trackTotalNumberOfRows": "true",
        "execution.arrow.maxRecordsPerBatch": "64",
        "adaptive.enabled": "false",
        "shuffle.partitions": "2",
        "session.timeZone": "UTC",
    }.items():
        session.conf.set(f"spark.sql.{key}", value)
    return session


def cut_off_behind(arc: str) -> Callable[[Backfill, NewArc], Filled]:
    """Return a fill that dies once an arc is written, before its tasks report."""
    whole = Backfill.__call__

    def fill(self: Backfill, new: NewArc) -> Filled:
        filled = whole(self, new)
        if new.name == arc:
            raise BackfillFailedError("cut off")
        return filled

    return fill


def ordered(table: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in table)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open
def test_boxes_that_a_network_gains_equal_those_that_were_there_from_the_start(
    tmp_path: Path,
    broker: EmbeddedBroker,
    streaming: Any,
    errata: Errata,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setattr("errata.spark_jobs.session.open_session", lambda **_: Kept(streaming))
    create_topics(broker.settings, [TopicSpec("grown-trades", 2)])
    path = tmp_path / "tape.py"
    path.write_text(TAPE)
    net = Running(broker, path, streaming)
    with net.version() as worker:
        for hour in (0, 6, 1):
            net.send(80, hour)
        net.settle(worker.plan)
        net.jobs(worker.plan)
        path.write_text(TAPE + MORE)
        for command in ("deploy", "status"):
            refused = errata(command, "tape.py")
            assert refused.status == 1
            assert "`errata backfill NET late away many` fills" in refused.err
        refused = errata("backfill", "tape.py", "many")
        assert refused.status == 1
        assert "'many' can do without: 'late'" in refused.err
        net.send(40, 8)  # and the job has not taken them
        with monkeypatch.context() as patch:
            patch.setattr(Backfill, "__call__", cut_off_behind("away"))
            assert "cut off" in errata("backfill", "tape.py", "late", "many").err
        told = errata("backfill", "tape.py", "late", "many", "--json")
        assert told.status == 0, told.err
    filled = {one["arc"]: one for one in json.loads(told.out)["filled"]}
    assert set(filled) == {"away", "many"}  # the other one was filled before
    assert json.loads(told.out)["version"] == 2

    again = errata("backfill", "tape.py", "late", "--json")
    assert json.loads(again.out) == {"network": "grown", "version": 2, "filled": []}
    with net.version() as worker:
        plan = worker.plan
        there = {arc: net.table(plan, arc) for arc in ("live", "late", "far", "away", "many")}
        for arc in filled:
            assert filled[arc]["tuples"] == len(there[arc]) > 3
        ends = [net.cluster.end(TopicPartition(plan.deployment.topic("away"), p)) for p in range(2)]
        assert sum(ends) >= 2 * len(there["away"])  # what was cut off is dead
        assert ordered(there["late"]) == ordered(there["live"])
        assert ordered(there["away"]) == ordered(there["far"])
        for hour in (3, 12):  # corrections of closed windows, most of them
            net.send(60, hour)
        net.settle(plan)
        net.jobs(plan)
        net.settle(plan, jobs=True)
        comes = {arc: net.table(plan, arc) for arc in there}
        assert ordered(comes["late"]) == ordered(comes["live"]) != ordered(there["live"])
        assert ordered(comes["away"]) == ordered(comes["far"]) != ordered(there["far"])
        assert ordered(comes["many"]) == ordered([r for r in comes["away"] if r["c"] > 2])
        seen = [{k: v for k, v in row.items() if k[:2] != "__"} for row in comes["late"]]
        assert ordered(net.sunk("grown-late")) == ordered(seen)


def test_a_box_over_what_keeps_no_history_is_refused() -> None:
    plans = []
    for more in (False, True):
        net = Network("n")
        fields = {"key": "string", "at": "timestamp-millis"}
        kept = net.source("kept", fields=fields, identity=["key"], event_time="at", keep="1d")
        gone = net.source("gone", fields=fields, identity=["key"], event_time="at")
        if more:
            kept.aggregate("days", by=["key"], window=tumbling("1h"), c="count(*)")
            gone.where("some", "key <> 'a'")
        plans.append(compile_network(net).placed({"kept": 1, "gone": 1}))
    check(*plans, "days")
    with pytest.raises(CannotBackfillError, match="'some' can't be filled: it comes from 'gone'"):
        check(*plans, "some")
