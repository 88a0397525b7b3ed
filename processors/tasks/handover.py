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
        after: The offset after the last records that were handed over before it began.
        is_open: Whether it may still commit.
    """

    arc: str
    after: int
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
        self._unread: defaultdict[TopicPartition, set[str]] = defaultdict(set)
        """By partition: the tasks that have written what can't be handed over.

        It is read. What these tasks write next comes after it.
        """
        self._ends: dict[TopicPartition, int] = {}
        """By partition: the offset after the last records that were handed over."""

    def begin(self, task: str, place: TopicPartition, *, arc: str) -> None:
        """Note that the open transaction of a task writes to a partition of an arc."""
        if self.shared.hands_over:
            self._open[place].setdefault(task, Writing(arc, self._ends.get(place, 0)))

    def is_written_to(self, places: Iterable[TopicPartition]) -> bool:
        """Return whether a transaction is open that writes to some partitions.

        Its end, or its records, may come between those of another one.
        """
        return any(map(self._open.get, places))

    def fail(self, task: str) -> None:
        """Note that the open transaction of a task may not have committed."""
        for place in [place for place, tasks in self._open.items() if task in tasks]:
            self._leave_unread(place, task, self._ended(place, task).arc)

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
        view, plan = self.shared.view, self.shared.plan
        time_ms = max(view.newest_ms, time.time_ns() // 1_000_000)  # this clock may be behind
        parts: defaultdict[TopicPartition, list[Written]] = defaultdict(list)
        for each in written if self.shared.hands_over else ():
            topic = plan.deployment.topic(each.emission.arc)
            for partition, part in parted(each):
                parts[TopicPartition(topic, partition)].append(part)
        for place, sent in parts.items():
            arc, offsets = sent[0].emission.arc, flushed[place]
            writing = self._ended(place, meta.task)
            is_lost = offsets.start < writing.after  # the records that were there
            if is_lost or sum(len(each.keys) for each in sent) < len(offsets):
                self._ends[place] = offsets.stop
                self._leave_unread(place, meta.task, arc)
                continue
            self._ends[place] = max(offsets.stop, self._ends.get(place, 0))
            is_certain = self._certainty(place, meta.task, arc=arc, reported=reported)
            self._unread[place].discard(meta.task)
            if self._unread[place]:
                continue
            start = offsets.start
            for each in sent:
                self.shared.codec(arc).hand(
                    place,
                    range(start, start + len(each.keys)),
                    revisions=each.emission.revisions,
                    keys=each.keys,
                    values=each.values,
                    meta=Meta(meta.task, meta.attempt, each.emission.epoch),
                    time_ms=time_ms,
                    is_certain=is_certain,
                )
                start += len(each.keys)

    def _ended(self, place: TopicPartition, task: str) -> Writing:
        writing = self._open[place].pop(task)
        writing.is_open = False
        return writing

    def _leave_unread(self, place: TopicPartition, task: str, arc: str) -> None:
        self._unread[place].add(task)
        self.shared.codec(arc).miss(place)

    def _certainty(
        self, place: TopicPartition, task: str, *, arc: str, reported: int
    ) -> Callable[[], bool] | None:
        """Return how to know that all that counts before some records was handed over.

        None if that can't be known.
        """
        if self._unread[place] or not self._writes_alone(arc, place.partition):
            return None
        others = list(self._open[place].values())
        return partial(self._is_certain, others, reported, arc, place.partition)

    def _is_certain(
        self, others: Sequence[Writing], reported: int, arc: str, partition: int
    ) -> bool:
        is_known = self.shared.view.has_read_to(reported)
        if not is_known or any(writing.is_open for writing in others):
            return False
        return self._writes_alone(arc, partition)

    def _writes_alone(self, arc: str, partition: int) -> bool:
        """Return whether this process runs all tasks that write a partition of an arc."""
        view = self.shared.view
        writers = view.writers(arc, partition)
        return all(view.of(task).process == self.shared.process for task in writers)


def parted(written: Written) -> Iterator[tuple[int, Written]]:
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
