"""Reads committed records of partitions from given offsets, without a consumer group.

The messages of a partition become columns as they arrive; timestamps are converted only on access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import filterfalse
from operator import itemgetter
from typing import Any, overload

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from errata.topics.client import Connection
from errata.topics.cluster import (
    LostOffsetError,
    MovingLeaderError,
    Records,
    SilentClusterError,
    TopicPartition,
)
from errata.topics.refused import READ, TOPIC, Right


class Columns:
    """The messages of one partition that have arrived so far."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.messages: list[Message] = []

    def add(self, messages: list[Message]) -> None:
        """Append the next messages."""
        self.offsets += map(Message.offset, messages)
        self.keys += map(Message.key, messages)
        self.values += map(Message.value, messages)
        self.messages += messages

    def records(self, source: TopicPartition) -> Records:
        """Return all of them as records."""
        return Records(source, self.offsets, self.keys, self.values, Times(self.messages))


class Times(Sequence[int]):
    """Timestamps in ms.

    Args:
        messages: The messages, in order.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        """Return the number of timestamps."""
        return len(self._messages)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the timestamps, in order."""
        return map(itemgetter(1), map(Message.timestamp, self._messages))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Times: ...
    def __getitem__(self, index: int | slice) -> int | Times:
        """Return one timestamp, or a slice."""
        if isinstance(index, slice):
            return Times(self._messages[index])
        return int(self._messages[index].timestamp()[1])


_DEFAULTS = {
    "group.id": "errata",  # required by the client, never used
    "fetch.wait.max.ms": 100,  # an added partition waits for the fetch in progress
    "fetch.queue.backoff.ms": 10,
    "socket.timeout.ms": 10_000,  # recover from a cut link sooner than after a minute
    "fetch.message.max.bytes": 8_000_000,  # fewer and larger responses while there is much to read
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 131_072,
}
_LAWS = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # never silently skip records that are gone
}

_CHUNK = 4_096  # messages processed while they are still in the processor's cache


class KafkaReader:
    """A `Reader` of a Kafka cluster.

    Its position moves past control and aborted records at the end-of-partition event, which comes
    at the last stable offset.
    """

    def __init__(self, connection: Connection, positions: Mapping[TopicPartition, int]) -> None:
        self._connection = connection
        self._positions: dict[tuple[str, int], int] = {}
        self._codes: dict[tuple[str, int], int] = {}
        self._sources: list[TopicPartition] = []
        self._next: list[Message] = []
        self._unreturned: list[Records] = []
        self._is_told = False
        self._consumer: Any = connection.client(Consumer, _DEFAULTS, _LAWS)
        for source, offset in positions.items():
            self.add(source, offset)

    def add(self, source: TopicPartition, offset: int) -> None:
        """Read another partition too, from this offset (0: the start of the log)."""
        self._consumer.incremental_assign([Position(*source, offset)])
        self._positions[source] = offset
        if source not in self._codes:
            self._codes[source] = len(self._sources)
            self._sources.append(source)

    def remove(self, source: TopicPartition) -> None:
        """Stop reading a partition; what has arrived and was not returned is dropped."""
        self._consumer.incremental_unassign([Position(*source)])
        self._next = [m for m in self._next if (m.topic(), m.partition()) != source]
        self._unreturned = [records for records in self._unreturned if records.source != source]
        self._is_told = bool(self._next) and self._is_told

    def position(self, source: TopicPartition) -> int:
        """The offset up to which this reader has read, including control and aborted records."""
        return self._positions[source]

    def known_end(self, source: TopicPartition) -> int | None:
        """Return a log's end as of the last fetch; None before the first. Makes no request.

        Also None once the reader is closed, since threads other than its task's may call this.
        """
        if self._consumer is None:
            return None
        _, end = self._consumer.get_watermark_offsets(Position(*source), cached=True)
        return end if end >= 0 else None

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return the records that have arrived, one `Records` for each partition.

        Waits only if there are none; reaching the end of a partition also ends the wait.

        Raises:
            LostOffsetError: If a log no longer has the position to read on from.
            ClusterError: If the cluster can't be read.
        """
        arrived: dict[int, Columns] = {}
        events = self._take(limit, arrived)
        if not arrived and not events and timeout_s:
            # consume() waits until it has as many as requested: request one
            events = self._take(1, arrived, timeout_s)
            events += self._take(limit - 1, arrived)
        self._connection.check()
        for code, columns in arrived.items():
            self._positions[self._sources[code]] = columns.offsets[-1] + 1
        self._unreturned += [
            columns.records(self._sources[code]) for code, columns in sorted(arrived.items())
        ]
        for event in events:  # if one raises, the next call returns what has arrived
            self._handle(event)
        found, self._unreturned = self._unreturned, []
        return found

    def has_more(self) -> bool:
        """Return whether something has arrived that neither `poll` nor this has returned yet.

        It takes microseconds; what it finds is kept for the next `poll`.
        """
        if self._is_told:
            return False
        self.wait(0.0)
        self._is_told = bool(self._next)
        return self._is_told

    def wait(self, limit_s: float) -> bool:
        """Wait until something arrives for the next `poll`; return False at once if it can't."""
        if self._next or self._consumer is None:
            return False
        self._next = self._consume(1, limit_s)
        return True

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _take(
        self, limit: int, arrived: dict[int, Columns], timeout_s: float = 0.0
    ) -> list[Message]:
        """Add the available messages to their partitions' columns; return the others."""
        events: list[Message] = []
        while limit > 0:
            chunk = min(limit, _CHUNK)
            messages = self._consume(chunk - len(self._next), timeout_s)
            if self._next:
                messages, self._next, self._is_told = self._next + messages, [], False
            limit = limit - chunk if len(messages) == chunk else 0
            reported = list(filter(Message.error, messages))
            if reported:
                events += reported
                messages = list(filterfalse(Message.error, messages))
            if messages:
                for code, part in self._split(messages):
                    arrived.setdefault(code, Columns()).add(part)
        return events

    def _consume(self, count: int, timeout_s: float) -> list[Message]:
        try:
            messages: list[Message] = self._consumer.consume(count, timeout_s)
        except KafkaException as error:
            raise self._connection.failure("a partition", error) from None
        return messages

    def _split(self, messages: list[Message]) -> Iterator[tuple[int, list[Message]]]:
        """Yield the messages of each partition, with the partition's code."""
        if len(self._sources) == 1:
            yield 0, messages
            return
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        codes = np.fromiter(map(self._codes.__getitem__, places), np.int64, len(messages))
        order = np.argsort(codes, kind="stable")
        present, starts = np.unique(codes[order], return_index=True)
        for code, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            yield code, list(map(messages.__getitem__, rows.tolist()))

    def _handle(self, event: Message) -> None:
        error = event.error()
        source = TopicPartition(event.topic() or "", event.partition() or 0)
        if error.code() == KafkaError._PARTITION_EOF:
            self._positions[source] = max(self._positions[source], event.offset())
        elif error.code() == KafkaError._LOG_TRUNCATION or (
            error.code() == KafkaError._AUTO_OFFSET_RESET and self._positions[source]
        ):
            raise LostOffsetError(source, self._positions[source])
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            # The log's start is requested only where it is not 0: the request takes half a second.
            self._consumer.incremental_unassign([Position(*source)])
            self._consumer.incremental_assign([Position(*source, OFFSET_BEGINNING)])
        elif not source.topic or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # the client looks up its group's coordinator, and never needs it
        elif not error.retriable():
            right = Right(READ, TOPIC, source.topic)
            what = f"topic '{source.topic}'"
            failure = self._connection.failure(what, KafkaException(error), right=right)
            if not isinstance(failure, MovingLeaderError | SilentClusterError):
                raise failure  # of those two the client tries again; `check` notices lost brokers
