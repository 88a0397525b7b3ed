"""Measures the memory of a correction storm: ``python -m bench.storm``.

An aggregate over windows has 30,000 groups, each with some tuples in one window, which closes. Then
one tuple of each group is corrected. In upstream mode the box replays the tuples of all these
windows, in downstream mode it fetches their results. The processes are started again before the
storm, so that loading the history does not count. Prints the peak resident memory of each process
during the storm, and how much of it the storm added. The revised results are checked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from multiprocessing.synchronize import Event
from pathlib import Path

import polars as pl
from confluent_kafka import Producer

from bench.processes import IN_ORDER, Settings, memory
from errata import Network, tumbling
from errata.deploy.deployment import prepare
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.plan.plan import Plan
from errata.processors.plan.topology import ingest_scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import CountKey
from errata.run.supervisor import CHILD_ENVIRON
from errata.run.worker import Worker, tune_garbage_collector
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.avro import revision_schema
from errata.schemas.encode import Encoder
from errata.schemas.fields import FieldType
from errata.settings.place import Place
from errata.topics import names
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from errata.topics.settings import TopicSpec

START_MS, HOUR_MS = 1_784_073_600_000, 3_600_000
FIELDS = {"key": "string", "at": "timestamp-millis", "account": "string", "amount": "long"}
LIMIT_S = 600
SLICE_ROWS = 1_000_000
MB = 1_000_000


def network(name: str, mode: str) -> Network:
    """Return the network that is measured."""
    net = Network(name)
    orders = net.source(
        "orders",
        topic=name,
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        partition_by=["account"],
        lateness="1m",
        keep="10y",
    )
    orders.aggregate(
        "totals",
        by=["account"],
        window=tumbling("1h"),
        mode=mode,
        keep="10y",
        total="sum(amount)",
        orders="count(*)",
    )
    return net


def orders(groups: int, each: int) -> pl.DataFrame:
    """Return the tuples of the history: `each` for each group, spread over one hour."""
    number = pl.int_range(groups * each, eager=True)
    return pl.select(
        number.cast(pl.String).str.zfill(9).alias("key"),
        (START_MS + number * HOUR_MS // (groups * each)).alias("at"),
        ("account " + (number % groups).cast(pl.String).str.zfill(6)).alias("account"),
        (number % 1_000).alias("amount"),
    )


def inserts(tuples: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that insert some tuples."""
    return frames.between(
        tuples,
        pl.repeat(False, tuples.height, dtype=pl.Boolean, eager=True),
        tuples,
        pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True),
    )


def corrections(tuples: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that raise the amount of some tuples by 1."""
    present = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
    return frames.between(tuples, present, tuples.with_columns(pl.col("amount") + 1), present)


def send(kafka: Settings, registry: SchemaRegistry, topic: str, revisions: pl.DataFrame) -> None:
    """Write revisions into a topic."""
    schema = revision_schema("order", {n: FieldType.parse(kind) for n, kind in FIELDS.items()})
    sides = revisions.with_columns(
        (pl.col("op") != frames.INSERT).alias("before"),
        (pl.col("op") != frames.DELETE).alias("after"),
    )
    head = framing.head(registry.register(f"{topic}-value", schema))
    limits = {"queue.buffering.max.messages": SLICE_ROWS, "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer({**kafka, **limits, **IN_ORDER, "linger.ms": 20})
    for part in sides.iter_slices(SLICE_ROWS):
        bodies = Encoder(schema).encode(part, task="bench", attempt=1, epoch=0)
        keys = part.select(pl.coalesce("after.key", "before.key").cast(pl.Binary)).to_series()
        values = [head + body for body in bodies]
        deque(
            map(producer.produce, repeat(topic), values, keys.to_list(), repeat(0)),
            maxlen=0,
        )
        producer.flush()


def work(
    name: str, mode: str, roles: list[str], beside: bool, kafka: Settings, state: str, stop: Event
) -> None:
    """Run one process of the network, until it is stopped."""
    worker = Worker(network(name, mode), Place(kafka, Path(state)))
    for role in roles:
        if role == "sweepers":
            worker.add_sweepers()
        else:
            worker.add_scope(role, sweep_beside=beside)
    tune_garbage_collector()
    worker.run(stop.is_set)


@contextmanager
def processes(
    name: str, mode: str, beside: bool, kafka: Settings, state: str
) -> Iterator[dict[str, int]]:
    """Run the processes of the network; yields the process id of each role."""
    roles = {"ingest": [ingest_scope("orders")], "scope": ["orders"]}
    roles |= {} if beside else {"sweepers": ["sweepers"]}
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    for variable, value in CHILD_ENVIRON.items():
        os.environ.setdefault(variable, value)
    children = {
        role: context.Process(target=work, args=(name, mode, runs, beside, kafka, state, stop))
        for role, runs in roles.items()
    }
    for child in children.values():
        child.start()
    try:
        yield {role: child.pid or 0 for role, child in children.items()}
    finally:
        stop.set()
        for child in children.values():
            child.join(30)
            if child.is_alive():
                child.kill()


class Watch:
    """Follows the reports of a network.

    Args:
        cluster: The cluster.
        plan: The plan.
    """

    def __init__(self, cluster: KafkaCluster, plan: Plan) -> None:
        self.cluster, self.plan, self.view = cluster, plan, View(cluster, plan=plan)

    def until(self, what: str, count: int, pids: dict[str, int]) -> float:
        """Wait until a running total of the box has reached a count; return the seconds.

        Raises:
            SystemExit: If it takes too long, or a process has ended.
        """
        began = time.monotonic()
        while self.counts().get(what, 0) < count:
            self.view.poll()
            time.sleep(0.01)
            ended = [role for role, pid in pids.items() if not memory(pid)]
            if ended or time.monotonic() - began > LIMIT_S:
                raise SystemExit(f"{what} is not {count}, ended: {ended}; {self.counts()}")
        return time.monotonic() - began

    def counts(self) -> dict[str, int]:
        """Return the running totals of the box."""
        counts = self.view.of("orders.0").counts
        return {CountKey.parse(key).what: value for key, value in counts.items()}

    def until_swept(self) -> None:
        """Wait until the sweeper's copy has all that is complete, and is on disk or read again."""
        done = self.view.of("ingest.orders.0").done
        while self.view.of("orders.0").done < done:
            self.view.poll()
            time.sleep(0.01)

    def content(self) -> pl.DataFrame:
        """Return the content of the box's arc."""
        arc = self.plan.topology.arcs["totals"]
        shared = Shared(self.cluster, self.plan, SchemaRegistry(self.cluster), self.view, 0)
        source = ArcInput(self.view, shared.codec("totals"), 0, done=-1, resume=0)
        while source.frontier() < self.view.of("orders.0").done:
            source.poll()
        found = frames.fold(source.take(source.frontier()), arc.identity, list(arc.fields))
        source.close()
        return found


def forget_peak(pid: int) -> None:
    """Let the peak of a process begin at its present memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def storm(
    kafka: Settings, mode: str, *, groups: int, each: int, beside: bool, name: str
) -> dict[str, tuple[int, int]]:
    """Load the history, then measure one storm; return the memory before and at the peak.

    Raises:
        SystemExit: If the storm takes too long, or its results are wrong.
    """
    cluster = KafkaCluster(kafka)
    registry = SchemaRegistry(cluster)
    create_topics(kafka, [TopicSpec(name, 1)])
    history = orders(groups, each)
    later = history[:1].with_columns(at=START_MS + 2 * HOUR_MS, key=pl.lit("later"))
    send(kafka, registry, name, inserts(pl.concat([history, later])))
    corrected = history[:groups]
    with tempfile.TemporaryDirectory(prefix="errata-storm-") as state:
        plan = prepare(network(name, mode), Place(kafka, Path(state)), cluster)
        watch = Watch(cluster, plan)
        with processes(name, mode, beside, kafka, state) as pids:
            loaded_s = watch.until("closed", groups, pids)
            watch.until_swept()
        with processes(name, mode, beside, kafka, state) as pids:
            # one correction first: then every process has read what it needs to begin
            send(kafka, registry, name, corrections(corrected[:1]))
            watch.until("revised", 1, pids)
            os.kill(pids["ingest"], 19)
            send(kafka, registry, name, corrections(corrected[1:]))
            before = {role: memory(pid)["VmRSS"] for role, pid in pids.items()}
            for pid in pids.values():
                forget_peak(pid)
            os.kill(pids["ingest"], 18)
            storm_s = watch.until("revised", groups, pids)
            peak = {role: memory(pid)["VmHWM"] for role, pid in pids.items()}
        expected = (
            pl.concat([history[groups:], corrected.with_columns(pl.col("amount") + 1)])
            .group_by("account")
            .agg(pl.col("amount").sum().cast(pl.Int128).alias("total"))
        )
        found = watch.content()
        same = found.with_columns(pl.col("total").cast(pl.Int128)).join(
            expected, on=["account", "total"], how="semi"
        )
        if not groups == found.height == same.height:
            raise SystemExit(f"{found.height} results, {same.height} of them right, not {groups}")
    counts = watch.counts()
    told = ", ".join(f"{key} {counts[key]}" for key in ("requests", "replayed", "fetched"))
    print(f"    loaded in {loaded_s:.1f} s, storm {storm_s:.1f} s; {told}", flush=True)
    cluster.close()
    return {role: (before[role], peak[role]) for role in pids}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=30_000)
    parser.add_argument("--each", type=int, nargs="+", default=[40, 160], help="tuples a group")
    parser.add_argument("--mode", choices=["upstream", "downstream"], help="this one alone")
    parser.add_argument("--beside", choices=["yes", "no"], help="sweepers in the scope's process")
    options = parser.parse_args()
    modes = [options.mode] if options.mode else ["upstream", "downstream"]
    places = [options.beside == "yes"] if options.beside else [False, True]
    with EmbeddedBroker() as broker:
        kafka = dict(broker.settings)
        create_topics(kafka, [TopicSpec(names.SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})])
        number = 0
        for each in options.each:
            for mode in modes:
                for beside in places:
                    number += 1
                    where = "beside" if beside else "apart"
                    print(f"{mode}, sweepers {where}, {each} tuples a group", flush=True)
                    taken = storm(
                        kafka,
                        mode,
                        groups=options.groups,
                        each=each,
                        beside=beside,
                        name=f"storm{number}",
                    )
                    for role, (before, peak) in taken.items():
                        print(f"    {role:10} {before / MB:6.0f} MB, peak {peak / MB:6.0f} MB")


if __name__ == "__main__":
    main()
