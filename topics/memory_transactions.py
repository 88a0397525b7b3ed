"""Transactions on a cluster in memory: one life of one task's transactional producer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import eq
from typing import TYPE_CHECKING

from errata.topics.cluster import DoubtfulCommitError, FencedError, TopicPartition
from errata.topics.memory_log import MemoryLog, Transaction
from errata.topics.record_size import LARGEST, check_sizes

if TYPE_CHECKING:
    from errata.topics.memory import MemoryCluster


class MemoryTransactions:
    """A `Transactions` of a cluster in memory."""

    def __init__(self, cluster: MemoryCluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._transaction: Transaction | None = None
        self._written: dict[TopicPartition, MemoryLog] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._positions: dict[str, dict[TopicPartition, int]] = {}
        self._doubtful = False
        self._closed = False

    def begin(self) -> None:
        """Open a transaction."""
        self._step("begin")
        self._transaction = Transaction()
        self._ends = {}
        self._positions = {}

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
            self._transaction, self._doubtful = Transaction(), True
        self._append(topic, partitions[half:], keys[half:], values[half:])

    def flush(self) -> dict[TopicPartition, int]:
        """Return per partition own last record's offset + 1, since the last flush or begin."""
        self._step("flush")
        ends, self._ends = self._ends, {}
        return ends

    def offsets(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Add a group's positions to the transaction."""
        self._step("offsets")
        self._positions[group] = dict(positions)

    def commit(self) -> None:
        """Commit, unless a late commit has been there before."""
        self._step("commit")
        if self._doubtful:
            self.close()
            raise self._doubt("a late commit exposed a part of it")
        self._finish("committed")
        for group, positions in self._positions.items():
            self._cluster.groups.setdefault(group, {}).update(positions)
        self._cluster.step("committed")

    def close(self) -> None:
        """Abort what is open; safe to call twice."""
        self._closed = True
        self._finish("aborted")

    def _append(
        self,
        topic: str,
        partitions: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        for partition, own_keys, own_values in _by_partition(partitions, keys, values):
            source = TopicPartition(topic, partition)
            log = self._written[source] = self._cluster.log(source)
            log.append(
                own_keys,
                own_values,
                time_ms=self._cluster.clock_ms(),
                transaction=self._transaction,
            )
            self._ends[source] = log.end

    def _finish(self, state: str) -> None:
        transaction, self._transaction = self._transaction, None
        written, self._written = self._written, {}
        if transaction is not None:
            transaction.state = state
            for log in written.values():
                log.close(transaction)

    def _step(self, name: str) -> None:
        self._cluster.step(name)
        if not self._cluster.is_life(self):
            raise FencedError(
                f"task '{self.transactional_id}' was fenced at {name}: a newer life of it has "
                "started; end this one"
            )
        if self._closed or (self._transaction is None) != (name == "begin"):
            raise self._doubt(f"at {name} it is closed, not begun, or begun already")

    def _doubt(self, reason: str) -> DoubtfulCommitError:
        return DoubtfulCommitError(
            f"task '{self.transactional_id}' can't be sure of its transaction ({reason}); "
            "start a new attempt"
        )


def _by_partition(
    partitions: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Iterator[tuple[int, list[bytes | None], list[bytes | None]]]:
    for partition in sorted(set(partitions)):
        chosen = list(map(eq, partitions, repeat(partition)))
        yield partition, list(compress(keys, chosen)), list(compress(values, chosen))
