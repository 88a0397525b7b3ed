"""One connection through which many readers of a process read, each its own partitions.

A consumer of librdkafka has threads and buffers of its own: a process that follows thousands of
partitions side by side reads all of them with one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from errata.topics.cluster import Cluster, LostOffsetError, Reader, Records, TopicPartition

MOST_WAITING = 100_000
"""Records of a partition that are kept for a reader that does not take them."""


class SharedReads:
    """Reads the partitions of many readers over one connection.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._reader: Reader | None = None
        self._readers: dict[TopicPartition, PartReader] = {}
        self._paused: dict[TopicPartition, int] = {}
        """Partitions that are not read, since their reader is slow: where to go on."""

    def sharing(self) -> Cluster:
        """Return the cluster, with readers that share one connection.

        At most one of them may read a partition.
        """
        return cast(Cluster, _Sharing(self.cluster, self))

    def fetch(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> None:
        """Read what has arrived for any of the readers; waits only if there is nothing."""
        if self._reader is None:
            return
        try:
            for records in self._reader.poll(limit=limit, timeout_s=timeout_s):
                if records.source in self._readers:
                    self._keep(records)
        except LostOffsetError as error:
            if error.source not in self._readers:
                raise
            self._readers[error.source].lost = error
            self._reader.remove(error.source)

    def _keep(self, records: Records) -> None:
        """Keep records for their reader; of a slow one's partition no more are read."""
        place, reader = records.source, self._readers[records.source]
        reader.arrived[place].append(records)
        if sum(map(len, reader.arrived[place])) >= MOST_WAITING and self._reader is not None:
            self._paused[place] = self._reader.position(place)
            self._reader.remove(place)

    def taken(self, place: TopicPartition) -> None:
        """Go on with a partition whose records have been taken."""
        if place in self._paused and self._reader is not None:
            self._reader.add(place, self._paused.pop(place))

    @property
    def waiting(self) -> set[TopicPartition]:
        """The partitions of which something was read that their reader has not taken."""
        return {place for place, reader in self._readers.items() if reader.arrived[place]}

    def position(self, place: TopicPartition) -> int:
        """Return up to which offset a partition was read, whether taken or not."""
        assert self._reader is not None
        if place in self._paused:
            return self._paused[place]
        return self._reader.position(place)

    def add(self, reader: PartReader, place: TopicPartition, offset: int) -> None:
        """Read a partition for a reader."""
        if self._reader is None:
            self._reader = self.cluster.reader({place: offset})
        else:
            self._reader.add(place, offset)
        self._readers[place] = reader

    def remove(self, place: TopicPartition) -> None:
        """Stop reading a partition; safe to call twice."""
        was_read = self._readers.pop(place, None) is not None
        if self._paused.pop(place, None) is None and was_read and self._reader is not None:
            self._reader.remove(place)

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        if self._reader is not None:
            self._reader.close()


class PartReader:
    """A `Reader` of some partitions over a shared connection.

    Args:
        shared: The connection.
        positions: The offset of each partition.
    """

    def __init__(self, shared: SharedReads, positions: Mapping[TopicPartition, int]) -> None:
        self._shared = shared
        self.arrived: dict[TopicPartition, deque[Records]] = {}
        self.lost: LostOffsetError | None = None
        for place, offset in positions.items():
            self.add(place, offset)

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return the records that have arrived; fetches only if none of them are left."""
        if self.lost is not None:
            raise self.lost
        if not any(self.arrived.values()):
            self._shared.fetch(limit=limit, timeout_s=timeout_s)
        taken: list[Records] = []
        for place, waiting in self.arrived.items():
            while waiting and limit > 0:
                taken.append(waiting.popleft())
                limit -= len(taken[-1])
            if not waiting:
                self._shared.taken(place)
        return taken

    def position(self, source: TopicPartition) -> int:
        """The offset up to which this reader has read."""
        waiting = self.arrived[source]
        return waiting[0].offsets[0] if waiting else self._shared.position(source)

    def add(self, source: TopicPartition, offset: int) -> None:
        """Read another partition too, from this offset."""
        self.arrived[source], self.lost = deque(), None
        self._shared.add(self, source, offset)

    def remove(self, source: TopicPartition) -> None:
        """Stop reading a partition."""
        self.arrived.pop(source, None)
        self._shared.remove(source)

    def close(self) -> None:
        """Stop reading; the connection stays."""
        for source in list(self.arrived):
            self.remove(source)


class _Sharing:
    """A cluster whose readers share a connection; all else is the cluster's own."""

    def __init__(self, cluster: Cluster, shared: SharedReads) -> None:
        self._cluster, self._shared = cluster, shared

    def reader(self, positions: Mapping[TopicPartition, int]) -> PartReader:
        return PartReader(self._shared, positions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
