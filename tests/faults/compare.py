"""Compares what a network has written with what it must hold, as its readers see it."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from time import monotonic
from typing import Any

import polars as pl
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

import errata
from errata import Network, Stream
from errata.client.dead_letters import committed
from errata.processors.arcs.arc_topic import ArcCodec, history, read_to_end
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.schemas import revisions as frames
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import SchemaRegistry
from tests.faults.feed import Place, Tuple
from tests.faults.recompute import IDENTITY, Content, by_identity
from tests.steps import ended

READ_S = 30.0
MOST_SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """Something that differs from what must be.

    Args:
        where: The arc, the sink's topic, or ``dead letters``.
        identity: Of what.
        found: What is there; None if nothing is.
        wanted: What should be there.
    """

    where: str
    identity: Any
    found: Any
    wanted: Any

    def __str__(self) -> str:
        return f"{self.where} {self.identity}: found {self.found}, wanted {self.wanted}"


def arcs(
    net: Network, settings: Mapping[str, str | int], wanted: Mapping[str, Content]
) -> list[Difference]:
    """Compare the content of arcs, as `errata.read` returns it."""
    named = {f"kafka.{name}": value for name, value in settings.items()}
    found = list[Difference]()
    for arc, content in wanted.items():
        table = errata.read(Stream(net, arc), settings=named, wait_s=READ_S)
        if len(table.tuples) != len(by_identity(arc, table.tuples)):
            found.append(Difference(arc, "", "an identity twice", "each once"))
        found += differences(arc, by_identity(arc, table.tuples), content)
    return found


def differences(where: str, found: Content, wanted: Content) -> list[Difference]:
    """Return the identities that differ."""
    return [
        Difference(where, identity, found.get(identity), wanted.get(identity))
        for identity in sorted(found.keys() | wanted.keys())
        if found.get(identity) != wanted.get(identity)
    ]


# ------------------------------------------------------------------------------ revisions


def chains(
    cluster: KafkaCluster, plan: CompiledPlan, wanted: Collection[str], *, whole: bool
) -> list[Difference]:
    """Check that every revision revises what the one before it has left.

    Args:
        cluster: The cluster.
        plan: The plan that runs.
        wanted: The arcs.
        whole: Whether all revisions are still there; else older ones may have been compacted.
    """
    return [
        each for arc in wanted for each in _broken(arc, _believed(cluster, plan, arc), whole=whole)
    ]


def _opened(cluster: KafkaCluster, plan: CompiledPlan, arc: str) -> tuple[ArcCodec, View]:
    """Return the codec of an arc, and a view that has read all reports."""
    codec = ArcCodec(plan.topology.arcs[arc], plan.deployment.topic(arc), SchemaRegistry(cluster))
    view = View(cluster, plan=plan)
    view.catch_up()
    return codec, view


def _believed(cluster: KafkaCluster, plan: CompiledPlan, arc: str) -> pl.DataFrame:
    """Return an arc's committed revisions in order, each once."""
    codec, view = _opened(cluster, plan, arc)
    parts = []
    for partition in range(plan.placement.partitions[arc]):
        rows = ended(history(cluster, codec, TopicPartition(codec.topic, partition), 0))
        parts.append(view.covered(rows).with_columns(pl.lit(partition).alias("partition")))
    view.close()
    is_kept = pl.col("op") != frames.DELETE
    every = pl.concat(parts).sort("epoch", is_kept, "partition", "offset", maintain_order=True)
    return every.unique(
        [name for name in every.columns if name != "offset"], keep="first", maintain_order=True
    )


def evidence(cluster: KafkaCluster, plan: CompiledPlan, arc: str) -> Iterator[str]:
    """Yield a line for each record of an arc that its readers see, and for its writers' reports."""
    codec, view = _opened(cluster, plan, arc)
    for partition in range(plan.placement.partitions[arc]):
        place = TopicPartition(codec.topic, partition)
        for records in filter(None, read_to_end(cluster, place, 0)):
            revisions = codec.decode(records)
            known = set(view.covered(revisions)["offset"])
            decoded = {row.pop("offset"): row for row in revisions.iter_rows(named=True)}
            for key, offset in zip(records.keys, records.offsets, strict=True):
                note = "" if offset in known else f" not covered, key {key!r}"
                yield f"{arc} {partition} {offset}: {decoded.get(offset)}{note}"
        for writer in view.writers(arc, partition):
            yield f"{arc} {partition}: {view.of(writer)}"
    view.close()


def _broken(arc: str, revisions: pl.DataFrame, *, whole: bool) -> Iterator[Difference]:
    names = [n.removeprefix(frames.AFTER) for n in revisions.columns if n.startswith(frames.AFTER)]
    last: dict[Any, Any] = {}
    for row in revisions.iter_rows(named=True):
        op = row["op"]
        before = None if op == frames.INSERT else {n: row[frames.BEFORE + n] for n in names}
        after = None if op == frames.DELETE else {n: row[frames.AFTER + n] for n in names}
        identity = tuple((after or before or {})[name] for name in IDENTITY[arc])
        # Compaction knows one partition only: of a tuple that has moved, a delete may be left.
        place = identity if whole else (row["partition"], identity)
        if (place in last or whole) and last.get(place) != before:
            where = f"{arc} epoch {row['epoch']} by {row['task']} attempt {row['attempt']}"
            yield Difference(f"revisions of {where}", identity, before, last.get(place))
        last[place] = after


# ---------------------------------------------------------------------------------- sinks


def sinks(
    net: Network, settings: Mapping[str, str | int], wanted: Mapping[str, Content]
) -> list[Difference]:
    """Compare what a plain consumer folds the topics of sinks to."""
    found = list[Difference]()
    for sink in net.sinks:
        arc, fold = sink.arc, FOLDS[sink.envelope]
        last: dict[bytes, Tuple | None] = {}
        for key, value in consumed(settings, sink.topic):
            fold(last, key, value)
        tuples = by_identity(arc, [each for each in last.values() if each is not None])
        found += differences(f"sink {sink.topic}", tuples, wanted[arc])
    return found


def _read(value: bytes) -> Any:
    return json.loads(value, parse_float=Decimal)


def _upsert(last: dict[bytes, Tuple | None], key: bytes, value: bytes | None) -> None:
    last[key] = None if value is None else _plain(_read(value))


def _change(last: dict[bytes, Tuple | None], key: bytes, value: bytes | None) -> None:
    if value is not None:
        last[key] = _plain(_read(value)["after"])


FOLDS: dict[str, Callable[[dict[bytes, Tuple | None], bytes, bytes | None], None]] = {
    "upsert": _upsert,
    "native": _change,
    "debezium": _change,
}


def _plain(row: Tuple | None) -> Tuple | None:
    """Return a tuple of JSON with the values that Python has for it."""
    if row is None:
        return None
    decimals = {"price", "paid", "dearest", "value", "worth"}
    return {n: Decimal(v) if n in decimals and v is not None else v for n, v in row.items()}


def consumed(settings: Mapping[str, str | int], topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the records of a topic as a plain consumer reads them, committed ones only."""
    own = {"group.id": "plain", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer(dict(settings) | own)
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    for partition in partitions:
        place = Position(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, 10)
        consumer.assign([place])
        deadline = monotonic() + READ_S
        while consumer.position([Position(topic, partition)])[0].offset < end:
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                yield message.key(), message.value()
            assert monotonic() < deadline, f"{topic} can't be read to its end"
    consumer.close()


# --------------------------------------------------------------------------- dead letters


def dead_letters(
    cluster: KafkaCluster, plan: CompiledPlan, bad: Collection[Place]
) -> list[Difference]:
    """Check that each bad record is one dead letter, and nothing else is."""
    found = Counter(
        (letter.topic, letter.partition, letter.offset) for letter in committed(cluster, plan)
    )
    return [
        Difference("dead letters", place, found[place], int(place in bad))
        for place in sorted(found.keys() | set(bad))
        if found[place] != int(place in bad)
    ]
