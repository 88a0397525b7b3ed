"""A cluster in memory with Kafka's rules, for `errata local` and for tests that play faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from errata.topics.cluster import ClusterError, MissingTopicError, Records, TopicPartition
from errata.topics.memory_log import MemoryLog
from errata.topics.memory_transactions import MemoryTransactions
from errata.topics.record_size import check_sizes


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryCluster:
    """A `Cluster` in memory, for one thread: nothing ever waits.

    Records have offsets when produced, and are read when committed, in order, up to the first open
    transaction. The end of a transaction takes an offset in every partition that it wrote.

    Faults: whatever `on_step` raises ends the actor at that step; `late_end_txn` plays the broker
    fault that ``docs/protocol.md#11-faults`` tells of.

    Args:
        clock_ms: Gives the records' timestamps.
        on_step: Called with the step's name before each one of an actor: `begin`, `produce`,
            `flush`, `offsets`, `commit`, `send`, `poll`; also `committed`, when a commit has taken
            effect but is not yet known to the actor.

    Attributes:
        groups: Committed positions by group.

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
        self._logs: dict[str, list[MemoryLog]] = {}
        self._lives: dict[str, MemoryTransactions] = {}
        self._late: set[str] = set()

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic; nothing happens if it is there with as many partitions.

        Raises:
            ClusterError: If it is there with another number of partitions.
        """
        logs = self._logs.setdefault(
            topic, [MemoryLog(TopicPartition(topic, p)) for p in range(partitions)]
        )
        if len(logs) != partitions:
            raise ClusterError(
                f"topic '{topic}' needs partitions {partitions}, but has {len(logs)}; "
                "give another name"
            )

    def reader(self, positions: Mapping[TopicPartition, int]) -> MemoryReader:
        """Return a reader of these partitions from these offsets on."""
        return MemoryReader(self, positions)

    def transactions(self, transactional_id: str) -> MemoryTransactions:
        """Return a new life of a transactional producer; what an older one has open is aborted."""
        older = self._lives.get(transactional_id)
        if older is not None:
            older.close()
        life = self._lives[transactional_id] = MemoryTransactions(self, transactional_id)
        return life

    def send(self, topic: str, *, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Append one record outside any transaction."""
        self.step("send")
        check_sizes(topic, keys=[key], values=[value])
        self.log(TopicPartition(topic, partition)).append([key], [value], time_ms=self.clock_ms())

    def flush(self) -> None:
        """Nothing waits here."""

    def end(self, source: TopicPartition) -> int:
        """Return the log's end: the offset after the last record, committed or not."""
        return self.log(source).end

    def ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of several logs."""
        return {source: self.end(source) for source in sources}

    def offset_at(self, source: TopicPartition, time_ms: int) -> int:
        """Return the offset of the first record of this time or later; the end if there is none."""
        return self.log(source).offset_at(time_ms)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        if topic not in self._logs:
            raise MissingTopicError(f"the cluster in memory has no topic '{topic}'; create it")
        return len(self._logs[topic])

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def compact(self, topic: str, *, horizons: Sequence[int]) -> None:
        """Run the cleaner: keep the last record of each key below an offset a partition.

        A tombstone goes one pass after the first that kept it.
        """
        for log, horizon in zip(self._logs[topic], horizons, strict=True):
            log.compact(horizon)

    def trim(self, source: TopicPartition, offset: int) -> None:
        """Let go of a partition's records before an offset, as retention does."""
        self.log(source).trim(offset)

    def late_end_txn(self, transactional_id: str) -> None:
        """Let a repeated commit reach the broker in the middle of this id's next `produce`.

        What the open transaction has by then, and the first half of that call's records (the odd
        one included), becomes visible; what follows is aborted, and the commit is doubtful.
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
        """Tell the test that an actor is about to take a step."""
        if self.on_step is not None:
            self.on_step(name)

    def is_life(self, life: MemoryTransactions) -> bool:
        """Tell whether no newer life of its task has started."""
        return self._lives[life.transactional_id] is life

    def is_late(self, transactional_id: str) -> bool:
        """Tell, once, whether the late commit of `late_end_txn` arrives now."""
        late = transactional_id in self._late
        self._late.discard(transactional_id)
        return late


class MemoryReader:
    """A `Reader` of a cluster in memory; it never waits."""

    def __init__(self, cluster: MemoryCluster, positions: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        for source, offset in positions.items():
            self.add(source, offset)

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return what can be read now, a `Records` a partition."""
        self._cluster.step("poll")
        found = []
        for source, position in list(self._positions.items()):
            if limit <= 0:
                break
            records, after = self._cluster.log(source).read(position, limit)
            # Read ones go to the end of the line, so that no partition starves.
            del self._positions[source]
            self._positions[source] = after
            if records:
                found.append(records)
                limit -= len(records)
        return found

    def position(self, source: TopicPartition) -> int:
        """Offset up to which this reader has read, control and aborted records passed."""
        return self._positions[source]

    def add(self, source: TopicPartition, offset: int) -> None:
        """Read one more partition, from this offset on."""
        self._cluster.log(source)  # there must be one
        self._positions[source] = offset

    def close(self) -> None:
        """Do nothing: there is no connection."""
