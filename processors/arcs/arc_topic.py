"""Reads and writes an arc's topic: revisions are frames in memory, framed Avro on the wire."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import cast

import numpy as np
import polars as pl

from errata.processors.arcs.feeds import Chunk, Cursor, Feeds
from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import COUNTED
from errata.schemas import by_column, framing
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.avro import IDENTITY_BYTES, RevisionCodec, key_schema
from errata.schemas.encode import Encoder
from errata.topics.cluster import Cluster, LostOffsetError, Records, TopicPartition
from errata.topics.registry import Registry

CHECKED_S = 1.0
"""How often the end of a log is looked up again while it is read."""


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
        self._key_id = self.registry.register(f"{self.topic}-key", key)
        self._value_id = self.registry.register(f"{self.topic}-value", self._values.schema)

    def keys(self, tuples: pl.DataFrame) -> list[bytes]:
        """Return the record keys of tuples: their identity, framed."""
        return self._keys.encode(tuples, framing.head(self._key_id))

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
        """Return keys and values of revisions, which may have `IDENTITY_BYTES`."""
        if IDENTITY_BYTES in revisions.columns:
            keys = framing.frame(revisions[IDENTITY_BYTES].to_list(), self._key_id)
        else:
            keys = self.keys(self.identities(revisions))
        return keys, self.values(revisions, meta)

    def identities(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the identity of each revision, from a side that it has."""
        return frames.identities(revisions, self.arc.identity)

    def hand(
        self,
        place: TopicPartition,
        offsets: range,
        *,
        revisions: pl.DataFrame,
        keys: list[bytes],
        values: list[bytes],
        meta: Meta,
        time_ms: int,
        before: int,
        is_certain: Callable[[], bool] | None,
    ) -> None:
        """Hand committed revisions to the readers of a partition in this process, if there are any.

        Args:
            place: The partition.
            offsets: Their offsets.
            revisions: The revisions of one task and epoch, in the order of the log.
            keys: Their record keys.
            values: Their record values.
            meta: Their task, attempt and epoch.
            time_ms: When they were written, by the brokers' clock, or later.
            before: As in `Chunk`.
            is_certain: As in `Chunk`.
        """
        feeds = self._feeds.get(place)
        if feeds is None or not feeds.expects(offsets.start):
            return
        records = Records(place, [*offsets], [*keys], [*values], [time_ms] * len(offsets))
        frame = revisions.with_columns(
            pl.lit(meta.task, pl.String).alias("task"),
            pl.lit(meta.attempt, pl.Int64).alias("attempt"),
            pl.lit(meta.epoch, pl.Int64).alias("epoch"),
            pl.Series("offset", records.offsets, pl.Int64),
        )
        decoded = frame.select(self.empty.columns)
        feeds.hand(Chunk(records, decoded, meta.task, before, is_certain))

    def miss(self, place: TopicPartition) -> None:
        """Note that something of a partition may not be handed over: its readers read it."""
        if place in self._feeds:
            self._feeds[place].miss()

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
            present = [i for i, value in enumerate(values) if value is not None]
            values, offsets = [values[i] for i in present], offsets[present]
        if not values:
            return self.empty
        unframed = framing.unframe(values)  # type: ignore[arg-type]
        bodies: Sequence[bytes] = unframed.bodies
        if unframed.only_id != self._value_id:
            indexes = np.flatnonzero(unframed.schema_ids == self._value_id)
            bodies, offsets = [bodies[i] for i in indexes.tolist()], offsets[indexes]
        decoded = self._values.decode_each(bodies)
        frame = decoded.frame.hstack([offsets[decoded.good].alias("offset")])
        return by_column.pick(frame, self.empty.columns)


NoteRead = Callable[[TopicPartition, int, int], None]
"""Takes a partition, how far it has been read, and its end."""


def history(
    cluster: Cluster,
    codec: ArcCodec,
    place: TopicPartition,
    offset: int,
    *,
    note: NoteRead | None = None,
) -> Generator[bool, None, pl.DataFrame]:
    """Read a partition from an offset to its current end; returns all visible revisions.

    Args:
        cluster: The cluster.
        codec: Codec of the arc.
        place: The partition.
        offset: Where to begin.
        note: Told how far the partition has been read.
    """
    parts = [codec.empty]
    for records in read_to_end(cluster, place, offset, note=note):
        if records is None:
            yield False
        else:
            parts.append(codec.decode(records))
    return pl.concat(parts)


def read_to_end(
    cluster: Cluster, place: TopicPartition, offset: int, *, note: NoteRead | None = None
) -> Iterator[Records | None]:
    """Yield the records of a partition from an offset to its current end; None between polls.

    Records that nobody needs any more may be deleted before, or meanwhile; they are left out.
    """
    end, checked_s = cluster.end(place), monotonic()
    while offset < end:
        reader = cluster.reader({place: offset})
        try:
            while (offset := reader.position(place)) < end:
                if note is not None:
                    note(place, offset, end)
                yield from reader.poll()
                if monotonic() > checked_s + CHECKED_S:  # the brokers may have lost the last ones
                    end, checked_s = min(end, cluster.end(place)), monotonic()
                yield None
        except LostOffsetError:
            start = cluster.offset_at(place, 0)
            if start <= offset:
                raise
            offset = start
        finally:
            reader.close()


class ArcInput:
    """One partition of an arc as input of a reader; buffers revisions not yet processed.

    Args:
        view: The progress that this process knows.
        codec: Codec of the arc.
        partition: The partition.
        done: The last epoch that an earlier attempt processed.
        resume: Offset to read from.
        watch: Called with everything that is read, as records and as revisions.
        foreign: Notes records that are no revisions of the arc.
    """

    floor = NOTHING_YET
    """The first epoch that it can tell; a `BoundInput` may have begun too late for earlier ones."""

    def __init__(
        self,
        view: View,
        codec: ArcCodec,
        partition: int,
        *,
        done: int,
        resume: int,
        watch: Callable[[Records, pl.DataFrame], None] | None = None,
        foreign: ForeignRecords | None = None,
    ) -> None:
        self.view, self.codec, self.done, self.watch = view, codec, done, watch
        self.foreign = foreign
        self.place = TopicPartition(codec.topic, partition)
        self.cursor = codec.cursor(view.cluster, self.place, resume)
        self.pending: list[pl.DataFrame] = []
        self._repeats = view.plan.topology.is_written_by_job(codec.arc.name)
        self._reached = NOTHING_YET
        self._goal: tuple[int, int] | None = None

    def poll(self, *, limit: int = 100_000) -> int:
        """Read the records that have arrived; return their number."""
        buffered = sum(frame.height for frame in self.pending)
        if buffered >= limit and self._goal is None:
            return 0  # back-pressure: complete epochs are processed first
        count, known = 0, 0 if self._goal is None else self._goal[1]
        for records, frame, *_ in self.cursor.poll(limit=limit, known=known):
            count += len(records)
            self._note_foreign(records, frame)
            if self.watch is not None:
                self.watch(records, frame)
            frame = self._possible(by_column.kept(frame, frame["epoch"] > self.done))
            if frame.height:
                self.pending.append(frame)
        return count

    def _possible(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Drop what no report will ever cover: it would be held, and read again, for ever.

        Tasks of an older version of the plan have reported before this reader began.
        """
        view = self.view
        writers = view.writers(self.codec.arc.name, self.place.partition)
        foreign = [
            task
            for task in by_column.distinct(frame["task"])
            if task not in writers and not view.of(task).committed
        ]
        possible = (frame["attempt"] < COUNTED) & (frame["epoch"] < COUNTED)
        if foreign:
            possible &= ~frame["task"].is_in(foreign)
        return by_column.kept(frame, possible)

    def _note_foreign(self, records: Records, frame: pl.DataFrame) -> None:
        """Note records that have a value, and are no revisions of the arc."""
        count = len(records) - records.values.count(None) - frame.height
        if self.foreign is None or count <= 0:
            return
        known, pairs = set(frame["offset"]), zip(records.offsets, records.values, strict=True)
        last = max(offset for offset, value in pairs if value is not None and offset not in known)
        self.foreign.add(
            self.place, last, f"no revision of arc {self.codec.arc.name!r}", count=count
        )

    def frontier(self) -> int:
        """Return the last complete epoch: all writers have passed it, and it is read to their ends.

        The reports are consulted again only once the reader has reached the ends that they gave, so
        that a busy arc can't outrun its reader.
        """
        arc, partition = self.codec.arc.name, self.place.partition
        if self._goal is None:
            self._goal = self.view.complete(arc, partition)
        elif self.cursor.position < self._goal[1]:
            now = self.view.complete(arc, partition)
            if now[1] < self._goal[1]:  # the brokers have lost records: the log may end before
                self._goal = now
        epoch, end = self._goal
        if self.cursor.position >= end:
            self._reached, self._goal = max(self._reached, epoch), None
        return max(self._reached, self.done)

    def epochs(self, upto: int) -> list[int]:
        """Return the epochs up to `upto` that have records, oldest first."""
        epochs: set[int] = set()
        for frame in self.pending:
            epochs.update(by_column.distinct(frame["epoch"]))
        return sorted(epoch for epoch in epochs if epoch <= upto)

    def take(self, upto: int) -> pl.DataFrame:
        """Return the covered revisions of the epochs up to `upto`; exact copies are dropped.

        Copies come from rewritten shadowed records, which the brokers may have lost since, and from
        a job on Spark that reruns a task.
        """
        pending = pl.concat(self.pending) if self.pending else self.codec.empty
        covered = self.view.covered(pending)
        taken = by_column.kept(covered, covered["epoch"] <= upto)
        has_copies = covered.height < pending.height or self._repeats
        if has_copies or self.view.rebuilt(self.codec.arc.name, self.place.partition) >= 0:
            content = [name for name in taken.columns if name != "offset"]
            taken = taken.unique(subset=content, keep="first", maintain_order=True)
        return taken

    def drop(self, done: int) -> int:
        """Forget epochs up to `done`; return the offset at which a new attempt must resume.

        It is not beyond the last committed record: if the brokers lose the end of its transaction,
        the next record gets that offset.
        """
        self.done = done
        left = [by_column.kept(frame, frame["epoch"] > done) for frame in self.pending]
        self.pending = [frame for frame in left if frame.height]
        oldest = [cast(int, frame["offset"].min()) for frame in self.pending]
        _, end = self.view.complete(self.codec.arc.name, self.place.partition)
        return min([*oldest, self.cursor.position, end])

    def close(self) -> None:
        """Stop reading."""
        self.cursor.close()
