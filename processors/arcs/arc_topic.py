"""Reads and writes an arc's topic: revisions are frames in memory, framed Avro on the wire."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import polars as pl

from errata.processors.arcs.feed import Cursor, Feeds
from errata.processors.reports.progress_view import View
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.avro import RevisionCodec, key_schema
from errata.schemas.encode import Encoder
from errata.topics.cluster import Cluster, Records, TopicPartition
from errata.topics.registry import Registry

NOTHING_YET = -1
"""The frontier of an input without a complete epoch."""


@dataclass(frozen=True)
class Meta:
    """The writer and the epoch of a batch of revisions."""

    task: str
    attempt: int
    epoch: int


@dataclass
class ArcCodec:
    """Encodes and decodes the revisions of one arc.

    Args:
        arc: The arc.
        topic: Its topic; subjects are ``<topic>-key`` and ``<topic>-value``.
        registry: Holds its schemas.
    """

    arc: Arc
    topic: str
    registry: Registry

    def __post_init__(self) -> None:
        arc = self.arc
        self._feeds: dict[TopicPartition, Feeds] = {}
        key = key_schema(arc.name, arc.fields, arc.identity)
        self._keys, self._values = Encoder(key), RevisionCodec(arc.name, arc.fields)
        self._key_head = framing.head(self.registry.register(f"{self.topic}-key", key))
        self._value_id = self.registry.register(f"{self.topic}-value", self._values.schema)

    def keys(self, tuples: pl.DataFrame) -> list[bytes]:
        """Return the record keys of tuples: their identity, framed."""
        return self._keys.encode(tuples, self._key_head)

    def values(self, revisions: pl.DataFrame, meta: Meta) -> list[bytes]:
        """Return the record values of revisions."""
        return self._values.encode(
            revisions,
            task=meta.task,
            attempt=meta.attempt,
            epoch=meta.epoch,
            head=framing.head(self._value_id),
        )

    def encode(self, revisions: pl.DataFrame, meta: Meta) -> tuple[list[bytes], list[bytes]]:
        """Return keys and values of revisions."""
        return self.keys(self.identities(revisions)), self.values(revisions, meta)

    def identities(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the identity of each revision, from a side that it has."""
        return frames.identities(revisions, self.arc.identity)

    def cursor(self, cluster: Cluster, place: TopicPartition, offset: int) -> Cursor:
        """Return a reader of a partition from an offset; readers in a process share fetches."""
        if place not in self._feeds:
            self._feeds[place] = Feeds(cluster, place, self.decode)
        return Cursor(self._feeds[place], offset)

    @cached_property
    def empty(self) -> pl.DataFrame:
        """An empty frame with the columns of decoded revisions."""
        return frames.none(self.arc.fields).with_columns(
            pl.lit("", pl.String).alias("task"),
            *(pl.lit(0, pl.Int64).alias(name) for name in ("attempt", "epoch", "offset")),
        )

    def decode(self, records: Records) -> pl.DataFrame:
        """Return the revisions among records, with task, attempt, epoch and offset.

        Tombstones are skipped, and so are records that are no revisions of this arc: no report
        covers them.
        """
        values, offsets = records.values, pl.Series(records.offsets, dtype=pl.Int64)
        if None in values:
            there = [i for i, value in enumerate(values) if value is not None]
            values, offsets = [values[i] for i in there], offsets.gather(there)
        if not values:
            return self.empty
        found = framing.unframe(values)  # type: ignore[arg-type]
        bodies: Sequence[bytes] = found.bodies
        if found.only_id != self._value_id:
            own = np.flatnonzero(found.schema_ids == self._value_id)
            bodies, offsets = [bodies[i] for i in own.tolist()], offsets.gather(own)
        good = self._values.decode_each(bodies)
        frame = good.frame.with_columns(offsets.gather(good.good).alias("offset"))
        return frame.select(self.empty.columns)


def history(
    cluster: Cluster, codec: ArcCodec, place: TopicPartition, offset: int
) -> Generator[bool, None, pl.DataFrame]:
    """Read a partition from an offset to its current end; returns all visible revisions."""
    end = cluster.end(place)
    parts = [codec.empty]
    if offset < end:
        reader = cluster.reader({place: offset})
        try:
            while reader.position(place) < end:
                parts += [codec.decode(records) for records in reader.poll()]
                yield False
        finally:
            reader.close()
    return pl.concat(parts)


class ArcInput:
    """One partition of an arc as input of a reader; buffers revisions not yet processed.

    Args:
        view: Progress, as known to this process.
        codec: Codec of the arc.
        partition: The partition.
        done: An earlier attempt processed epochs up to this one.
        resume: Offset to read from.
        watch: Called with all that is read, as records and as revisions.
    """

    def __init__(
        self,
        view: View,
        codec: ArcCodec,
        partition: int,
        *,
        done: int,
        resume: int,
        watch: Callable[[Records, pl.DataFrame], None] | None = None,
    ) -> None:
        self.view, self.codec, self.done, self.watch = view, codec, done, watch
        self.place = TopicPartition(codec.topic, partition)
        self.cursor = codec.cursor(view.cluster, self.place, resume)
        self.pending: list[pl.DataFrame] = []
        self._repeats = codec.arc.name in view.plan.spark
        self._reached = NOTHING_YET
        self._goal: tuple[int, int] | None = None

    def poll(self, *, limit: int = 100_000) -> int:
        """Read the records that have arrived; return their number."""
        waiting = sum(frame.height for frame in self.pending)
        if waiting >= limit and self._goal is None:
            return 0  # back-pressure: complete epochs are processed first
        count = 0
        for records, frame in self.cursor.poll(limit=limit):
            count += len(records)
            if self.watch is not None:
                self.watch(records, frame)
            frame = frame.filter(pl.col("epoch") > self.done)
            if frame.height:
                self.pending.append(frame)
        return count

    def frontier(self) -> int:
        """Return the last complete epoch: all writers have passed it, and it is read to their ends.

        The reports are consulted again only once the reader has reached the ends that they gave, so
        that a busy arc can't outrun its reader.
        """
        arc, partition = self.codec.arc.name, self.place.partition
        if self._goal is None:
            self._goal = self.view.complete(arc, partition)
        epoch, end = self._goal
        if self.cursor.position >= end:
            self._reached, self._goal = max(self._reached, epoch), None
        return max(self._reached, self.done)

    def epochs(self, upto: int) -> list[int]:
        """Return the epochs up to `upto` that have records, oldest first."""
        found: set[int] = set()
        for frame in self.pending:
            found.update(frame["epoch"].unique().to_list())
        return sorted(epoch for epoch in found if epoch <= upto)

    def take(self, upto: int) -> pl.DataFrame:
        """Return the covered revisions of the epochs up to `upto`; exact copies are dropped.

        Copies come from rewritten shadowed records, and from a job on Spark that reruns a task.
        """
        pending = pl.concat(self.pending) if self.pending else self.codec.empty
        there = self.view.believed(pending)
        taken = there.filter(pl.col("epoch") <= upto)
        if there.height < pending.height or self._repeats:
            content = [name for name in taken.columns if name != "offset"]
            taken = taken.unique(subset=content, keep="first", maintain_order=True)
        return taken

    def drop(self, done: int) -> int:
        """Forget epochs up to `done`; return the offset at which a new attempt must resume."""
        self.done = done
        left = [frame.filter(pl.col("epoch") > done) for frame in self.pending]
        self.pending = [frame for frame in left if frame.height]
        oldest = [cast(int, frame["offset"].min()) for frame in self.pending]
        return min(oldest, default=self.cursor.position)

    def close(self) -> None:
        """Stop reading."""
        self.cursor.close()
