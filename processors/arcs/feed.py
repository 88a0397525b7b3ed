"""Fetches and decodes one partition of an arc once for all its readers in a process.

A task and the sweepers beside it, or the boxes of several scopes, read the same records at about
the same time. Each has a cursor, and records are kept until all cursors have passed them. A cursor
that is elsewhere in the log, or too slow, reads by itself until it has caught up with the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from errata.topics.cluster import Cluster, LostOffsetError, Records, TopicPartition

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


class Feed:
    """A reader, and the records it has read that some cursor has not passed.

    Args:
        cluster: Holds the topic.
        place: The partition.
        start: Offset to begin at.
    """

    def __init__(self, cluster: Cluster, place: TopicPartition, start: int) -> None:
        self.place, self.start = place, start
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
        if main is not None and main is not self.feed and main.covers(self.position):
            self.close()
            self.feed = self._moved(main)
        feed, found = self.feed, list[Chunk]()
        if feed.passed_by(self.position):
            feed.read(limit, self.feeds.decode)
        for chunk in feed.chunks:
            if chunk.last >= self.position and sum(len(c.records) for c in found) < limit:
                found.append(chunk.since(self.position))
                self.position = chunk.last + 1
        if feed.passed_by(self.position):
            self.position = feed.end
        feed.trim()
        return found

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
