"""Keeps covered records safe from compaction and lets it remove deleted keys.

The broker's cleaner keeps the last record of a key, whether or not a report covers it
(``docs/protocol.md#10-compaction-and-tombstones``). The owner of an arc therefore does two things:

* *Shadowed records*: an uncovered record that follows a covered one of the same key makes the
  cleaner drop the covered one. Only a late EndTxn makes such a record visible. A new attempt
  rewrites the covered record before its first epoch.
* *Tombstones*: a delete is a record, so that readers see it. Once every reader has passed it, the
  owner writes a tombstone, and the cleaner drops the key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

import polars as pl

from errata.processors.arcs.arc_topic import Meta, history
from errata.processors.arcs.partitioner import Emission
from errata.processors.tasks.attempt import Attempt
from errata.processors.wire.report import NEVER
from errata.processors.wire.task_id import ScopeId
from errata.schemas import revisions as frames
from errata.topics.cluster import TopicPartition


class Deleted(NamedTuple):
    """A key whose last record is a delete: its arc, its partition and the record key."""

    arc: str
    partition: int
    key: bytes


class PendingTombstones:
    """Deletes of one attempt that await a tombstone; each is the last record of its key."""

    def __init__(self) -> None:
        self._epochs: defaultdict[tuple[str, int], dict[bytes, int]] = defaultdict(dict)
        """By arc and partition: the epoch of each key, oldest first."""

    def add(self, emission: Emission, keys: list[bytes]) -> None:
        """Add the deletes of an emission, and remove older ones whose keys it writes again.

        Args:
            emission: The committed emission; its epoch is not below that of one before.
            keys: The record key of each of its revisions.
        """
        is_delete = emission.revisions["op"] == frames.DELETE
        touched = is_delete
        for (arc, partition), epochs in self._epochs.items():
            if arc == emission.arc and epochs:
                is_known = pl.Series(map(epochs.__contains__, keys), dtype=pl.Boolean)
                touched |= is_known & (emission.partitions == partition)
        if not touched.any():
            return
        for row in touched.arg_true():  # few rows: deletes, and rewritten keys
            epochs = self._epochs[emission.arc, emission.partitions[row]]
            epochs.pop(keys[row], None)
            if is_delete[row]:
                epochs[keys[row]] = emission.epoch

    def due(self, passed: Callable[[str, int], int]) -> list[Deleted]:
        """Return the deletes that every reader has passed.

        Args:
            passed: Returns the epoch that all readers of an arc's partition have passed.
        """
        due: list[Deleted] = []
        for place, epochs in self._epochs.items():
            if epochs:
                upto = passed(*place)
                for key, epoch in epochs.items():
                    if epoch > upto:
                        break
                    due.append(Deleted(*place, key))
        return due

    def remove(self, written: Iterable[Deleted]) -> None:
        """Remove deletes whose tombstone is written."""
        for arc, partition, key in written:
            del self._epochs[arc, partition][key]

    def clear(self) -> None:
        """Forget all: a commit of unknown outcome may have rewritten their keys."""
        self._epochs.clear()


class CompactionGuard:
    """Writes tombstones and rewrites shadowed records for one attempt of a task.

    Args:
        attempt: The attempt.
        outputs: The arcs that its task writes; only connection points matter here.
    """

    def __init__(self, attempt: Attempt, outputs: tuple[str, ...]) -> None:
        self.attempt, self.outputs, self.shared = attempt, outputs, attempt.shared
        self.tombstones = PendingTombstones()

    def committed(self, emission: Emission, keys: list[bytes]) -> None:
        """Note a committed emission and the record key of each of its revisions."""
        keeps = self.shared.plan.topology.arcs[emission.arc].is_connection_point
        if keeps and emission.to_topic:
            self.tombstones.add(emission, keys)

    # ---------------------------------------------------------------- tombstones

    def write_tombstones(self) -> Iterator[bool]:
        """Write tombstones for deletes that every reader has passed; an idle task calls it.

        They go into a transaction of their own, and only for a delete that is still the last record
        of its key: the attempt tracks all that it wrote, and no other task writes the identity.
        """
        due = self.tombstones.due(self.passed)
        if not due:
            yield False
            return
        transactions = self.attempt.open()
        transactions.begin()
        for arc in {deleted.arc for deleted in due}:
            of_arc = [deleted for deleted in due if deleted.arc == arc]
            transactions.produce(
                self.shared.plan.deployment.topic(arc),
                partitions=[deleted.partition for deleted in of_arc],
                keys=[deleted.key for deleted in of_arc],
                values=[None] * len(of_arc),
            )
        transactions.flush()
        yield True
        transactions.commit()
        self.tombstones.remove(due)
        yield True

    def passed(self, arc: str, partition: int) -> int:
        """Return the epoch that all readers of an arc's partition, also sweepers, have passed."""
        plan, view = self.shared.plan, self.shared.view
        readers = [
            str(ScopeId.parse(scope).task(partition)) for scope in plan.topology.readers(arc)
        ]
        reported = [view.frontier(reader) for reader in readers]
        if arc in plan.replayed_points():
            sweeper = view.of(str(ScopeId.of_sweeper(arc).task(partition)))
            reported.append(sweeper.done if sweeper.plan == plan.fingerprint else -1)
        return min(reported, default=self.attempt.report.done)

    # ---------------------------------------------------------------- shadowed records

    def rewrite_shadowed(self) -> Iterator[bool]:
        """Rewrite each covered record that is followed by an uncovered one of the same key."""
        if self.attempt.report.attempt == 1:
            return  # no older attempt has written
        for arc in self.outputs:
            if not self.shared.plan.topology.arcs[arc].is_connection_point:
                continue
            for partition in self._written_partitions(arc):
                shadowed = yield from self._shadowed(arc, partition)
                if shadowed:
                    yield from self._rewrite(arc, partition, shadowed)

    def _written_partitions(self, arc: str) -> list[int]:
        """Return the partitions that the task writes: all of a source's arc, else one."""
        if arc in self.shared.plan.topology.sources:
            return list(range(self.shared.plan.placement.partitions[arc]))
        return [self.attempt.id.partition]

    def _shadowed(
        self, arc: str, partition: int
    ) -> Generator[bool, None, list[tuple[Meta, pl.DataFrame]]]:
        """Return the last covered records of keys with later uncovered ones, by writer."""
        shared, report = self.shared, self.attempt.report
        codec = shared.codec(arc)
        place = TopicPartition(codec.topic, partition)
        offset, epoch = report.ends.get(place, (0, NEVER))
        if epoch == NEVER:  # records were lost there, copies that this wrote may be among them
            offset = 0
        behind = yield from history(shared.cluster, codec, place, offset)
        uncovered = behind.filter(pl.col("task") == report.task)
        if uncovered.is_empty():
            return []
        every = yield from history(shared.cluster, codec, place, 0)
        covered = shared.view.covered(every.filter(pl.col("task") == report.task))
        identities = codec.identities(uncovered).unique()
        last = last_of(covered, identities, identity=list(codec.arc.identity))
        return [
            (Meta(task, attempt, epoch), copies)
            for (task, attempt, epoch), copies in last.group_by("task", "attempt", "epoch")
        ]

    def _rewrite(
        self, arc: str, partition: int, copies: list[tuple[Meta, pl.DataFrame]]
    ) -> Iterator[bool]:
        codec, transactions = self.shared.codec(arc), self.attempt.open()
        transactions.begin()
        for meta, revisions in copies:
            keys, values = codec.encode(revisions, meta)
            partitions = [partition] * len(keys)
            transactions.produce(codec.topic, partitions=partitions, keys=keys, values=values)
        transactions.flush()
        transactions.commit()
        yield True


def last_of(
    revisions: pl.DataFrame, identities: pl.DataFrame, *, identity: list[str]
) -> pl.DataFrame:
    """Return the last revision of each of some identities."""
    named = pl.concat([revisions, frames.identities(revisions, identity)], how="horizontal")
    wanted = named.join(identities, on=identity, how="semi", nulls_equal=True)
    return frames.last(wanted.select(revisions.columns), identity)
