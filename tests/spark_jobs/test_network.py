"""A whole network on Spark: filters, lookups, joins, lags, windows of rows and of time, a sink."""

import json
import random
from threading import Event, Thread
from time import monotonic, sleep

import polars as pl
import pytest

from errata import Network, hopping, sliding
from errata.client.dead_letters import committed
from errata.deploy.deployment import prepare
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.processors.tasks.rebuild import recompute
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER
from errata.run.beside import Beside
from errata.run.worker import Worker
from errata.settings.place import Place
from errata.spark_jobs.run import Options, jobs_of, run_jobs
from errata.testing import Driver
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec
from tests.spark_jobs.test_streaming import Seen, session

__all__ = ["session"]

START_MS, HOUR_MS, LIMIT_S = 1_700_000_000_000, 3_600_000, 240.0
PRODUCTS = "abcd"
ARCS = ("named", "before", "five", "sums", "met", "seen")


def network(name: str = "whole", place: str | None = "spark") -> Network:
    net = Network(name, place=place)
    common = {"format": "json", "event_time": "at", "keep": "10y"}
    trades = net.source(
        "trades",
        topic="wholes.trades",
        fields={"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"},
        identity=["key"],
        partition_by=["key"],
        partitions=3,
        **common,
    )
    names = net.source(
        "names",
        topic="wholes.names",
        fields={"id": "string", "at": "timestamp-millis", "title": "string"},
        identity=["id"],
        **common,
    )
    paid = trades.where("real", "n <> 7").map("paid", m="n * 2")
    named = paid.lookup("named", names, on={"product": "id"}, title="names.title", keep="10y")
    named.lag("before", by=["product"], was="n")
    named.aggregate("five", by=["product"], window=sliding(rows=5), total="sum(n)", keep="10y")
    window = hopping("30m", every="20m")
    sums = named.aggregate(
        "sums", by=["title"], window=window, s="sum(m)", c="count(*)", keep="10y"
    )
    net.join("met", {"s": sums, "n": names}, on=["title"], double="s.s * 2", keep="10y")
    named.distinct("seen", by=["title", "product"], keep="10y")
    return net


class Feeds:
    """Sends trades and names, and corrections of both."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster, self.dice, self.live = cluster, random.Random(5), {}
        self.titles: dict[str, dict] = {}
        self.sent: list[tuple[str, dict]] = []
        self.spoilt: list[bytes] = []

    def send(self, count: int) -> None:
        for number in range(count):
            key = f"k{self.dice.randrange(120)}"
            line = {"op": "delete", "before": self.live.pop(key)} if self._ends(key) else None
            if line is None:
                at = START_MS + self.dice.randrange(5 * HOUR_MS)
                after = {"product": self.dice.choice(PRODUCTS), "n": self.dice.randrange(20)}
                line = self._changed(self.live, key, {"key": key, "at": at, **after})
            self._append("wholes.trades", int(key[1:]) % 2, key, line)
            if number % 20 == 0:
                name = self.dice.choice(PRODUCTS)
                after = {"id": name, "at": START_MS, "title": self.dice.choice(["one", "two"])}
                self._append("wholes.names", 0, name, self._changed(self.titles, name, after))
        self.cluster.flush()

    def spoil(self) -> None:
        """Send a record that can't be read, and a cancellation of a trade that is not there."""
        gone = {"op": "delete", "before": {"key": "none", "at": START_MS, "product": "a", "n": 1}}
        for value in (b"{", json.dumps(gone).encode()):
            self.spoilt.append(value)
            self.cluster.send("wholes.trades", partition=1, key=b"none", value=value)
        self.cluster.flush()

    def _ends(self, key: str) -> bool:
        return key in self.live and self.dice.random() < 0.2

    def _changed(self, live: dict, key: str, after: dict) -> dict:
        before = live.get(key)
        live[key] = after
        if before is None:
            return {"op": "insert", "after": after}
        return {"op": "replace", "before": before, "after": after}

    def _append(self, topic: str, partition: int, key: str, line: dict) -> None:
        self.sent.append((topic.removeprefix("wholes."), line))
        self.cluster.send(
            topic, partition=partition, key=key.encode(), value=json.dumps(line).encode()
        )


def shared_of(plan: CompiledPlan, settings: dict) -> Shared:
    cluster = KafkaCluster(settings)
    view = View(cluster, plan=plan)
    return Shared(cluster, plan, SchemaRegistry(cluster), view, 86_400_000)


def is_over(view: View) -> bool:
    """Return whether all tasks have processed the ends of the sources."""
    view.poll()
    plan = view.plan
    tasks = [task for scope in plan.topology.scopes for task in plan.placement.tasks(scope)]
    ingests = plan.placement.ingest_tasks()
    newest = max(view.of(task).done for task in ingests)
    ends = [view.of(task).watermarks[-1:] for task in ingests]
    has_read = all(pairs and pairs[0][1] == FOREVER for pairs in ends)
    return has_read and min(map(view.frontier, tasks)) >= newest


def await_all(view: View) -> None:
    deadline = monotonic() + LIMIT_S
    while not is_over(view):
        assert monotonic() < deadline, view.plan.placement.ingest_tasks()
        sleep(0.1)


def tables_by_processes(cluster: KafkaCluster, place: Place) -> dict[str, pl.DataFrame]:
    """Return the arcs' contents as processes compute them from the same topics."""
    worker = Worker(network("processes", None), place)
    for scope in worker.plan.topology.process_scopes:
        worker.add_scope(scope, sweep_beside=True)
    for source in ("trades", "names"):
        declare_end(cluster, worker.plan, source)
    seen, deadline = Seen(place.kafka, worker.plan), monotonic() + LIMIT_S
    worker.run(lambda: is_over(seen.view) or monotonic() > deadline)
    found = {arc: seen.content(arc).select(worker.plan.topology.arcs[arc].visible) for arc in ARCS}
    seen.cluster.close()
    return found


def tables_in_memory(sent: list[tuple[str, dict]]) -> dict[str, list[dict]]:
    """Return the arcs' contents as `errata local` computes them from the same records."""
    with Driver(network()) as driver:
        for source, line in sent:
            driver.send(source, line)
        driver.end()
        return {arc: driver.table(arc) for arc in ARCS}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark's sockets
def test_a_whole_network_on_spark_holds_what_a_recomputation_gives(
    session, broker, cluster, tmp_path
):
    create_topics(broker.settings, [TopicSpec("wholes.trades", 2), TopicSpec("wholes.names", 1)])
    feeds, net = Feeds(cluster), network()
    place = Place(broker.settings, tmp_path / "state")
    plan, over = prepare(net, place, cluster), Event()
    jobs = jobs_of(plan, ())
    assert plan.topology.process_scopes == []
    failed: list[BaseException] = []

    def run() -> None:
        shared = shared_of(plan, broker.settings)
        options = Options(folder=str(tmp_path / "spark"), max_records=200)
        try:
            run_jobs(
                shared, jobs, session=session, kafka=broker.settings, options=options,
                stop=over.is_set,
            )  # fmt: skip
        except BaseException as error:
            failed.append(error)
            raise

    feeds.send(200)
    beside = Beside(net, place)
    try:
        for life in range(2):  # the second one goes on from the states of the first
            over.clear()
            driver = Thread(target=run)
            driver.start()
            sleep(8)
            feeds.send(100)
            feeds.spoil()
            if life:
                for source in ("trades", "names"):
                    declare_end(cluster, plan, source)
                seen = Seen(broker.settings, plan)
                try:
                    await_all(seen.view)
                finally:
                    over.set()
            else:
                sleep(12)
            over.set()
            driver.join()
        beside.check()
    finally:
        beside.close()
    assert not failed
    contents = {arc: seen.content(arc) for arc in ("trades", "names")}
    for arc, live in (("trades", feeds.live), ("names", feeds.titles)):
        found = contents[arc].select(plan.topology.arcs[arc].visible).to_dicts()
        identity = plan.topology.arcs[arc].identity[0]
        assert {row[identity]: row for row in found} == live
    spoilt = [letter.value for letter in committed(cluster, plan)]
    assert sorted(spoilt) == sorted(feeds.spoilt)
    for scope in plan.topology.scopes.values():
        inputs = {arc: contents[arc] for arc in scope.inputs}
        made, _ = recompute(plan, scope, inputs, epoch=0, watermark=FOREVER)
        contents |= made
    by_processes = tables_by_processes(cluster, Place(broker.settings, tmp_path / "processes"))
    in_memory = tables_in_memory(feeds.sent)
    for arc in ARCS:
        shown = plan.topology.arcs[arc].visible
        found = seen.content(arc).select(shown)
        local = pl.DataFrame(in_memory[arc], schema=found.schema, infer_schema_length=None)
        for wanted in (contents[arc].select(shown), by_processes[arc], local.select(shown)):
            differ = found.join(wanted, on=shown, how="anti", nulls_equal=True)
            assert (found.height, differ.height) == (wanted.height, 0), (arc, differ)
        assert found.height > 3
    seen.cluster.close()
