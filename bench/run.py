"""Measures the demo's query on a million corrected trades against raw Kafka: ``make bench``.

All variants run one after another on one embedded broker, with fresh topics each time:

* raw: one process of plain confluent-kafka consumes the tape and produces it again, without
  decoding;
* pass-through: a source without boxes, so that ingest writes the tape into a connection point;
* window: the demo's query in two processes: ingest, and the scope of the aggregate with the
  sweepers beside it; with transactions, reports, decimals, exact sums. Also with the sweepers in a
  separate process, and without the maximum, which can't be compensated;
* window, bound: the same query over an arc of another network, which has the tape already;
* upserts: the same query over the same trades as upserts and tombstones.

Prints medians: rates, the ratio to raw, and the processor time of each process. Absolute figures
mean little on a shared machine; processor time is more stable than elapsed time. The results of
each run are compared with a recomputation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from pathlib import Path

import polars as pl
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Assigned

from bench.processes import IN_ORDER, Run, Settings, broker_pid, processes, processor_s
from bench.variants import EXPORTED, TAPES, UPPER, VARIANTS, Variant
from errata.client import rows
from errata.deploy.deployment import prepare
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER, CountKey
from errata.processors.wire.task_id import TaskId
from errata.schemas import framing
from errata.settings.place import Place
from errata.topics import names
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec

LIMIT_S = 600
COLUMNS = ("wall", "all", "ingest", "scope", "sweepers", "broker", "this")

SCHEMAS = TopicSpec(names.SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})

Taken = dict[str, float]
"""Seconds: elapsed under ``wall``, of processors by role, and the sum of these under ``all``; and
under ``rows`` the most rows in memory, for a run of Errata."""


def preload(kafka: Settings, name: str, count: int, *, topic: str = "", partitions: int = 1) -> int:
    """Write a tape of `count` trades into a fresh topic; return how many records it has.

    Args:
        kafka: Settings of the cluster.
        name: The tape.
        count: Number of trades.
        topic: The topic; by default it has the name of the tape.
        partitions: Its partitions.
    """
    topic = topic or name
    revisions = TAPES[name].revisions(count)
    schema, keys, bodies = TAPES[name].encoded(revisions)
    cluster = KafkaCluster(kafka)
    head = framing.head(SchemaRegistry(cluster).register(f"{topic}-value", schema))
    cluster.close()
    values = [None if body is None else head + body for body in bodies]
    fill(kafka, topic, values, keys, partitions=partitions)
    return revisions.height


def fill(
    kafka: Settings,
    topic: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes],
    *,
    partitions: int = 1,
) -> None:
    """Write records into a fresh topic, those of one key into one partition."""
    create_topics(kafka, [TopicSpec(topic, partitions)])
    producer = Producer(
        {**kafka, "queue.buffering.max.messages": 10_000_000, "linger.ms": 20}
        | {"queue.buffering.max.kbytes": 2_000_000, **IN_ORDER}
    )
    places = (zlib.crc32(key) % partitions for key in keys)
    deque(map(producer.produce, repeat(topic), values, keys, places), maxlen=0)
    producer.flush()


class Stopwatch:
    """Measures elapsed time, and the processor time of each process.

    Args:
        pids: The processes.
    """

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = {**pids, "broker": broker_pid(), "this": os.getpid()}
        self.began, self.began_s = self._used(), time.perf_counter()

    def _used(self) -> Taken:
        return {role: processor_s(pid) for role, pid in self.pids.items()}

    @property
    def wall_s(self) -> float:
        """Seconds since it was created."""
        return time.perf_counter() - self.began_s

    def taken(self) -> Taken:
        """Return the seconds since it was created."""
        used = {role: now - self.began[role] for role, now in self._used().items()}
        return {"wall": self.wall_s, "all": sum(used.values()), **used}


def raw(kafka: Settings, topic: str, count: int, copy: str) -> Taken:
    """Consume and produce the tape, without decoding."""
    create_topics(kafka, [TopicSpec(copy, 1)])
    # By default a full queue makes the fetcher sleep for a second.
    wide = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
    wide |= {"fetch.message.max.bytes": 8_000_000, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**kafka, **wide, "group.id": copy, "enable.auto.commit": False})
    more = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1_000_000}
    producer = Producer({**kafka, **more, "linger.ms": 20, "batch.num.messages": 50_000})
    consumer.assign([Assigned(topic, 0, 0)])
    seen, watch = 0, Stopwatch({})
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
    taken = watch.taken()
    consumer.close()
    return taken


def errata(run: Run, count: int) -> Taken:
    """Run a variant from its start to its last result, all windows closed.

    Raises:
        SystemExit: If it is not done in time, or its results differ from a recomputation.
    """
    cluster, variant = KafkaCluster(run.kafka), run.variant
    plan = prepare(variant.network(run.name, run.topic), Place(run.kafka, Path()), cluster)
    if not variant.is_bound:
        declare_end(cluster, plan, "trades")
    view = View(cluster, plan=plan)
    last = view.tasks(str(TaskId.parse(variant.task).scope))
    with processes(run) as running:
        running.start.wait()
        watch = Stopwatch(running.pids)
        while not all(finished(view, task) for task in last):
            view.poll()
            time.sleep(0.01)
            if watch.wall_s > LIMIT_S:
                raise SystemExit(f"not done after {LIMIT_S} s: {view.reports}")
        taken = watch.taken() | {"rows": running.rows.value}
    counts = Counter[str]()
    for task in last:
        counts.update(view.of(task).counts)
    told = ", ".join(f"{CountKey.parse(key).what} {value}" for key, value in counts.items())
    print(f"    {run.name}: {taken['wall']:.2f} s; {told}", flush=True)
    wrong = check(cluster, plan, variant, count)
    if wrong.height:
        counted = {task: report.counts for task, report in view.reports.items()}
        raise SystemExit(f"{run.name}: differs from recomputation: {wrong}\n{counted}")
    cluster.close()
    return taken


def finished(view: View, task: str) -> bool:
    """Return whether a task is done; an ingest task is when it has reported the final watermark."""
    report = view.of(task)
    told = report.watermarks[-1][1] if report.watermarks else report.watermark
    return told >= FOREVER


def check(cluster: KafkaCluster, plan: CompiledPlan, variant: Variant, count: int) -> pl.DataFrame:
    """Return the rows of a variant's arc that differ from a recomputation, found and wanted."""
    view = View(cluster, plan=plan)
    end = cluster.end(view.source)
    while not view.has_read_to(end):
        view.poll()
    shared = Shared(cluster, plan, SchemaRegistry(cluster), view, 0)
    parts = []
    for partition in range(plan.placement.partitions[variant.arc]):
        source = ArcInput(view, shared.codec(variant.arc), partition, done=-1, resume=0)
        last, _ = view.complete(variant.arc, partition)
        while source.frontier() < last:
            source.poll()
        parts.append(source.take(source.frontier()))
        source.close()
    found = rows.fold(plan.topology.arcs[variant.arc], pl.concat(parts))
    wanted = expected(variant, count)
    found, names = found.select(wanted.columns), wanted.columns
    sides = {"found": (found, wanted), "wanted": (wanted, found)}
    return pl.concat(
        one.join(other, on=names, how="anti", nulls_equal=True).with_columns(side=pl.lit(side))
        for side, (one, other) in sides.items()
    ).sort(names)


@cache
def expected(variant: Variant, count: int) -> pl.DataFrame:
    """Return the expected final content of a variant's arc."""
    return variant.expected(count)


def table(taken: dict[str, list[Taken]], records: int) -> str:
    """Return medians of the runs, a line for each variant."""
    lines = [f"{'':18}{'k/s':>7}{'ratio':>7}" + "".join(f"{name:>10}" for name in COLUMNS)]
    base = statistics.median(run["wall"] for run in taken["raw"])
    for what, runs in taken.items():
        middle = {name: statistics.median(run.get(name, 0) for run in runs) for name in COLUMNS}
        lines.append(
            f"{what:18}{records / middle['wall'] / 1000:7.1f}{base / middle['wall']:7.3f}"
            + "".join(f"{middle[name]:10.2f}" if middle[name] else f"{'-':>10}" for name in COLUMNS)
        )
    lines.append("ratio to raw; wall: seconds; all and the roles: seconds of processor time")
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="trades")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=VARIANTS, nargs="+", help="beside raw, these alone")
    parser.add_argument("--short", action="store_true", help="20,000 trades, once: for CI")
    options = parser.parse_args()
    count, times = (20_000, 1) if options.short else (options.count, options.repeat)
    chosen = options.only or [*VARIANTS]
    taken: dict[str, list[Taken]] = defaultdict(list)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {count} trades")
    with EmbeddedBroker() as broker:
        kafka = dict(broker.settings)
        create_topics(kafka, [SCHEMAS])
        used = dict.fromkeys(["revisions", *(VARIANTS[what].tape for what in chosen)])
        records = {name: preload(kafka, name, count) for name in used}["revisions"]
        if any(VARIANTS[what].is_bound for what in chosen):
            errata(Run(EXPORTED, kafka, UPPER.partition(".")[0], EXPORTED.tape), count)
        for turn in range(times):
            taken["raw"].append(raw(kafka, "revisions", records, f"copy{turn}"))
            for what in chosen:
                variant = VARIANTS[what]
                name = f"{what.replace(',', '').replace(' ', '-')}-{turn}"
                taken[what].append(errata(Run(variant, kafka, name, variant.tape), count))
    print(table(taken, records))


if __name__ == "__main__":
    main()
