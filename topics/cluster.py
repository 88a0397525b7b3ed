"""The interface that tasks and sweepers need of a cluster, be it Kafka or in memory.

The task loop depends on these protocols alone. `topics.kafka` connects to a broker; `topics.memory`
keeps logs in memory with the same rules (transactions, fencing, the last stable offset,
compaction), for `errata local` and for tests that kill actors between any two steps. Both refuse
records that are too large; a partition of either is read to its end by `catch_up`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, Protocol

from errata.schemas.errors import ErrataError

LOGGER = logging.getLogger("errata.kafka")
"""Of the clients of a cluster."""
LOGGER.addHandler(logging.NullHandler())  # else librdkafka's lines reach the user's terminal
LOGGER.propagate = False


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Records:
    """Records of one topic partition in log order, as columns of the same length.

    A tombstone is a value of None. Times are the broker's record timestamps in ms.
    """

    source: TopicPartition
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    times_ms: Sequence[int]

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self) -> Records:
        """Return the first record alone."""
        return self[:1]

    def since(self, offset: int) -> Records:
        """Return the records from an offset on."""
        return self[bisect_left(self.offsets, offset) :]

    def before(self, offset: int) -> Records:
        """Return the records before an offset."""
        return self[: bisect_left(self.offsets, offset)]

    def __getitem__(self, rows: slice) -> Records:
        columns = self.offsets, self.keys, self.values, self.times_ms
        return Records(self.source, *(column[rows] for column in columns))  # type: ignore[arg-type]


class FencedError(ErrataError):
    """A newer attempt of the same task has started; this one must end without writing more."""


class DoubtfulCommitError(ErrataError):
    """The outcome of a transaction is unknown, or it failed: start a new attempt."""

    restart_helps = True


class ClusterError(ErrataError):
    """The cluster can't be used: unreachable, refused, or a topic is missing or unsuitable."""

    restart_helps = True


class SilentClusterError(ClusterError):
    """No broker answers."""


class MissingTopicError(ClusterError):
    """A topic, or one of its partitions, does not exist: not created yet, or deleted."""


class MovingLeaderError(ClusterError):
    """A partition has no leader at the moment: it was just created, or a broker went down.

    Attributes:
        places: The partitions, if it is known which ones.
    """

    def __init__(self, text: str, places: Collection[TopicPartition] = ()) -> None:
        self.places = tuple(places)
        super().__init__(text)


class LostOffsetError(ClusterError):
    """A log does not have the requested offset: it starts later, or it ends before."""

    def __init__(self, source: TopicPartition, offset: int) -> None:
        self.source, self.offset = source, offset
        super().__init__(
            f"partition {source.partition} of topic '{source.topic}' has to be read from offset "
            f"{offset}, but its log does not have it: records were deleted before they were read, "
            "the brokers lost records, or the topic was created again; rebuild the reader, and "
            "keep records longer"
        )


class Reader(Protocol):
    """Reads some partitions from given offsets: committed records only, no consumer group."""

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return the records that have arrived, at most about `limit`; [] if there are none."""

    def position(self, source: TopicPartition) -> int:
        """The offset up to which this reader has read, including control and aborted records."""

    def add(self, source: TopicPartition, offset: int) -> None:
        """Read another partition too, from this offset (0: the start of the log)."""

    def remove(self, source: TopicPartition) -> None:
        """Stop reading a partition; what has arrived and was not returned is dropped."""

    def close(self) -> None:
        """Close the connection; safe to call twice."""


class Transactions(Protocol):
    """A transactional producer of one task; one instance is one attempt.

    Any error makes it unusable: create a new one, which fences this one.
    """

    def begin(self) -> None:
        """Open a transaction."""

    def produce(
        self,
        topic: str,
        *,
        partitions: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Queue records; the three sequences have the same length. Blocks under back-pressure."""

    def flush(self) -> dict[TopicPartition, range]:
        """Wait for all queued records; return per partition the offsets of its own ones.

        Covers the records since the last flush or begin, from the first to the last; records of
        others may lie between.

        Raises:
            DoubtfulCommitError: If a record was not acknowledged or has no offset.
            FencedError: If a newer attempt has started.
        """

    def offsets(
        self, group: str, positions: Mapping[TopicPartition, int], *, note: str = ""
    ) -> None:
        """Add a group's positions to the transaction, for Kafka's own tools; see `Cluster.note`.

        Args:
            group: The group.
            positions: The offset of each input partition.
            note: Text that is committed with them.
        """

    def commit(self) -> None:
        """Commit; return only when the outcome is certain.

        Raises:
            DoubtfulCommitError: If it is not certain, or the transaction was aborted.
            FencedError: If a newer attempt has started.
        """

    def close(self) -> None:
        """Close the connection and abort an open transaction; safe to call twice."""


class Cluster(Protocol):
    """A cluster as an actor sees it."""

    def reader(self, positions: Mapping[TopicPartition, int]) -> Reader:
        """Return a reader of these partitions from these offsets on."""

    def transactions(self, transactional_id: str) -> Transactions:
        """Return a new attempt's transactional producer; fences older ones (init_transactions)."""

    def send(self, topic: str, *, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Send one record outside any transaction (requests and replies); it is flushed soon."""

    def flush(self) -> None:
        """Wait until all records sent outside transactions can be read."""

    def end(self, source: TopicPartition) -> int:
        """Return the log's end: the offset after the last record, committed or not."""

    def ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of several logs in one request; see `end`."""

    def stable_ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return up to where several logs can be read: to their first open transaction."""

    def offset_at(self, source: TopicPartition, time_ms: int) -> int:
        """Return the offset of the first record with this record timestamp or a later one.

        Returns the log's end if there is none.
        """

    def delete_before(self, source: TopicPartition, offset: int) -> None:
        """Delete a partition's records before an offset, which is at most the log's end.

        Raises:
            ClusterError: If the cluster refuses, or the topic's settings don't allow it.
        """

    def note(self, group: str, places: Collection[TopicPartition]) -> str:
        """Return the note of a group's last committed positions of these partitions; "" if none.

        Raises:
            ClusterError: If the group's coordinator does not answer, or refuses.
        """

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has.

        Raises:
            ClusterError: If there is no such topic.
        """

    def close(self) -> None:
        """Close the connections that the cluster itself opened; safe to call twice."""


LARGEST = 1_000_000
"""Default limit of a record's key and value in bytes: below the brokers' own default."""


class RecordTooLargeError(ErrataError):
    """A record is larger than the cluster accepts; none of its batch was produced.

    Attributes:
        topic: The topic that it was for.
        index: Its index in the batch.
    """

    def __init__(self, topic: str, *, index: int, size: int, limit: int) -> None:
        self.topic, self.index, self.size, self.limit = topic, index, size, limit
        super().__init__(
            f"record {index} of a batch for topic '{topic}' has {size} bytes, but at most {limit} "
            "are accepted; make it smaller, or raise message.max.bytes of the client and "
            "max.message.bytes of the topic"
        )


def check_sizes(
    topic: str,
    *,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    limit: int = LARGEST,
) -> None:
    """Raise for the first record whose key and value together exceed `limit` bytes.

    Raises:
        RecordTooLargeError: If there is one.
    """
    largest = sum(max(map(len, filter(None, side)), default=0) for side in (keys, values))
    if largest <= limit:
        return
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        size = len(key or b"") + len(value or b"")
        if size > limit:
            raise RecordTooLargeError(topic, index=index, size=size, limit=limit)


def catch_up(
    cluster: Cluster, reader: Reader, *sources: TopicPartition, limit_s: float = 30.0
) -> Iterator[Records]:
    """Yield records until the reader has passed the current ends of some logs.

    Control and aborted records take offsets without being returned, so the reader's position
    decides, not the last record. Records of the reader's other partitions are yielded too.

    Args:
        cluster: Returns the logs' ends.
        reader: Reads the partitions, perhaps others.
        sources: The partitions.
        limit_s: How long to wait while an open transaction of another writer holds an end back.

    Raises:
        ClusterError: If an end is not reached in time.
    """
    ends, deadline = cluster.ends(sources), monotonic() + limit_s

    def behind() -> TopicPartition | None:
        return next((each for each in sources if reader.position(each) < ends[each]), None)

    while behind() is not None:
        yield from reader.poll(timeout_s=0.1)
        if monotonic() > deadline and (source := behind()) is not None:
            raise ClusterError(
                f"partition {source.partition} of topic '{source.topic}' was read to offset "
                f"{reader.position(source)}, but its end {ends[source]} was not reached within "
                f"{limit_s:g} s; a transaction may be open: see kafka-transactions"
            )
