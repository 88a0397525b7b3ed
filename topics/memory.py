"""A cluster in memory with Kafka's rules, for `errata local` and for tests that inject faults.

`memory_log.MemoryLog` is one partition; `MemoryTransactions` is the transactional producer of one
attempt of a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import eq

from errata.topics.cluster import (
    LARGEST,
    ClusterError,
    DoubtfulCommitError,
    FencedError,
    LostOffsetError,
    MissingTopicError,
    Records,
    TopicPartition,
    check_sizes,
)
from errata.topics.memory_log import MemoryLog, Transaction


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryCluster:
    """A `Cluster` in memory, for one thread: no call ever blocks.

    Records get offsets when produced. They are read once committed, in order, up to the first open
    transaction. The end of a transaction takes an offset in every partition that it wrote.

    Faults: an exception from `on_step` ends the actor at that step; `late_end_txn` simulates the
    broker fault of ``docs/protocol.md#11-faults``.

    Args:
        clock_ms: Returns the records' timestamps.
        on_step: Called with the step's name before each one of an actor: `begin`, `produce`,
            `flush`, `offsets`, `commit`, `send`, `poll`; also `committed`, when a commit has taken
            effect but is not yet known to the actor.

    Attributes:
        groups: Committed positions by group.
        notes: The notes that were committed with them.

    Example:
        >>> cluster = MemoryCluster()
        >>> cluster.create("tape.trades", 1)
        >>> source = TopicPartition("tape.trades", 0)
        >>> tape = cluster.transactions("ingest")
        >>> tape.begin()
        >>> tape.produce("tape.trades", partitions=[0], keys=[b"k"], values=[b"v"])
        >>> reader = cluster.reader({source: 0})
        >>> reader.poll()
        []
        >>> tape.commit()
        >>> [records.values for records in reader.poll()], reader.position(source)
        ([[b'v']], 2)
    """

    def __init__(
        self,
        *,
        clock_ms: Callable[[], int] = _now_ms,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self.clock_ms = clock_ms
        self.on_step = on_step
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.notes: dict[str, str] = {}
        self._logs: dict[str, list[MemoryLog]] = {}
        self._attempts: dict[str, MemoryTransactions] = {}
        self._late: set[str] = set()

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; does nothing if it exists with as many partitions.

        Raises:
            ClusterError: If it exists with another number of partitions.
        """
        logs = self._logs.setdefault(
            topic, [MemoryLog(TopicPartition(topic, p)) for p in range(partitions)]
        )
        if len(logs) != partitions:
            raise ClusterError(
                f"topic '{topic}' needs partitions {partitions}, but has {len(logs)}; "
                "choose another name"
            )

    def reader(self, positions: Mapping[TopicPartition, int]) -> MemoryReader:
        """Return a reader of these partitions, from these offsets."""
        return MemoryReader(self, positions)

    def transactions(self, transactional_id: str) -> MemoryTransactions:
        """Return a new attempt's transactional producer; aborts the older one's transaction."""
        older = self._attempts.get(transactional_id)
        if older is not None:
            older.close()
        attempt = self._attempts[transactional_id] = MemoryTransactions(self, transactional_id)
        return attempt

    def send(self, topic: str, *, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Append one record outside any transaction."""
        self.step("send")
        check_sizes(topic, keys=[key], values=[value])
        self.log(TopicPartition(topic, partition)).append([key], [value], time_ms=self.clock_ms())

    def flush(self) -> None:
        """Do nothing: records are appended at once."""

    def end(self, source: TopicPartition) -> int:
        """Return the log's end: the offset after the last record, committed or not."""
        return self.log(source).end

    def ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of several logs."""
        return {source: self.end(source) for source in sources}

    def stable_ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return up to where several logs can be read: to their first open transaction."""
        return {source: self.log(source).last_stable_offset for source in sources}

    def offset_at(self, source: TopicPartition, time_ms: int) -> int:
        """Return the offset of the first record of this time or later; the log's end if none."""
        return self.log(source).offset_at(time_ms)

    def note(self, group: str, places: Collection[TopicPartition]) -> str:
        """Return the note of a group's last committed positions; "" if there is none."""
        return self.notes.get(group, "")

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        if topic not in self._logs:
            raise MissingTopicError(f"the cluster in memory has no topic '{topic}'; create it")
        return len(self._logs[topic])

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def compact(self, topic: str, *, horizons: Sequence[int]) -> None:
        """Run compaction: keep the last record of each key below an offset for each partition.

        A tombstone is removed one pass after the first that kept it.
        """
        for log, horizon in zip(self._logs[topic], horizons, strict=True):
            log.compact(horizon)

    def delete_before(self, source: TopicPartition, offset: int) -> None:
        """Delete a partition's records before an offset; retention does it too."""
        self.log(source).trim(offset)

    def lose(self, source: TopicPartition, offset: int) -> None:
        """Remove a partition's records from an offset on, as an unclean election does.

        Running attempts that wrote there can't write there again: their sequence numbers go on
        after records that the broker does not have.
        """
        self.log(source).lose(offset)
        for attempt in self._attempts.values():
            attempt.notice(source, offset)

    def late_end_txn(self, transactional_id: str) -> None:
        """Let a retried commit reach the broker in the middle of this id's next `produce`.

        What the open transaction has written by then, and the first half of that call's records
        (the odd one included), becomes visible; the rest is aborted, and the outcome of the commit
        is unknown.
        """
        self._late.add(transactional_id)

    def log(self, source: TopicPartition) -> MemoryLog:
        """Return a partition's log.

        Raises:
            ClusterError: If there is none.
        """
        if not 0 <= source.partition < self.partitions(source.topic):
            raise ClusterError(
                f"topic '{source.topic}' has {self.partitions(source.topic)} partitions, but "
                f"partition {source.partition} is needed; the plan and the topic differ"
            )
        return self._logs[source.topic][source.partition]

    def step(self, name: str) -> None:
        """Notify the test that an actor is about to take a step."""
        if self.on_step is not None:
            self.on_step(name)

    def is_newest(self, attempt: MemoryTransactions) -> bool:
        """Return whether no newer attempt of its task has started."""
        return self._attempts[attempt.transactional_id] is attempt

    def is_late(self, transactional_id: str) -> bool:
        """Return, once, whether the late commit of `late_end_txn` arrives now."""
        late = transactional_id in self._late
        self._late.discard(transactional_id)
        return late


class MemoryReader:
    """A `Reader` of a cluster in memory; it never blocks."""

    def __init__(self, cluster: MemoryCluster, positions: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._noticed: dict[TopicPartition, int] = {}
        self._unreturned: list[Records] = []
        """What was read before another partition had lost its offset."""
        for source, offset in positions.items():
            self.add(source, offset)

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return the records that can be read now, one `Records` for each partition.

        Raises:
            LostOffsetError: If a log ends before the position, or has done so since the last call,
                or starts behind it and it is not 0.
        """
        self._cluster.step("poll")
        for source, position in list(self._positions.items()):
            if limit <= 0:
                break
            log = self._cluster.log(source)
            lost = log.losses[self._noticed[source] :]
            if position > min([log.end, *lost]) or 0 < position < log.start:
                raise LostOffsetError(source, position)
            self._noticed[source] += len(lost)
            records, after = log.read(position, limit)
            # Partitions that were read go to the end of the queue, so that none starves.
            del self._positions[source]
            self._positions[source] = after
            if records:
                self._unreturned.append(records)
                limit -= len(records)
        found, self._unreturned = self._unreturned, []
        return found

    def position(self, source: TopicPartition) -> int:
        """The offset up to which this reader has read, including control and aborted records."""
        return self._positions[source]

    def add(self, source: TopicPartition, offset: int) -> None:
        """Read another partition too, from this offset."""
        self._noticed[source] = len(self._cluster.log(source).losses)
        self._positions[source] = offset

    def remove(self, source: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(source, None)
        self._unreturned = [records for records in self._unreturned if records.source != source]

    def close(self) -> None:
        """Do nothing: there is no connection."""


class MemoryTransactions:
    """A `Transactions` of a cluster in memory."""

    def __init__(self, cluster: MemoryCluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._transaction: Transaction | None = None
        self._written: dict[TopicPartition, MemoryLog] = {}
        self._flushed: dict[TopicPartition, range] = {}
        self._positions: dict[str, dict[TopicPartition, int]] = {}
        self._notes: dict[str, str] = {}
        self._last: dict[TopicPartition, int] = {}
        self._out_of_order: set[TopicPartition] = set()
        self._doubtful = False
        self._closed = False

    def begin(self) -> None:
        """Open a transaction."""
        self._step("begin")
        self._transaction = Transaction(owner=self.transactional_id)
        self._flushed = {}
        self._positions, self._notes = {}, {}

    def produce(
        self,
        topic: str,
        *,
        partitions: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Append records to the open transaction."""
        self._step("produce")
        check_sizes(topic, keys=keys, values=values, limit=LARGEST)
        half = 0
        if self._cluster.is_late(self.transactional_id):
            half = (len(keys) + 1) // 2
            self._append(topic, partitions[:half], keys[:half], values[:half])
            self._finish("committed")
            self._transaction = Transaction(owner=self.transactional_id)
            self._doubtful = True
        self._append(topic, partitions[half:], keys[half:], values[half:])

    def flush(self) -> dict[TopicPartition, range]:
        """Return per partition the offsets of its own records since the last flush or begin."""
        self._step("flush")
        flushed, self._flushed = self._flushed, {}
        return flushed

    def offsets(
        self, group: str, positions: Mapping[TopicPartition, int], *, note: str = ""
    ) -> None:
        """Add a consumer group's positions to the transaction, with a note."""
        self._step("offsets")
        self._positions[group] = dict(positions)
        self._notes[group] = note

    def commit(self) -> None:
        """Commit, unless a late commit has already ended the transaction."""
        self._step("commit")
        if self._doubtful:
            self.close()
            raise self._doubt("a late commit exposed a part of it")
        self._finish("committed")
        for group, positions in self._positions.items():
            self._cluster.groups.setdefault(group, {}).update(positions)
        self._cluster.notes.update(self._notes)
        self._cluster.step("committed")

    def close(self) -> None:
        """Abort an open transaction; safe to call twice."""
        self._closed = True
        self._finish("aborted")

    def notice(self, source: TopicPartition, end: int) -> None:
        """Note that a log has lost its records from an offset on."""
        if self._last.get(source, 0) > end:
            self._out_of_order.add(source)

    def _append(
        self,
        topic: str,
        partitions: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        for partition, part_keys, part_values in _by_partition(partitions, keys, values):
            source = TopicPartition(topic, partition)
            if source in self._out_of_order:
                self.close()
                raise self._doubt("the broker does not have its last records")
            log = self._written[source] = self._cluster.log(source)
            first = self._flushed[source].start if source in self._flushed else log.end
            log.append(
                part_keys,
                part_values,
                time_ms=self._cluster.clock_ms(),
                transaction=self._transaction,
            )
            self._flushed[source], self._last[source] = range(first, log.end), log.end

    def _finish(self, state: str) -> None:
        transaction, self._transaction = self._transaction, None
        written, self._written = self._written, {}
        if transaction is not None:
            transaction.state = state
            for log in written.values():
                log.close(transaction)

    def _step(self, name: str) -> None:
        self._cluster.step(name)
        if not self._cluster.is_newest(self):
            raise FencedError(
                f"task '{self.transactional_id}' was fenced at {name}: a newer attempt has "
                "started; end this one"
            )
        if self._closed or (self._transaction is None) != (name == "begin"):
            raise self._doubt(f"at {name} it is closed, not begun, or already begun")

    def _doubt(self, reason: str) -> DoubtfulCommitError:
        return DoubtfulCommitError(
            f"task '{self.transactional_id}' does not know the outcome of its transaction "
            f"({reason}); start a new attempt"
        )


def _by_partition(
    partitions: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Iterator[tuple[int, list[bytes | None], list[bytes | None]]]:
    for partition in sorted(set(partitions)):
        chosen = list(map(eq, partitions, repeat(partition)))
        yield partition, list(compress(keys, chosen)), list(compress(values, chosen))
