"""Reads and writes an arc's topic: revisions are frames in memory, framed Avro on the wire.

All readers of a partition in one process share its fetches (`Feed`). A task and the sweepers beside
it, or the boxes of several scopes, read the same records at about the same time. Each has a cursor,
and records are kept until all cursors have passed them. A cursor that is elsewhere in the log, or
too slow, reads by itself until it has caught up with the others.

If the brokers lose the end of a log, a reader learns of it by its position, at its next fetch. A
feed that begins later does not: the log may have grown beyond that position again. So no cursor
changes to a feed that is younger than its own.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import NamedTuple, cast

import numpy as np
import polars as pl

from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import COUNTED
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.avro import RevisionCodec, key_schema
from errata.schemas.encode import Encoder
from errata.topics.cluster import Cluster, LostOffsetError, Records, TopicPartition
from errata.topics.registry import Registry

CHECKED_S = 1.0
"""How often the end of a log is looked up again while it is read."""
MOST_ROWS = 300_000
"""Most records that are kept for a slow cursor."""


class Chunk(NamedTuple):
    """Records fetched together, and their decoded frame (with their ``offset``)."""

    records: Records
    frame: pl.DataFrame

    @property
    def last(self) -> int:
        """Offset of the last record."""
        return self.records.offsets[-1]

    def since(self, offset: int) -> Chunk:
        """Return the records from an offset on."""
        r, start = self.records, bisect_left(self.records.offsets, offset)
        if not start:
            return self
        rest = Records(
            r.source, r.offsets[start:], r.keys[start:], r.values[start:], r.times_ms[start:]
        )
        return Chunk(rest, self.frame.filter(pl.col("offset") >= offset))


_NUMBERS = itertools.count()


class Feed:
    """A reader, and the records it has read that some cursor has not passed.

    Args:
        cluster: Holds the topic.
        place: The partition.
        start: Offset to begin at.
    """

    def __init__(self, cluster: Cluster, place: TopicPartition, start: int) -> None:
        self.place, self.start, self.number = place, start, next(_NUMBERS)
        self.reader = cluster.reader({place: start})
        self.chunks: deque[Chunk] = deque()
        self.cursors: list[Cursor] = []
        self.lost: LostOffsetError | None = None

    @property
    def end(self) -> int:
        """The offset up to which it has read."""
        return self.reader.position(self.place)

    @property
    def is_alive(self) -> bool:
        """Whether it has a cursor and its offset is not lost."""
        return self.lost is None and bool(self.cursors)

    def covers(self, offset: int) -> bool:
        """Whether all records from an offset on are buffered here or will be read."""
        return self.is_alive and self.start <= offset <= self.end

    def passed_by(self, offset: int) -> bool:
        """Whether no records from an offset on are buffered."""
        return not self.chunks or self.chunks[-1].last < offset

    def read(self, limit: int, decode: Callable[[Records], pl.DataFrame]) -> None:
        """Read what has arrived, at most about `limit` records.

        Raises:
            LostOffsetError: If the log no longer has the next records; every later call raises too.
        """
        if self.lost is None:
            try:
                self.chunks += [Chunk(r, decode(r)) for r in self.reader.poll(limit=limit)]
            except LostOffsetError as error:
                self.lost = error
        if self.lost is not None:
            raise self.lost

    def trim(self) -> None:
        """Drop records that all cursors have passed; past `MOST_ROWS` the slowest cursor leaves."""
        while self.cursors:
            slowest = min(self.cursors, key=lambda cursor: cursor.position)
            while self.chunks and self.chunks[0].last < slowest.position:
                self.chunks.popleft()
            self.start = slowest.position
            if sum(len(chunk.records) for chunk in self.chunks) <= MOST_ROWS:
                return
            slowest.leave()

    def release(self, cursor: Cursor) -> None:
        """Remove a cursor; with the last one, close the reader."""
        if cursor in self.cursors:
            self.cursors.remove(cursor)
        if not self.cursors:
            self.reader.close()


class Feeds:
    """The readers of one partition of an arc in a process: usually one.

    Args:
        cluster: Holds the topic.
        place: The partition.
        decode: Decodes records into a frame, with their ``offset``.
    """

    def __init__(
        self, cluster: Cluster, place: TopicPartition, decode: Callable[[Records], pl.DataFrame]
    ) -> None:
        self.cluster, self.place, self.decode = cluster, place, decode
        self.main: Feed | None = None

    def at(self, offset: int) -> Feed:
        """Return a feed to read from an offset on: the shared one if it covers that offset."""
        main = self.main
        if main is not None and main.covers(offset):
            return main
        feed = Feed(self.cluster, self.place, offset)
        if main is None or not main.is_alive:
            self.main = feed
        return feed


class Cursor:
    """The position of one reader in the process.

    Args:
        feeds: The feeds of the partition.
        position: The offset to begin at; then the offset up to which it has read, past control and
            aborted records.
    """

    def __init__(self, feeds: Feeds, position: int) -> None:
        self.feeds, self.position = feeds, position
        self.feed = self._moved(feeds.at(position))

    def poll(self, *, limit: int) -> list[Chunk]:
        """Return the chunks that have arrived since the last call, about `limit` records at most.

        Raises:
            LostOffsetError: If the log no longer has the next records.
        """
        main = self.feeds.main
        if main is not None and main.number < self.feed.number and main.covers(self.position):
            self.close()
            self.feed = self._moved(main)
        feed, chunks = self.feed, list[Chunk]()
        if feed.passed_by(self.position):
            feed.read(limit, self.feeds.decode)
        for chunk in feed.chunks:
            if chunk.last >= self.position and sum(len(c.records) for c in chunks) < limit:
                chunks.append(chunk.since(self.position))
                self.position = chunk.last + 1
        if feed.passed_by(self.position):
            self.position = feed.end
        feed.trim()
        return chunks

    def leave(self) -> None:
        """Read through a feed of its own from now on."""
        self.close()
        self.feed = self._moved(Feed(self.feeds.cluster, self.feeds.place, self.position))

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        self.feed.release(self)

    def _moved(self, feed: Feed) -> Feed:
        feed.cursors.append(self)
        return feed


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
            present = [i for i, value in enumerate(values) if value is not None]
            values, offsets = [values[i] for i in present], offsets.gather(present)
        if not values:
            return self.empty
        unframed = framing.unframe(values)  # type: ignore[arg-type]
        bodies: Sequence[bytes] = unframed.bodies
        if unframed.only_id != self._value_id:
            indexes = np.flatnonzero(unframed.schema_ids == self._value_id)
            bodies, offsets = [bodies[i] for i in indexes.tolist()], offsets.gather(indexes)
        decoded = self._values.decode_each(bodies)
        frame = decoded.frame.with_columns(offsets.gather(decoded.good).alias("offset"))
        return frame.select(self.empty.columns)


def history(
    cluster: Cluster, codec: ArcCodec, place: TopicPartition, offset: int
) -> Generator[bool, None, pl.DataFrame]:
    """Read a partition from an offset to its current end; returns all visible revisions."""
    parts = [codec.empty]
    for records in read_to_end(cluster, place, offset):
        if records is None:
            yield False
        else:
            parts.append(codec.decode(records))
    return pl.concat(parts)


def read_to_end(cluster: Cluster, place: TopicPartition, offset: int) -> Iterator[Records | None]:
    """Yield the records of a partition from an offset to its current end; None between polls.

    Records that nobody needs any more may be deleted before, or meanwhile; they are left out.
    """
    end, checked_s = cluster.end(place), monotonic()
    while offset < end:
        reader = cluster.reader({place: offset})
        try:
            while (offset := reader.position(place)) < end:
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
        self._repeats = codec.arc.name in view.plan.topology.spark
        self._reached = NOTHING_YET
        self._goal: tuple[int, int] | None = None

    def poll(self, *, limit: int = 100_000) -> int:
        """Read the records that have arrived; return their number."""
        buffered = sum(frame.height for frame in self.pending)
        if buffered >= limit and self._goal is None:
            return 0  # back-pressure: complete epochs are processed first
        count = 0
        for records, frame in self.cursor.poll(limit=limit):
            count += len(records)
            self._note_foreign(records, frame)
            if self.watch is not None:
                self.watch(records, frame)
            frame = self._possible(frame.filter(pl.col("epoch") > self.done))
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
            for task in frame["task"].unique().to_list()
            if task not in writers and not view.of(task).committed
        ]
        uncounted = pl.max_horizontal("attempt", "epoch") >= COUNTED
        return frame.filter(~(pl.col("task").is_in(foreign) | uncounted))

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
            epochs.update(frame["epoch"].unique().to_list())
        return sorted(epoch for epoch in epochs if epoch <= upto)

    def take(self, upto: int) -> pl.DataFrame:
        """Return the covered revisions of the epochs up to `upto`; exact copies are dropped.

        Copies come from rewritten shadowed records, which the brokers may have lost since, and from
        a job on Spark that reruns a task.
        """
        pending = pl.concat(self.pending) if self.pending else self.codec.empty
        covered = self.view.covered(pending)
        taken = covered.filter(pl.col("epoch") <= upto)
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
        left = [frame.filter(pl.col("epoch") > done) for frame in self.pending]
        self.pending = [frame for frame in left if frame.height]
        oldest = [cast(int, frame["offset"].min()) for frame in self.pending]
        _, end = self.view.complete(self.codec.arc.name, self.place.partition)
        return min([*oldest, self.cursor.position, end])

    def close(self) -> None:
        """Stop reading."""
        self.cursor.close()
