"""Readers of one partition of an arc in a process share its fetches, and take what it writes.

All readers of a partition in one process share its fetches (`Feed`). A task and the sweepers beside
it, or the boxes of several scopes, read the same records at about the same time. Each has a cursor,
and records are kept until all cursors have passed them. A cursor that is elsewhere in the log, or
too slow, reads by itself until it has caught up with the others.

A task hands the records that it has committed to the readers of its process (`Handover`): they take
the very columns, and fetch and decode nothing. Readers that are not there yet read what comes
before. They also read where nothing is handed over any more, or where other processes have written.

If the brokers lose the end of a log, a reader learns of it by its position, at its next fetch. A
feed that begins later does not: the log may have grown beyond that position again. So no cursor
changes to a feed that is younger than its own.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import count as numbers
from itertools import takewhile
from operator import attrgetter
from time import monotonic
from typing import NamedTuple

import polars as pl

from errata.topics.cluster import Cluster, LostOffsetError, Records, TopicPartition

MOST_ROWS = 300_000
"""Most records that are kept for a slow cursor, and most that are handed over ahead of all."""
HANDED_S = 1.0
"""How long after records were handed over the next ones are expected to be handed over, too."""
UNCERTAIN_S = 5.0
"""How long records that were handed over wait until it is certain what comes before them. To read
would take as long: the transactions that they wait for hide all that follows."""


class Chunk(NamedTuple):
    """Records fetched or handed over together.

    Args:
        records: The records.
        frame: Their decoded frame, with their ``offset``.
        writer: The task that has handed them over.
        before: Up to this offset records may have been written that were not handed over.
        is_certain: Returns whether all that counts from there on, and comes before these, was
            handed over. None if that can't be known.
    """

    records: Records
    frame: pl.DataFrame
    writer: str = ""
    before: int = 0
    is_certain: Callable[[], bool] | None = None

    @property
    def first(self) -> int:
        """Offset of the first record."""
        return self.records.offsets[0]

    @property
    def last(self) -> int:
        """Offset of the last record."""
        return self.records.offsets[-1]

    def since(self, offset: int) -> Chunk:
        """Return the records from an offset on."""
        if self.first >= offset:
            return self
        frame = self.frame.filter(pl.col("offset") >= offset)
        return self._replace(records=self.records.since(offset), frame=frame)

    def is_next(self, chunk: Chunk) -> bool:
        """Return whether no record is between its last one and a chunk that was handed over.

        The end of a transaction takes an offset, too, and comes before the next one of its writer.
        """
        gap = chunk.first - self.last - 1
        return gap == 0 or (gap == 1 and self.writer == chunk.writer)


_NUMBERS = numbers()


class Feed:
    """A reader, and the records it has read that some cursor has not passed.

    Args:
        cluster: Holds the topic.
        place: The partition.
        start: Offset to begin at.
    """

    def __init__(self, cluster: Cluster, place: TopicPartition, start: int) -> None:
        self.cluster, self.place = cluster, place
        self.start, self.number = start, next(_NUMBERS)
        self.reader = cluster.reader({place: start})
        self.chunks: deque[Chunk] = deque()
        self._rows = 0
        """How many records the chunks have."""
        self.cursors: list[Cursor] = []
        self.lost: LostOffsetError | None = None
        self._reads, self._handed_s = True, 0.0
        self._handed: Chunk | None = None
        """The last records that were handed over, until something is read after them."""
        self._ahead: list[Chunk] = []
        """Records that were handed over before it was known what comes before them, by offset."""
        self._has_all, self._missed_to = False, 0
        """Whether it gets all that is handed over, and the offset from which on it has got all."""

    @property
    def end(self) -> int:
        """The offset up to which it has read, or was handed records."""
        read_to = self.reader.position(self.place) if self._reads else 0
        return read_to if self._handed is None else max(read_to, self._handed.last + 1)

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

    def read(
        self, limit: int, decode: Callable[[Records], pl.DataFrame], *, known: int = 0
    ) -> None:
        """Read what has arrived, at most about `limit` records.

        Args:
            limit: Number of records.
            decode: Decodes them.
            known: It is known that there are records before this offset.

        Raises:
            LostOffsetError: If the log no longer has the next records; every later call raises too.
        """
        if self.lost is None:
            try:
                self._take_ahead()
                self._add([Chunk(r, decode(r)) for r in self._read(limit, known) if len(r)])
                self._take_ahead()
            except LostOffsetError as error:
                self.lost = error
        if self.lost is not None:
            raise self.lost

    def _read(self, limit: int, known: int) -> Iterator[Records]:
        """Yield the records that have arrived, unless the next ones are to be handed over.

        After records that were handed over the last one of them is read again. If there is another
        one, the brokers have lost it. It may be gone meanwhile, by compaction or retention. What
        was handed over ahead is not yielded.
        """
        if not self._reads:
            assert self._handed is not None
            waits = self._ahead[0].is_certain is not None if self._ahead else self.end >= known
            limit_s = UNCERTAIN_S if self._ahead else HANDED_S
            if waits and self._is_complete and monotonic() < self._handed_s + limit_s:
                return
            self.reader.add(self.place, self._handed.last)
            self._reads = True
        for records in self._poll(limit):
            last, self._handed = self._handed, None
            if last is not None:
                is_there = records.offsets[0] == last.last
                if is_there and records.values[0] != last.records.values[-1]:
                    raise LostOffsetError(self.place, last.last + 1)
                records = records.since(last.last + 1)
            yield records.before(self._ahead[0].first) if self._ahead else records

    def _poll(self, limit: int) -> list[Records]:
        try:
            return self.reader.poll(limit=limit)
        except LostOffsetError:
            if self._handed is None:
                raise
            start = self.cluster.offset_at(self.place, 0)
            if start <= self._handed.last:
                raise
            self._handed = None
            self.reader.remove(self.place)
            self.reader.add(self.place, start)
            return []

    def expects(self, offset: int) -> bool:
        """Return whether records that were just committed from this offset on are still to come."""
        if any(chunk.first <= offset <= chunk.last for chunk in self._ahead):
            self.miss()  # the brokers have lost them
        if offset >= self.end:
            return True
        if not self._reads:
            self.miss()
        return False

    def miss(self) -> None:
        """Note that something may not have been handed over: what comes next is read."""
        self._ahead.clear()
        self._has_all, self._missed_to = False, max(self._missed_to, self.end + 1)

    def hand(self, chunk: Chunk) -> None:
        """Keep records that it expects for the next `read`.

        They are not taken before: of their transaction more may be handed over.
        """
        if not self._has_all:
            self._has_all, self._missed_to = True, max(self._missed_to, chunk.before)
        insort(self._ahead, chunk, key=attrgetter("first"))
        while sum(len(ahead.records) for ahead in self._ahead) > MOST_ROWS:
            self._ahead.pop(0)
            self._has_all = False

    def _take_ahead(self) -> None:
        """Take the records that were handed over ahead, up to where others are missing."""
        while self._ahead and self._is_next(self._ahead[0]):
            chunk = self._ahead.pop(0)
            if self._reads:
                self.reader.remove(self.place)
            self._add([chunk])
            self._reads, self._handed, self._handed_s = False, chunk, monotonic()

    @property
    def _is_complete(self) -> bool:
        """Whether all that follows what it has taken is handed over to it."""
        return self._has_all and self.end >= self._missed_to

    def _is_next(self, chunk: Chunk) -> bool:
        if chunk.first <= self.end:
            return True
        if self._handed is None:
            return False
        is_certain = self._is_complete and chunk.is_certain is not None and chunk.is_certain()
        return is_certain or self._handed.is_next(chunk)

    def _add(self, chunks: Collection[Chunk]) -> None:
        self.chunks += chunks
        self._rows += sum(len(chunk.records) for chunk in chunks)

    def since(self, offset: int) -> list[Chunk]:
        """Return the chunks that have records from an offset on."""
        return [*takewhile(lambda chunk: chunk.last >= offset, reversed(self.chunks))][::-1]

    def trim(self) -> None:
        """Drop records that all cursors have passed; past `MOST_ROWS` the slowest cursor leaves."""
        while self.cursors:
            slowest = min(self.cursors, key=lambda cursor: cursor.position)
            while self.chunks and self.chunks[0].last < slowest.position:
                self._rows -= len(self.chunks.popleft().records)
            self.start = slowest.position
            if self._rows <= MOST_ROWS:
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

    def expects(self, offset: int) -> bool:
        """Return whether there are readers that still expect records from this offset on."""
        return self.main is not None and self.main.is_alive and self.main.expects(offset)

    def hand(self, chunk: Chunk) -> None:
        """Hand records to the readers, which must expect them."""
        assert self.main is not None
        self.main.hand(chunk)

    def miss(self) -> None:
        """Note that something may not be handed over: it is read."""
        if self.main is not None:
            self.main.miss()


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

    def poll(self, *, limit: int, known: int = 0) -> list[Chunk]:
        """Return the chunks that have arrived since the last call, about `limit` records at most.

        Args:
            limit: Number of records.
            known: It is known that there are records before this offset.

        Raises:
            LostOffsetError: If the log no longer has the next records.
        """
        main = self.feeds.main
        if main is not None and main.number < self.feed.number and main.covers(self.position):
            self.close()
            self.feed = self._moved(main)
        feed, chunks, count = self.feed, list[Chunk](), 0
        if feed.passed_by(self.position):
            feed.read(limit, self.feeds.decode, known=known)
        for chunk in feed.since(self.position):
            if count < limit:
                chunks.append(chunk.since(self.position))
                count += len(chunks[-1].records)
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
