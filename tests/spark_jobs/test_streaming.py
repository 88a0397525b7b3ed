"""A job by real Spark over real Kafka: replays beyond its horizon, states, and lives that go on."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from time import monotonic, sleep

import polars as pl
import pytest

from errata import Network, hopping, python, sliding
from errata.client.dead_letters import committed
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.run.worker import Worker
from errata.schemas import revisions as frames
from errata.settings.place import Place
from errata.spark_jobs.driver import Checkpoint
from errata.spark_jobs.run import Options, _Attempts
from errata.spark_jobs.session import pickle_by_value
from errata.spark_jobs.state_map import PLACE, StateMap
from errata.topics.admin import create_topics
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec
from tests.laws.spark_engine import Memory, States
from tests.spark_jobs.at_work import at_work

HOUR_MS, START_MS, LIMIT_S = 3_600_000, 1_700_000_000_000, 120.0
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
}
JOBS = ("near", "far", "slid")


def is_real(n):
    if n == 13:
        raise ValueError("thirteen")
    return n != 7


def network():
    net = Network("streaming")
    fields = {"key": "string", "at": "timestamp-millis", "product": "string", "n": "long"}
    source = net.source(
        "trades",
        topic="streaming.in",
        format="json",
        fields=fields,
        identity=["key"],
        event_time="at",
        partition_by=["key"],
        partitions=3,
        lateness="1m",
        keep="10y",
    )
    results = {"s": "sum(n)", "c": "count(*)", "largest": "max(m)", "p": "percentile(n, 0.9)"}
    windows = {"near": hopping("30m", every="20m"), "far": hopping("30m", every="20m")}
    for name, window in (windows | {"slid": sliding("15m")}).items():
        horizon = "1h" if name == "near" else None
        front = source.where(f"real_{name}", python(is_real, "boolean", "n"))
        front = front.map(f"doubled_{name}", m="n * 2")
        front.aggregate(
            name, by=["product"], window=window, place="spark", horizon=horizon, keep="10y",
            fields=results,
        )  # fmt: skip
    return net


@pytest.fixture
def session(spark) -> Iterator[object]:
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


class Tape:
    """Sends trades and their corrections."""

    def __init__(self, cluster):
        self.cluster, self.dice, self.live = cluster, random.Random(3), {}

    def send(self, count, *, first_hour):
        for _ in range(count):
            key, line = self._line(START_MS + first_hour * HOUR_MS)
            body = json.dumps(line).encode()
            partition = int(key[1:]) % 2
            self.cluster.send("streaming.in", partition=partition, key=key.encode(), value=body)
        self.cluster.flush()

    def _line(self, start_ms):
        kind = self.dice.random()
        if self.live and kind < 0.2:
            key = self.dice.choice(list(self.live))
            before = self.live[key]
            if kind < 0.05:
                return key, {"op": "delete", "before": self.live.pop(key)}
            self.live[key] = before | {"n": self.dice.randrange(20)}
            return key, {"op": "replace", "before": before, "after": self.live[key]}
        key = f"k{self.dice.randrange(10**9)}"
        at, product = start_ms + self.dice.randrange(5 * HOUR_MS), self.dice.choice("abcde")
        self.live[key] = {"key": key, "at": at, "product": product, "n": self.dice.randrange(20)}
        return key, {"op": "insert", "after": self.live[key]}


class Seen:
    """What is there to see of the network."""

    def __init__(self, kafka, plan):
        self.kafka, self.cluster, self.plan = kafka, KafkaCluster(kafka), plan
        cluster = self.cluster
        self.view = View(cluster, plan=plan)
        self.shared = Shared(cluster, plan, SchemaRegistry(cluster), self.view, 86_400_000)

    def await_input(self, count):
        deadline = monotonic() + LIMIT_S
        while True:
            self.view.poll()
            reports = [self.view.of(task) for task in self.view.tasks("ingest.trades")]
            last = max((e for r in reports for _, e in r.ends.values()), default=0)
            read = sum(report.counts.get("read", 0) for report in reports)
            if read >= count and min(report.done for report in reports) >= last:
                return
            assert monotonic() < deadline
            sleep(0.05)

    def run(self, session, folder, most=None):
        self.batches = Counter()
        for name in JOBS:
            shared = Shared(
                self.cluster, self.plan, SchemaRegistry(self.cluster),
                View(self.cluster, plan=self.plan), 86_400_000,
            )  # fmt: skip
            options = Options(folder=str(folder), once=True, max_records=most)
            job = _Attempts(shared, self.plan.topology.scopes[name], session, self.kafka, options)
            job.start()
            job.driver.query.awaitTermination(LIMIT_S)
            job.driver.check()
            self.batches[name] = len(job.driver.query.recentProgress)
            job.driver.close()
        self.view.poll()
        return job.driver.job

    def content(self, arc):
        kind, parts = self.plan.topology.arcs[arc], []
        end = self.cluster.end(self.view.source)
        while not self.view.has_read_to(end):
            self.view.poll()
        for partition in range(self.plan.placement.partitions[arc]):
            source = ArcInput(self.view, self.shared.codec(arc), partition, done=-1, resume=0)
            _, last = self.view.complete(arc, partition)
            while source.cursor.position < last:
                source.poll()
            source.frontier()
            parts.append(source.take(source.frontier()))
            source.close()
        return frames.fold(pl.concat(parts), kind.identity, list(kind.fields))

    def refused(self):
        """Return by box how many tuples have dead letters, and how many its reports have."""
        told = Counter(letter.detail.split("'")[1] for letter in committed(self.cluster, self.plan))
        counted = {
            f"real_{name}": sum(
                self.view.of(f"{name}.{p}").counts.get(f"real_{name}.refused", 0) for p in range(3)
            )
            for name in JOBS
        }
        return dict(told), counted

    def wanted(self, name):
        tuples = self.content("trades")
        wm = self.view.of(f"{name}.0").watermark
        for box in (f"real_{name}", f"doubled_{name}", name):
            tuples = self.plan.boxes[box].recompute(tuples, wm=wm)
        return tuples


def same(plan, name, found, wanted):
    visible = plan.topology.arcs[name].visible
    one, other = (frame.select(visible).sort(visible[:2]) for frame in (found, wanted))
    assert one.equals(other), (name, one.join(other, on=visible, how="anti"))
    return one.height


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark's sockets
def test_jobs_on_spark_hold_what_a_recomputation_gives_and_keep_the_states_of_live_groups(
    session, broker, cluster, tmp_path
):
    create_topics(broker.settings, [TopicSpec("streaming.in", 2)])
    tape, sent, refused = Tape(cluster), 0, 0
    net, before = network(), pl.DataFrame()
    pickle_by_value(net)
    worker = Worker(net, Place(broker.settings, tmp_path / "state"))
    worker.add_scope("ingest.trades")
    worker.add_sweepers()
    with at_work(worker):
        seen = Seen(broker.settings, worker.plan)
        for hour in (0, 6):
            for _ in range(5):  # several epochs
                tape.send(30, first_hour=hour)
                sent += 30
                seen.await_input(sent)
            seen.run(session, tmp_path, most=40)
            for name in JOBS:
                assert seen.batches[name] > 2 or hour == 0
                count = same(worker.plan, name, seen.content(name), seen.wanted(name))
                assert count > 20
                counts = seen.view.of(f"{name}.0").counts
                if hour == 0:  # states are made of the whole content
                    assert (counts[f"{name}.closed"], counts[f"{name}.revised"]) == (count, 0)
            now = seen.content("trades").filter(pl.col("n") == 13)
            refused += now.join(before, on=now.columns, how="anti").height if hour else now.height
            before = now
            assert seen.refused() == ({f"real_{name}": refused for name in JOBS},) * 2
            assert refused > 2
        counts = seen.view.of("near.0").counts
        assert counts["near.replayed"] > 0  # beyond its horizon
        assert seen.view.of("far.0").counts["far.revised"] > 0
        kept = states(session, tmp_path / "far", worker.plan.boxes["far"])
        live = seen.content("trades")
        for box in ("real_far", "doubled_far"):
            live = worker.plan.boxes[box].recompute(live)
        by = ["product", "window_start"]
        held = worker.plan.boxes["far"].states_of(live).select(by).sort(by)
        assert kept.select(by).sort(by).equals(held)
        declare_end(seen.cluster, worker.plan, "trades")
        sleep(0.5)
        seen.await_input(sent)
        job = seen.run(session, tmp_path)
        for name in JOBS:
            same(worker.plan, name, seen.content(name), seen.wanted(name))
        assert job.attempts == (3, 3, 3)
        seen.cluster.close()


def states(session, folder, box):
    """Return the states that Spark's store holds, as its own reader gives them."""
    reader = session.read.format("statestore").option("stateVarName", "states")
    blobs = defaultdict[int, States](dict)
    for row in reader.load(str(Checkpoint(session, str(folder)).numbered(0))).collect():
        key = row.user_map_key.name, (row.user_map_key.slab, row.user_map_key.number)
        blobs[row.key.key][key] = bytes(row.user_map_value.blob)
    nothing = box.no_states().with_columns(pl.lit(0, pl.Int32).alias(PLACE))
    maps = [StateMap(Memory(of_writer, ""), nothing, box.keys) for of_writer in blobs.values()]
    assert len(maps) == 2
    return pl.concat(states.read(slab) for states in maps for slab in states.slabs)
