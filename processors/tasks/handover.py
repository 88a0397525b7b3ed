"""What the tasks of a process hand to its readers: the revisions that they have committed.

Where all tasks that write a partition run in this process, it knows what its log has without
reading it. The records of each transaction follow each other there. Between those of two
transactions may be the ends of others, which count for no reader, and the records of a transaction
that is still open here. Readers take the records once these transactions have ended, and the
reports up to their own show that no other process has taken a task over. Another one could only
have written before them if it had claimed the task before (``docs/protocol.md``).

Elsewhere they take what follows without a gap (`feeds.Chunk.is_next`), and read the rest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.partitioner import Emission
from errata.topics.cluster import TopicPartition

if TYPE_CHECKING:
    from errata.processors.tasks.shared import Shared

Attempts = Mapping[str, int]
"""By task: its attempt."""


class Written(NamedTuple):
    """An emission, with the keys and values of its records; none if its arc has no topic.

    It is in the order of its partitions.
    """

    emission: Emission
    keys: list[bytes]
    values: list[bytes]


@dataclass(eq=False)
class Writing:
    """What one transaction writes to one partition.

    Args:
        arc: The arc.
        after: The offset after the last records that were written there before it began.
        attempts: The attempts of all tasks that write there, as it began; None if another process
            ran some.
        is_open: Whether it may still commit.
    """

    arc: str
    after: int
    attempts: Attempts | None
    is_open: bool = True


class Handover:
    """Hands what the tasks of a process commit to the readers of the process.

    Args:
        shared: State shared by the tasks of the process.
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._open: defaultdict[TopicPartition, dict[str, Writing]] = defaultdict(dict)
        """By partition: what the open transaction of each task writes there."""
        self._ends: dict[TopicPartition, int] = {}
        """By partition: the offset after the last records that these tasks have committed."""
        self._known: dict[TopicPartition, Attempts] = {}
        """By partition: the attempts that have written all since some records handed over."""
        self._failed: defaultdict[TopicPartition, dict[str, int]] = defaultdict(dict)
        """By partition: the attempts of tasks whose last transaction may have committed or not.

        What it has written there comes before all that is written after the task's next attempt
        has begun.
        """

    def begin(self, task: str, place: TopicPartition, *, arc: str) -> None:
        """Note that the open transaction of a task writes to a partition of an arc."""
        if self.shared.hands_over and task not in self._open[place]:
            attempts = self._attempts(arc, place.partition)
            self._open[place][task] = Writing(arc, self._ends.get(place, 0), attempts)

    def is_written_to(self, places: Iterable[TopicPartition]) -> bool:
        """Return whether a transaction is open that writes to some partitions.

        Its end, or its records, may come between those of another one.
        """
        return any(map(self._open.get, places))

    def fail(self, task: str) -> None:
        """Note that the open transaction of a task may not have committed."""
        for place in [place for place, tasks in self._open.items() if task in tasks]:
            writing = self._ended(place, task)
            self._failed[place][task] = self.shared.view.of(task).attempt
            self._known.pop(place, None)
            self.shared.codec(writing.arc).miss(place)

    def hand(
        self,
        meta: Meta,
        written: Sequence[Written],
        flushed: Mapping[TopicPartition, range],
        reported: int,
    ) -> None:
        """Hand over what a transaction has committed.

        Args:
            meta: Its task and attempt.
            written: What it has written.
            flushed: By partition, from its first record to its last one.
            reported: The offset after its report.
        """
        if not self.shared.hands_over:
            return
        view, plan = self.shared.view, self.shared.plan
        time_ms = max(view.newest_ms, time.time_ns() // 1_000_000)  # this clock may be behind
        parts: defaultdict[TopicPartition, list[Written]] = defaultdict(list)
        for each in written:
            topic = plan.deployment.topic(each.emission.arc)
            for partition, part in by_partition(each):
                parts[TopicPartition(topic, partition)].append(part)
        for place, sent in parts.items():
            arc, offsets = sent[0].emission.arc, flushed[place]
            codec, writing = self.shared.codec(arc), self._ended(place, meta.task)
            before = self._ends.get(place, 0)
            is_lost = offsets.start < writing.after  # the records that were there
            self._ends[place] = offsets.stop if is_lost else max(offsets.stop, before)
            if is_lost or not self._is_in_one_piece(sent, offsets):
                codec.miss(place)
                continue
            attempts, known = self._followed(place, writing), self._known.pop(place, None)
            is_certain: Callable[[], bool] | None = None
            if attempts is not None:
                if known != attempts:  # other attempts may have written before these records
                    codec.miss(place)
                    before = max(before, offsets.start)
                self._known[place] = attempts
                others = list(self._open[place].values())
                is_certain = partial(
                    self._is_certain, others, reported, attempts, arc, place.partition
                )
            start = offsets.start
            for each in sent:
                codec.hand(
                    place,
                    range(start, start + len(each.keys)),
                    revisions=each.emission.revisions,
                    keys=each.keys,
                    values=each.values,
                    meta=Meta(meta.task, meta.attempt, each.emission.epoch),
                    time_ms=time_ms,
                    before=before,
                    is_certain=is_certain,
                )
                start += len(each.keys)

    def _is_in_one_piece(self, sent: Sequence[Written], offsets: range) -> bool:
        """Return whether nothing lies between the records of a transaction."""
        return sum(len(each.keys) for each in sent) == len(offsets)

    def _ended(self, place: TopicPartition, task: str) -> Writing:
        writing = self._open[place].pop(task)
        writing.is_open = False
        return writing

    def _attempts(self, arc: str, partition: int) -> Attempts | None:
        """Return the attempts of all tasks that write a partition; None if others run some."""
        reports = list(map(self.shared.view.of, self.shared.view.writers(arc, partition)))
        if any(report.process != self.shared.process for report in reports):
            return None
        return {report.task: report.attempt for report in reports}

    def _followed(self, place: TopicPartition, writing: Writing) -> Attempts | None:
        """Return the attempts that write to a partition, if all others have ended.

        What these have written there comes before what the transaction has. None if that can't be
        known.
        """
        attempts = self._attempts(writing.arc, place.partition)
        if attempts is None or attempts != writing.attempts:
            return None
        failed = self._failed[place].items()
        if any(attempts.get(task, 0) <= attempt for task, attempt in failed):
            return None
        return attempts

    def _is_certain(
        self,
        others: Sequence[Writing],
        reported: int,
        attempts: Attempts,
        arc: str,
        partition: int,
    ) -> bool:
        is_known = self.shared.view.has_read_to(reported)
        if not is_known or any(writing.is_open for writing in others):
            return False
        return self._attempts(arc, partition) == attempts


def by_partition(written: Written) -> Iterator[tuple[int, Written]]:
    """Yield what goes to each partition of an emission that is in their order."""
    if not written.keys:
        return
    emission, start = written.emission, 0
    runs = emission.partitions.rle()
    for count, partition in zip(*(runs.struct[name] for name in ("len", "value")), strict=True):
        rows = slice(start, start + count)
        revisions, partitions = emission.revisions[rows], emission.partitions[rows]
        part = replace(emission, revisions=revisions, partitions=partitions)
        yield partition, Written(part, written.keys[rows], written.values[rows])
        start += count
