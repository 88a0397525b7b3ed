"""Measures the demo's query on a million corrected trades beside raw Kafka: ``make bench``.

Side by side in one run, on one embedded broker, with fresh topics each time:

* raw: one process of plain confluent-kafka consumes the tape and produces it again, nothing
decoded; * errata: ingest, the scope of the aggregate and the sweepers as processes of their own,
with transactions, reports, decimals, exact sums; also without the maximum, which can't be
compensated.

Prints medians and the ratio to raw. Absolute figures mean little on a shared machine. The results
of each run are held against a recomputation.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import polars as pl
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Assigned

from bench import tape
from errata import rows
from errata.worker import Place, Worker, prepare
from processors.arc_topic import ArcInput
from processors.deployed import declare_end
from processors.plan import Plan
from processors.report import FOREVER
from processors.task import Shared
from processors.view import View
from schemas import framing
from topics import names
from topics.broker import EmbeddedBroker
from topics.create import create_topics
from topics.kafka import KafkaCluster
from topics.registry import SchemaRegistry
from topics.settings import TopicSpec

LIMIT_S = 600
ROLES = {"ingest": ["ingest.trades"], "scope": ["trades"], "sweepers": []}


def preload(kafka: dict[str, str | int], topic: str, count: int) -> int:
    """Write the tape into a fresh topic of one partition; return how many records it has."""
    create_topics(
        kafka,
        [TopicSpec(topic, 1), TopicSpec(names.SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})],
    )
    cluster = KafkaCluster(kafka)
    schema, keys, bodies = tape.encoded(tape.tape(count))
    values = framing.frame(bodies, SchemaRegistry(cluster).register(f"{topic}-value", schema))
    producer = Producer(
        {**kafka, "queue.buffering.max.messages": 10_000_000, "linger.ms": 20}
        | {"queue.buffering.max.kbytes": 2_000_000}
    )
    deque(map(producer.produce, repeat(topic), values, keys, repeat(0)), maxlen=0)
    producer.flush()
    cluster.close()
    return len(values)


def raw(kafka: dict[str, str | int], topic: str, count: int, copy: str) -> float:
    """Return the seconds that consuming and producing the tape takes, nothing decoded."""
    create_topics(kafka, [TopicSpec(copy, 1)])
    # A full queue must not make the fetcher sleep, as it does for a second by default.
    wide = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
    wide |= {"fetch.message.max.bytes": 8_000_000, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**kafka, **wide, "group.id": copy, "enable.auto.commit": False})
    more = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1_000_000}
    producer = Producer({**kafka, **more, "linger.ms": 20, "batch.num.messages": 50_000})
    consumer.assign([Assigned(topic, 0, 0)])
    seen, start = 0, time.perf_counter()
    while seen < count:
        messages = consumer.consume(10_000, 0.05)
        seen += len(messages)
        produce = map(
            producer.produce,
            repeat(copy),
            map(Message.value, messages),
            map(Message.key, messages),
            repeat(0),
        )
        deque(produce, maxlen=0)
        producer.poll(0)
    producer.flush()
    took = time.perf_counter() - start
    consumer.close()
    return took


def work(
    role: str,
    kafka: dict[str, str | int],
    name: str,
    topic: str,
    largest: bool,
    state: str,
    start: Barrier,
    stop: Event,
) -> None:
    """Be one process of the network."""
    worker = Worker(tape.network(name, topic, largest=largest), Place(kafka, Path(state)))
    for scope in ROLES[role]:
        worker.add_scope(scope)
    if role == "sweepers":
        worker.add_sweepers()
    start.wait()
    if os.environ.get("ERRATA_PROFILE"):
        import cProfile

        profile = cProfile.Profile()
        profile.runcall(worker.run, stop.is_set)
        profile.dump_stats(f"{os.environ['ERRATA_PROFILE']}.{role}")
    else:
        worker.run(stop.is_set)


@contextmanager
def processes(
    kafka: dict[str, str | int], name: str, topic: str, largest: bool
) -> Iterator[Barrier]:
    """Run the network's processes; they begin when the barrier is passed."""
    context = multiprocessing.get_context("spawn")
    start, stop = context.Barrier(len(ROLES) + 1), context.Event()
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as state:
        children = [
            context.Process(
                target=work, args=(role, kafka, name, topic, largest, state, start, stop)
            )
            for role in ROLES
        ]
        for child in children:
            child.start()
        try:
            yield start
        finally:
            stop.set()
            for child in children:
                child.join(20)
                if child.is_alive():
                    child.kill()


def errata(kafka: dict[str, str | int], topic: str, name: str, largest: bool) -> tuple[float, Plan]:
    """Return the seconds from start to the last result, all windows closed."""
    cluster = KafkaCluster(kafka)
    plan = prepare(tape.network(name, topic, largest=largest), Place(kafka, Path()), cluster)
    declare_end(cluster, plan, "trades")
    view = View(cluster, plan=plan)
    with processes(kafka, name, topic, largest) as start:
        start.wait()
        began = time.perf_counter()
        while view.of("trades.0").watermark < FOREVER:
            view.poll()
            time.sleep(0.01)
            if time.perf_counter() - began > LIMIT_S:
                raise SystemExit(f"not done after {LIMIT_S} s: {view.reports}")
        took = time.perf_counter() - began
    counts = view.of("trades.0").counts
    print("   ", ", ".join(f"{key.partition('.')[2]} {value}" for key, value in counts.items()))
    return took, plan


def check(kafka: dict[str, str | int], plan: Plan, count: int) -> int:
    """Return how many results differ from a recomputation of the surviving trades."""
    cluster = KafkaCluster(kafka)
    view = View(cluster, plan=plan)
    end = cluster.end(view.source)
    while not view.has_read_to(end):
        view.poll()
    shared = Shared(cluster, plan, SchemaRegistry(cluster), view, 0)
    source = ArcInput(view, shared.codec("totals"), 0, done=-1, resume=0)
    while source.frontier() < view.of("trades.0").done:
        source.poll()
    arc = plan.arcs["totals"]
    found = rows.fold(arc, source.take(source.frontier()))
    history = tape.tape(count).with_columns(pl.coalesce("after.key", "before.key").alias("key"))
    alive = history.unique(subset="key", keep="last").filter(pl.col("op") != 1)
    first = (pl.col("after.at") - 1_800_000) // 1_200_000 + 1
    wanted = (
        alive.with_columns(
            pl.int_ranges(first, pl.col("after.at") // 1_200_000 + 1).alias("window")
        )
        .explode("window")
        .group_by(
            pl.col("after.product").alias("product"),
            pl.col("after.currency").alias("currency"),
            (pl.col("window") * 1_200_000).alias("window_start"),
        )
        .agg(
            (pl.col("after.notional") * pl.coalesce("after.index_factor", pl.lit(10**8, pl.Int128)))
            .sum()
            .alias("traded"),
            pl.len().cast(pl.Int64).alias("trades"),
        )
    )
    same = found.join(
        wanted, on=["product", "currency", "window_start", "traded", "trades"], how="semi"
    )
    cluster.close()
    return max(found.height, wanted.height) - same.height


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="trades")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="20,000 trades, once: for CI")
    options = parser.parse_args()
    count, times = (20_000, 1) if options.short else (options.count, options.repeat)
    took: dict[str, list[float]] = {"raw": [], "errata": [], "errata, no max": []}
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {count} trades")
    with EmbeddedBroker() as broker:
        kafka = dict(broker.settings)
        records = preload(kafka, "tape", count)
        for turn in range(times):
            took["raw"].append(raw(kafka, "tape", records, f"copy{turn}"))
            for largest, what in ((True, "errata"), (False, "errata, no max")):
                seconds, plan = errata(kafka, "tape", f"bench{turn}{largest}", largest)
                took[what].append(seconds)
                differences = check(kafka, plan, count)
                if differences:
                    raise SystemExit(f"{what}: {differences} results differ from recomputation")
    base = statistics.median(took["raw"])
    for what, seconds in took.items():
        middle = statistics.median(seconds)
        each = ", ".join(f"{s:.2f}" for s in seconds)
        rate, ratio = records / middle / 1000, base / middle
        print(f"{what:15} {rate:8.1f} k records/s  ratio to raw {ratio:.3f}  ({each} s)")


if __name__ == "__main__":
    main()
