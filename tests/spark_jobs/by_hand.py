"""A network of which a test is every task: it dies, repeats and lags at will."""

import time
from dataclasses import replace
from typing import Any

import polars as pl

from errata import Network
from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import deploy, topic_specs
from errata.processors.tasks import subjects
from errata.processors.wire import report as reports
from errata.processors.wire.report import Report
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.spark_jobs.data_source import BatchReader, Opened, StreamReader
from errata.topics import names
from errata.topics.admin import create_topics
from errata.topics.cluster import TopicPartition, Transactions
from errata.topics.kafka import KafkaCluster
from errata.topics.memory import MemoryCluster
from errata.topics.registry_server import registry
from errata.topics.settings import DAY_MS, TopicSpec

PLAIN = {"zone": "string", "at": "timestamp-millis", "n": "long"}


EVERY = {
    "uuid": "uuid",
    "at": "timestamp-millis",
    "micros": "timestamp-micros?",
    "text": "string?",
    "small": "int?",
    "large": "long?",
    "single": "float?",
    "double": "double?",
    "flag": "boolean?",
    "raw": "bytes?",
    "day": "date?",
    "price": "decimal(38,10)?",
    "whole": "decimal(38)?",
    "alone": "long",
}


class World:
    """A network of which this test is every task.

    Args:
        cluster: The cluster.
        settings: How to reach it, if it is a broker.
        name: The network's.
        lag_ms: How long superseded records stay.
    """

    def __init__(
        self,
        cluster: KafkaCluster | MemoryCluster,
        settings: dict[str, Any],
        name: str,
        *,
        lag_ms: int = DAY_MS,
    ) -> None:
        def create(specs: list[TopicSpec]) -> None:
            if isinstance(cluster, KafkaCluster):
                create_topics(settings, specs)
                return
            for spec in specs:
                cluster.create(spec.name, spec.partitions)

        self.servers = settings["bootstrap.servers"]
        self.network = net = Network(name)
        create([TopicSpec(f"{name}-{of}", 2) for of in ("trades", "every")])
        trades, every = (
            net.source(
                of,
                topic=f"{name}-{of}",
                format="json",
                fields=fields,
                identity=[key],
                event_time="at",
                keep="10y",
            )
            for of, fields, key in (("trades", PLAIN, "zone"), ("every", EVERY, "uuid"))
        )
        trades.where("few", "n < 10")
        every.where("kept", "alone > 0", keep="10y")
        plan = compile_network(net).placed({"trades": 2, "every": 2})
        create(topic_specs(plan, compaction_lag_ms=lag_ms))
        self.cluster, self.plan, self.registry = cluster, plan, registry(cluster)
        subjects.register(plan, self.registry)
        deploy(cluster, plan)
        self.epoch = time.time_ns() // 50_000_000 - 10_000  # some minutes ago
        self.reports: dict[str, Report] = {}
        self.hands: dict[str, Transactions] = {}

    def commit(
        self,
        task: str,
        epoch: int,
        *written: tuple[str, int, pl.DataFrame],
        attempt: int = 1,
        reported: bool = True,
        of: int | None = None,
    ) -> None:
        """Commit revisions of an epoch to partitions of arcs, and the report, as a task does.

        Args:
            task: The task.
            epoch: Counted from the world's own first.
            written: Arc, partition and revisions.
            attempt: The life.
            reported: Whether there is a report; else the records are dead.
            of: The epoch that the records name; that of the report by default.
        """
        if task not in self.hands:
            name = f"{self.plan.network}.{task}"
            self.hands[task] = self.cluster.transactions(name)
        hand = self.hands[task]
        hand.begin()
        number = self.epoch + (epoch if of is None else of)
        for arc, partition, revisions in written:
            codec = ArcCodec(
                self.plan.topology.arcs[arc], self.plan.deployment.topic(arc), self.registry
            )
            keys, values = codec.encode(revisions, Meta(task, attempt, number))
            places = [partition] * len(keys)
            hand.produce(codec.topic, partitions=places, keys=keys, values=values)
        ends = {place: (own.stop, number) for place, own in hand.flush().items()}
        if reported:
            self._report(hand, task, self.epoch + epoch, max(attempt, 1), ends)
        hand.commit()

    def _report(
        self,
        hand: Transactions,
        task: str,
        done: int,
        attempt: int,
        ends: dict[TopicPartition, tuple[int, int]],
    ) -> None:
        old = self.reports.get(task) or Report(task)
        life = max(old.attempt, attempt)
        made = replace(
            old,
            attempt=life,
            done=done,
            committed={**old.committed, life: done},
            ends={**old.ends, **ends},
        )
        topic = names.progress_topic(self.plan.network)
        schema_id = self.registry.register(f"{topic}-value", reports.SCHEMA)
        value = framing.frame([reports.encode(made)], schema_id)
        hand.produce(topic, partitions=[0], keys=[task.encode()], values=value)
        hand.flush()
        self.reports[task] = made

    def revisions(self, arc: str, *rows: tuple[dict | None, dict | None]) -> pl.DataFrame:
        """Return a frame of revisions of tuples as they were and are."""
        kind = self.plan.topology.arcs[arc]
        ops = {(False, True): 0, (True, False): 1, (True, True): 2}
        columns: dict[str, list] = {"op": [ops[bool(b), bool(a)] for b, a in rows]}
        for number, prefix in enumerate((frames.BEFORE, frames.AFTER)):
            for name in kind.fields:
                columns[prefix + name] = [(row[number] or {}).get(name) for row in rows]
        return pl.DataFrame(columns, schema=frames.schema(kind.fields))

    def close(self) -> None:
        for hand in self.hands.values():
            hand.close()


def told(rows: list[Any]) -> list[tuple]:
    """Return revisions as tuples of their epoch, op, and `n` by zone of each side."""
    found = []
    for row in rows:
        before, after = (side and {side.zone: side.n} for side in (row.before, row.after))
        found.append((row.epoch, row.op, before, after))
    return sorted(found, key=str)


def trade(zone: str, n: int) -> dict[str, Any]:
    return {"zone": zone, "at": 1_000, "n": n}


def insert(zone: str, n: int) -> tuple[None, dict]:
    return None, trade(zone, n)


ONE, TWO = "ingest.trades.0", "ingest.trades.1"


def begin(world: World) -> None:
    """Two tasks write to the same partitions; one is ahead, and the other one has died."""
    made = world.revisions
    a, b = made("trades", insert("a", 1)), made("trades", insert("b", 2))
    world.commit(ONE, 1, ("trades", 0, a), ("trades", 1, b))
    world.commit(TWO, 4, ("trades", 0, made("trades", insert("c", 3))))
    dead = made("trades", (trade("a", 1), None), insert("x", 9))
    world.commit(ONE, 2, ("trades", 0, dead), attempt=2, reported=False)


def go_on(world: World) -> None:
    """The next life writes the last believed record again, and revises it; a peer follows."""
    made = world.revisions
    again = made("trades", insert("a", 1))
    world.commit(ONE, 1, ("trades", 0, again), reported=False)  # an exact copy
    world.commit(ONE, 5, ("trades", 0, made("trades", (trade("a", 1), trade("a", 7)))), attempt=3)
    world.commit(ONE, 5, ("trades", 0, made("trades", (trade("a", 1), trade("a", 7)))), attempt=3)
    world.commit(TWO, 5)


def opened(world: World, arc: str) -> Opened:
    return Opened.of(
        {"bootstrap.servers": world.servers},
        network=world.plan.network,
        arc=arc,
        registry_settings={},
    )


def read(reader: BatchReader | StreamReader, parts: list[Any]) -> list[dict]:
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
