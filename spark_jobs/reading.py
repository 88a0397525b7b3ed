"""Reads an arc's topic in any process, without any Spark connector.

`Arcs` are those of a deployed plan, as audits and backfills read them. An `ArcReader` reads one as
users see it: its complete epochs, its retained history, its content.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from time import monotonic
from typing import Any

import polars as pl
from confluent_kafka.admin import ConfigResource, ResourceType

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View, covered
from errata.processors.wire.report import INTERVAL_MS, NEVER
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible
from errata.schemas.errors import ErrataError
from errata.spark_jobs.executor import Recorder, Registered, connected
from errata.topics.client import Connection
from errata.topics.cluster import Cluster, ClusterError, Records, TopicPartition
from errata.topics.refused import DESCRIBE_CONFIGS, TOPIC, Right
from errata.topics.registry import Registry
from errata.topics.settings import FOREVER_MS

NOTHING = -1
"""The epoch before the first."""

WAIT_S = 0.05
_POLLED = 8_192
"""How many records are taken at once: an executor has several processes that read."""
LIMIT_S = 60.0
"""How long no record may arrive before a log's end: an open transaction may hold it back."""
_ROWS = 500_000
"""Number of revisions to buffer before only the last one of each identity is kept."""


@dataclass(frozen=True)
class Part:
    """A partition of an arc, to be read.

    Args:
        arc: The arc.
        partition: Its number.
        end: Where its log ends.
        committed: By writing task and attempt: the last epoch that counts.
    """

    arc: str
    partition: int
    end: int
    committed: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Arcs:
    """The arcs of a deployed plan, for any process: pickled to executors.

    Args:
        plan: The plan, as deployed.
        kafka: librdkafka settings.
        ids: Schema ids by subject.
    """

    plan: CompiledPlan
    kafka: Mapping[str, str | int]
    ids: Mapping[str, int]

    @classmethod
    def of(cls, plan: CompiledPlan, kafka: Mapping[str, str | int], registry: Registry) -> Arcs:
        """Return all arcs of a plan that have topics, with their schemas looked up."""
        recorder = Recorder(registry)
        recorder.look_up(plan, plan.topology.topics)
        return cls(plan, kafka, recorder.ids)

    def parts(self, view: View, arc: str) -> list[Part]:
        """Return the partitions of an arc, up to the current ends of their logs."""
        topic, parts = self.plan.deployment.topic(arc), []
        for number in range(self.plan.placement.partitions[arc]):
            committed = view.committed(view.writers(arc, number))
            end = view.cluster.end(TopicPartition(topic, number))
            parts.append(Part(arc, number, end, committed))
        return parts

    def content(self, part: Part, epoch: int) -> pl.DataFrame:
        """Return the tuples that a partition holds as of an epoch; runs on an executor.

        Args:
            part: The partition.
            epoch: Committed revisions of epochs up to this one count.
        """
        arc = self.plan.topology.arcs[part.arc]
        codec = ArcCodec(arc, self.plan.deployment.topic(part.arc), Registered(self.ids))
        polled = revisions(connected(self.kafka), codec, part.partition, (0, part.end))
        upto = pl.col("epoch") <= epoch
        committed = (covered(frame, part.committed).filter(upto) for frame in polled)
        return content(chain([codec.empty], committed), arc)


def content(revisions: Iterable[pl.DataFrame], arc: Arc) -> pl.DataFrame:
    """Return the tuples that remain after an arc's revisions; an exact copy counts once.

    Memory is at most a few times the size of the result, however often it was revised.

    Args:
        revisions: In the order of the log, at least one frame.
        arc: The arc.
    """
    last, later = list[pl.DataFrame](), list[pl.DataFrame]()
    for frame in revisions:
        later.append(frame)
        if _height(later) > max(_ROWS, _height(last)):
            last, later = [frames.last(pl.concat([*last, *later]), arc.identity)], []
    return frames.fold(pl.concat([*last, *later]), arc.identity, list(arc.fields))


def _height(parts: list[pl.DataFrame]) -> int:
    return sum(frame.height for frame in parts)


def revisions(
    cluster: Cluster, codec: ArcCodec, partition: int, offsets: tuple[int, int]
) -> Iterator[pl.DataFrame]:
    """Yield the revisions of a range of a partition, whether a report covers them or not.

    Yields empty frames while no record arrives.

    Args:
        cluster: The cluster of the arc.
        codec: The codec of its records.
        partition: The partition.
        offsets: First offset and end, half-open.

    Raises:
        ClusterError: If the end of the stretch can't be read.
    """
    for polled in records_in(cluster, TopicPartition(codec.topic, partition), offsets):
        if polled is None:
            yield codec.empty
        else:
            yield codec.decode(polled)


def records_in(
    cluster: Cluster, place: TopicPartition, offsets: tuple[int, int]
) -> Iterator[Records | None]:
    """Yield the records of a range of a partition, and None while none arrives.

    Args:
        cluster: The cluster.
        place: The partition.
        offsets: First offset and end, half-open.

    Raises:
        ClusterError: If the end of the stretch can't be read.
    """
    first, end = offsets
    if first >= end:
        return
    reader = cluster.reader({place: first})
    try:
        reached, deadline = first, monotonic() + LIMIT_S
        while (position := reader.position(place)) < end:
            if position > reached:
                reached, deadline = position, monotonic() + LIMIT_S
            elif monotonic() > deadline:
                raise ClusterError(
                    f"partition {place.partition} of topic '{place.topic}' was read to offset "
                    f"{position}, but its end {end} was not reached, and nothing has arrived for "
                    f"{LIMIT_S:g} s; a transaction may be open: see kafka-transactions"
                )
            polled = reader.poll(limit=_POLLED, timeout_s=WAIT_S)
            yield from (records.before(end) for records in polled)
            if not polled:
                yield None
    finally:
        reader.close()


PAUSE_S = 0.02


class EpochAheadError(ErrataError):
    """The requested epoch is not complete yet."""


class HistoryLostError(ErrataError):
    """The content of an arc as of an epoch is no longer known: superseded records may be gone."""


@dataclass(frozen=True)
class Piece:
    """Revisions of one partition: the input of one Spark task.

    Args:
        partition: Of the arc.
        offsets: Where all of them are, half-open.
        committed: By writing task and attempt: the last epoch that counts.
        after: Revisions of later epochs than this.
        upto: And of epochs up to this.
        intact: The epoch since which no record may be lost; `NOTHING`: all retained ones are read.
    """

    partition: int
    offsets: tuple[int, int]
    committed: Mapping[str, Mapping[int, int]]
    after: int
    upto: int
    intact: int


@dataclass(frozen=True)
class ArcReader:
    """Reads an arc in any process: pickled to executors.

    Args:
        arc: The arc, with its fields in the order of its records.
        topic: Its topic.
        partition_count: Its partitions.
        kafka: librdkafka settings.
        ids: The ids of its schemas, by subject.
        is_compacted: Whether superseded records are lost after a time; else any are.
        kept_ms: How long it takes until they are.
    """

    arc: Arc
    topic: str
    partition_count: int
    kafka: Mapping[str, str | int]
    ids: Mapping[str, int]
    is_compacted: bool
    kept_ms: int

    def cluster(self) -> Cluster:
        """Return this process's connection."""
        return connected(self.kafka)

    def place(self, partition: int) -> TopicPartition:
        """Return a partition of the arc."""
        return TopicPartition(self.topic, partition)

    @property
    def horizon_ms(self) -> int:
        """Older records may be gone by now."""
        return time.time_ns() // 1_000_000 - self.kept_ms

    def lost(self, epoch: int) -> HistoryLostError:
        """Return the error to raise if the content as of an epoch is unknown."""
        return HistoryLostError(
            f"arc {self.arc.name!r} can't be read as of epoch {epoch}: records that were "
            f"superseded since then are kept for {self.kept_ms} ms only, and may be gone; read it "
            "as of a later epoch (a stream: from the beginning, with a new checkpoint), or deploy "
            "with a longer topics.compaction_lag"
        )

    def content(self, piece: Piece) -> pl.DataFrame:
        """Return the tuples that a partition holds as of an epoch.

        Raises:
            HistoryLostError: If it can't be told any more.
        """
        return content(self._committed_revisions(piece), self.arc)

    def revisions(self, piece: Piece) -> pl.DataFrame:
        """Return a piece's revisions as users see them, one for each identity and epoch.

        Raises:
            HistoryLostError: If some of them may be gone.
        """
        frame = pl.concat(self._committed_revisions(piece))
        identity = list(self.arc.identity)
        named = frames.identities(frame, identity).select(pl.all().name.prefix("@"))
        once = [*named.columns, "epoch", "op"]
        if pl.concat([named, frame.select("epoch", "op")], how="horizontal").is_duplicated().any():
            both = pl.concat([frame, named], how="horizontal")  # the first of exact copies
            frame = both.unique(once, keep="first", maintain_order=True).select(frame.columns)
        return visible(self.arc, frame)

    def _committed_revisions(self, piece: Piece) -> Iterator[pl.DataFrame]:
        codec = ArcCodec(self.arc, self.topic, Registered(self.ids))
        cluster, place = self.cluster(), self.place(piece.partition)
        in_range = pl.col("epoch").is_between(piece.after + 1, piece.upto)
        yield codec.empty
        first_later: Any = None
        for frame in revisions(cluster, codec, piece.partition, piece.offsets):
            if first_later is None:
                first_later = frame.filter(pl.col("epoch") > piece.intact)["offset"].min()
            yield covered(frame.filter(in_range), piece.committed)
        if piece.intact == NOTHING or not self.is_compacted or first_later is None:
            return
        if first_later < cluster.offset_at(place, self.horizon_ms):
            raise self.lost(piece.intact)


class ArcProgress:
    """How far an arc is complete, and who wrote it; lives on the driver.

    Args:
        reader: The arc.
        view: What the tasks of its network have reported.
    """

    def __init__(self, reader: ArcReader, view: View) -> None:
        self.reader, self.view = reader, view
        self.partitions = range(reader.partition_count)

    @classmethod
    def now(cls, reader: ArcReader, plan: Plan) -> ArcProgress:
        """Return the progress that is reported by now."""
        progress = cls(reader, View(reader.cluster(), plan=plan))
        progress.view.catch_up()
        return progress

    def close(self) -> None:
        """Stop reading reports; safe to call twice."""
        self.view.close()

    def writers(self, partition: int) -> Sequence[str]:
        """Return the tasks that write to a partition."""
        return self.view.writers(self.reader.arc.name, partition)

    def complete(self) -> tuple[int, list[int]]:
        """Return the last epoch that is complete in all partitions, and its end offset in each."""
        ends = [self.view.complete(self.reader.arc.name, p) for p in self.partitions]
        return min(epoch for epoch, _ in ends), [end for _, end in ends]

    def last_written(self, partition: int) -> int:
        """Return the epoch of the last record that a report covers."""
        place = self.reader.place(partition)
        writers = self.writers(partition)
        return max(self.view.of(writer).ends.get(place, (0, NEVER))[1] for writer in writers)

    def pieces(
        self, after: int, upto: int, *, starts: Sequence[int], ends: Sequence[int], intact: int
    ) -> list[Piece]:
        """Return the pieces to read, one for each partition that may hold records."""
        return [
            Piece(p, (start, end), self.view.committed(self.writers(p)), after, upto, intact)
            for p, start, end in zip(self.partitions, starts, ends, strict=True)
            if start < end
        ]

    def require_kept(self, epoch: int, *, read_to: Sequence[int] | None = None) -> None:
        """Check that no record that was superseded after an epoch can have been compacted away.

        An old epoch is safe if nothing has been written since.

        Args:
            epoch: The epoch.
            read_to: By partition, up to where it has been read by now.

        Raises:
            HistoryLostError: If something can: deletes leave nothing behind in the end.
        """
        reader = self.reader
        if epoch * INTERVAL_MS >= reader.horizon_ms:
            return
        for partition in self.partitions:
            if self.last_written(partition) <= epoch:
                continue
            if read_to is not None:
                first = self.view.cluster.offset_at(reader.place(partition), reader.horizon_ms)
                if first <= read_to[partition] + 1:  # the transaction's end marker takes one offset
                    continue
            raise reader.lost(epoch)

    def require_whole(self, epoch: int) -> None:
        """Check that the arc's content as of an epoch can be read from its topic.

        A new version of the plan copies or fills arcs as of its first epoch; and a topic without
        history must still hold everything that was ever written to it.

        Raises:
            HistoryLostError: If it can't.
        """
        reader, cluster, plan = self.reader, self.view.cluster, self.view.plan
        deployment = plan.deployment
        if NOTHING < epoch < deployment.first_epoch - 1:
            raise HistoryLostError(
                f"arc {reader.arc.name!r} can't be read as of epoch {epoch}: version "
                f"{deployment.version} of the plan of network {plan.network!r} begins with epoch "
                f"{deployment.first_epoch}, and holds older content as of the epoch before it "
                f"only; read it as of epoch {deployment.first_epoch - 1} or later"
            )
        if reader.is_compacted:
            return
        if any(cluster.offset_at(reader.place(p), 0) for p in self.partitions):
            raise HistoryLostError(
                f"arc {reader.arc.name!r} keeps no history, and its oldest records are gone: its "
                "table can't be read; give the arc keep=, or read its revisions"
            )


def log_settings(kafka: Mapping[str, str | int], topic: str) -> tuple[bool, int]:
    """Return whether a topic is compacted, and how long its records are safe, in ms.

    Raises:
        ClusterError: If the topic does not exist, or this client may not describe it.
    """
    connection, resource = Connection(kafka), ConfigResource(ResourceType.TOPIC, topic)
    answers = connection.admin.describe_configs([resource])
    right = Right(DESCRIBE_CONFIGS, TOPIC, topic)
    entries = connection.wait_for(f"topic '{topic}'", answers[resource], right=right)
    is_compacted = "compact" in str(entries["cleanup.policy"].value)
    key = "min.compaction.lag.ms" if is_compacted else "retention.ms"
    kept_ms = int(entries[key].value)
    return is_compacted, FOREVER_MS if kept_ms < 0 else kept_ms
