"""Measures an aggregate on Spark against plain Spark on the same arc: ``make bench-spark``.

Errata's ingest processes a million trades of 100,000 products in several portions; 1 % are replaced
and 0.2 % deleted later. After each portion two queries read it from the same Kafka topic, in one
Spark session, one after the other:

* errata: a job of Errata: sum, count and maximum by product and hour, each revised;
* plain: Structured Streaming with its own Kafka source, `from_avro`, a watermark and a window; it
  reads the inserts only, since it can't revise, so its final results are wrong.

Both keep their states in RocksDB and write changes to Kafka. The measured time is that of the
batches, as Spark reports it, without the start of a query. The first portion warms both up and does
not count. Errata's results are compared with a recomputation.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Producer

from bench import tape
from bench.connectors import CONNECTORS
from bench.peers import plain_spark
from bench.processes import IN_ORDER
from bench.run import TopicSpec
from bench.variants import NOTIONAL
from errata import Network, tumbling
from errata.deploy.deployment import prepare
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import ingest_scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.run.worker import Worker, tune_garbage_collector
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.settings.place import Place
from errata.spark_jobs.driver import Checkpoint, Driver
from errata.spark_jobs.session import check_java, open_session
from errata.topics import names
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.java import class_path
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry

TOPIC, TRADES, ARC, PLAIN, PARTITIONS = "tape", "trades", "totals", "plain", 4
INGEST = ingest_scope(TRADES)
LIMIT_S = 900


def network(
    size: str = "1h", *, lag: bool = False, source: bool = False, place: str | None = "spark"
) -> Network:
    """Return the network that is measured.

    Args:
        size: Of the windows.
        lag: Whether there is a lag in place of the aggregate.
        source: Whether there is nothing but the source, which is on Spark.
        place: Where the aggregate is; None: in processes.
    """
    net = Network("bench" if place else "processes")
    trades = net.source(
        TRADES,
        place="spark" if source else None,
        topic=TOPIC,
        envelope="native",
        fields=tape.FIELDS,
        identity=["key"],
        event_time="at",
        partition_by=["product"],
        lateness="5m",
        keep="10y",
        partitions=PARTITIONS,
    )
    if source:
        return net
    if lag:
        before = {"before": NOTIONAL}
        trades.lag(ARC, by=["product"], place="spark", scope=ARC, keep="10y", fields=before)
        return net
    on_spark = {} if place is None else {"place": place, "horizon": "10y"}  # no sweeper runs here
    trades.aggregate(
        ARC,
        by=["product"],
        window=tumbling(size),
        emit="on_update",
        keep="10y",
        traded=f"sum({NOTIONAL})",
        trades="count(*)",
        largest=f"max({NOTIONAL})",
        **on_spark,
    )
    return net


class Portions:
    """Ingests the tape into the arc, portion by portion.

    Args:
        kafka: librdkafka settings of the cluster.
        cluster: The cluster.
        revisions: The tape.
        state: Folder of ingest's index.
        net: The network.
    """

    def __init__(
        self,
        kafka: dict[str, Any],
        cluster: KafkaCluster,
        revisions: pl.DataFrame,
        state: Path,
        net: Network,
    ) -> None:
        self.kafka, self.cluster, self.revisions, self.state = kafka, cluster, revisions, state
        self.network = net
        for topic in (TOPIC, PLAIN):
            create_topics(kafka, [TopicSpec(topic, PARTITIONS)])
        create_topics(kafka, [TopicSpec(names.SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})])
        self.registry = SchemaRegistry(cluster)
        schema, _, _ = tape.encoded(revisions.head(1))
        self.head = framing.head(self.registry.register(f"{TOPIC}-value", schema))
        self.plan = prepare(net, Place(kafka, state), cluster)
        self.view = View(cluster, plan=self.plan)
        self.sent = 0

    def take(self, count: int) -> None:
        """Send the next revisions, and ingest them, unless a job does."""
        part = self.revisions.slice(self.sent, count)
        self.sent += part.height
        _, keys, bodies = tape.encoded(part)
        producer = Producer({**self.kafka, **IN_ORDER, "queue.buffering.max.messages": 10_000_000})
        places = part.select(pl.coalesce("after.key", "before.key").str.slice(-2))
        for key, body, place in zip(keys, bodies, places.to_series().cast(pl.Int64), strict=True):
            producer.produce(TOPIC, self.head + body, key, place % PARTITIONS)
            producer.poll(0)
        producer.flush()
        if INGEST in self.plan.topology.jobs:
            return
        worker = Worker(self.network, Place(self.kafka, self.state))
        worker.add_scope(INGEST)
        deadline = time.monotonic() + LIMIT_S
        tune_garbage_collector()
        worker.run(lambda: self._is_in() or time.monotonic() > deadline)

    def _is_in(self) -> bool:
        """Return whether all sent revisions are in complete epochs."""
        self.view.poll()
        reports = [self.view.of(task) for task in self.view.tasks(INGEST)]
        read = sum(report.counts.get("read", 0) for report in reports)
        return read >= self.sent and min(report.done for report in reports) >= self.last

    @property
    def last(self) -> int:
        """The last epoch with records in the arc."""
        reports = [self.view.of(task) for task in self.view.tasks(INGEST)]
        return max((epoch for report in reports for _, epoch in report.ends.values()), default=0)


def ours(
    session: Any, kafka: dict[str, Any], plan: CompiledPlan, folder: str
) -> list[dict[str, Any]]:
    """Run Errata's job over all that is there; return Spark's progress reports of its batches."""
    cluster = KafkaCluster(kafka)
    view = View(cluster, plan=plan)
    driver = Driver(
        Shared(cluster, plan, SchemaRegistry(cluster), view, 86_400_000),
        next(iter(plan.topology.jobs.values())),
        session=session,
        checkpoint=Checkpoint(session, folder),
        kafka=kafka,
    )
    driver.start(once=True)
    driver.query.awaitTermination(LIMIT_S)
    driver.check()
    told = [json.loads(progress.json) for progress in driver.query.recentProgress]
    driver.close()
    return told


def plain(
    session: Any, kafka: dict[str, Any], plan: CompiledPlan, folder: str, *, size: str = "1 hour"
) -> list[dict[str, Any]]:
    """Run plain Spark over the same topic; return Spark's progress reports of its batches."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro, to_avro

    cluster = KafkaCluster(kafka)
    found = SchemaRegistry(cluster).latest(f"{plan.deployment.topic('trades')}-value")
    assert found is not None
    servers = kafka["bootstrap.servers"]
    committed = {"kafka.isolation.level": "read_committed"}
    records = plain_spark.read(session, servers, plan.deployment.topic("trades"), committed)
    body = f.expr("substring(value, 6)")
    trades = records.select(from_avro(body, json.dumps(found[1])).alias("r"))
    after = trades.where("r.op = 'insert'").select("r.after.*").withWatermark("at", "5 minutes")
    risk = f.expr(NOTIONAL)
    totals = after.groupBy("product", f.window("at", size)).agg(
        f.sum(risk).alias("traded"), f.count("*").alias("trades"), f.max(risk).alias("largest")
    )
    written = totals.select(
        to_avro(f.struct("product", "window")).alias("key"),
        to_avro(f.struct("traded", "trades", "largest")).alias("value"),
    )
    query = plain_spark.write(written, servers, PLAIN, folder)
    query.awaitTermination(LIMIT_S)
    return [json.loads(progress.json) for progress in query.recentProgress]


def batch_s(told: list[dict[str, Any]]) -> float:
    """Return the seconds that batches with input have taken."""
    return sum(p["durationMs"]["triggerExecution"] for p in told if p["numInputRows"]) / 1000


def state_bytes(folder: Path) -> int:
    """Return the size of a checkpoint's newest states on disk."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def differences(cluster: KafkaCluster, plan: CompiledPlan, revisions: pl.DataFrame) -> int:
    """Return how many of Errata's results differ from a recomputation."""
    view = View(cluster, plan=plan)
    shared = Shared(cluster, plan, SchemaRegistry(cluster), view, 0)
    box = plan.boxes.get(ARC)
    arc = plan.topology.arcs[TRADES if box is None else ARC]
    parts = []
    for partition in range(PARTITIONS):
        source = ArcInput(view, shared.codec(arc.name), partition, done=-1, resume=0)
        task = view.tasks(plan.topology.scope_of(arc.name))[partition]
        while source.frontier() < view.of(task).done or not source.frontier() >= 0:
            view.poll()
            source.poll()
        parts.append(source.take(source.frontier()))
        source.close()
    found = frames.fold(pl.concat(parts), arc.identity, list(arc.fields)).select(arc.visible)
    numbered = revisions.with_row_index("epoch").with_columns(pl.col("epoch").cast(pl.Int64))
    left = frames.fold(numbered, ["key"], list(tape.FIELDS))
    wanted = (left if box is None else box.recompute(left, wm=0)).select(arc.visible)
    same = found.join(wanted, on=arc.visible, how="semi", nulls_equal=True)
    return max(found.height, wanted.height) - same.height


def portions(count: int, number: int) -> Iterator[int]:
    """Yield the sizes of portions: a tenth to warm up, then the rest in equal parts."""
    first = count // 10
    yield first
    share = -(-(count - first) // number)
    for begin in range(first, count, share):
        yield min(share, count - begin)


def main() -> int:
    """Run the benchmark; print the time of each side, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_000_000, help="trades")
    parser.add_argument("--groups", type=int, default=100_000, help="products")
    parser.add_argument("--portions", type=int, default=4, help="batches that count")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="what Spark says of each batch")
    given = parser.parse_args()
    java = check_java()
    jars = ",".join(map(str, class_path(java, CONNECTORS)))
    revisions = tape.tape(given.rows, products=given.groups)
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as name, EmbeddedBroker() as broker:
        folder, kafka = Path(name), dict(broker.settings)
        cluster = KafkaCluster(kafka)
        session = open_session(
            master=f"local[{given.cores}]",
            settings={
                "spark.jars": jars,
                "spark.sql.shuffle.partitions": "4",
                "spark.driver.memory": "3g",
            },
            log=folder / "spark.log",
        )
        tape_in = Portions(kafka, cluster, revisions, folder / "state", network())
        taken = {"errata": 0.0, "plain": 0.0}
        counted = 0
        for number, size in enumerate(portions(revisions.height, given.portions)):
            tape_in.take(size)
            sides = {"errata": ours, "plain": plain}
            told_by = {
                side: run(session, kafka, tape_in.plan, str(folder / side))
                for side, run in sides.items()
            }
            seconds = {side: batch_s(told) for side, told in told_by.items()}
            told = ", ".join(f"{side} {s:.2f} s" for side, s in seconds.items())
            print(f"  portion {number} of {size:,} records: {told}", flush=True)
            if given.verbose:
                print("    ", *(p["durationMs"] for side in told_by.values() for p in side))
            if number:
                counted += size
                taken = {side: taken[side] + seconds[side] for side in taken}
        wrong = differences(cluster, tape_in.plan, revisions)
        sizes = {side: state_bytes(folder / side) for side in taken}
        session.stop()
        cluster.close()
    for side, s in taken.items():
        rate = counted / s / 1000
        print(f"{side:8}{rate:8.0f} k records/s{s:9.2f} s{sizes[side] / 2**20:9.1f} MiB on disk")
    print(f"ratio   {taken['plain'] / taken['errata']:8.2f}   (errata to plain Spark)")
    print(f"errata's results: {wrong} differ from a recomputation")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
