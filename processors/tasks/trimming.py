"""Deletes the records of connection points that nobody needs any more, by event time.

Kafka deletes records from the start of a log only, up to an offset. So the owner of a partition
marks the partition's end now and then, with the newest event time that a tuple before the mark can
have. When that time has expired (`expired_before`), the records before the mark may go. They stay
for `compaction_lag` in any case, as the cleaner leaves them: other programs may yet read them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from errata.processors.tasks.compaction import CompactionGuard
from errata.processors.tasks.expiry import expired_before, newest_event_ms, oldest_requested
from errata.processors.wire.report import FOREVER, NEVER, PENDING
from errata.processors.wire.task_id import ScopeId
from errata.topics.cluster import (
    ClusterError,
    MovingLeaderError,
    SilentClusterError,
    TopicPartition,
)
from errata.topics.transactions import TIMEOUT_S

log = logging.getLogger("errata")

TRIMMED_MS = 10_000
"""How often a task looks for records to delete."""

_ENDED_MS = int(2 * TIMEOUT_S * 1000)
"""No transaction stays open this long; by then the reports tell the event times of its tuples."""

_MARKS_A_REACH = 32


class _Mark(NamedTuple):
    """A former end of a partition.

    Args:
        offset: The end.
        time_ms: When the log ended there, or later.
        newest_ms: No tuple before it has a later event time.
        epoch: No record before it is of a later epoch.
    """

    offset: int
    time_ms: int
    newest_ms: int
    epoch: int


class _Partition:
    """A partition whose records this task deletes.

    Args:
        guard: Knows how far the readers of the arc have come.
        arc: A connection point.
        place: One of its partitions.
    """

    def __init__(self, guard: CompactionGuard, arc: str, place: TopicPartition) -> None:
        self.guard, self.shared, self.arc, self.place = guard, guard.shared, arc, place
        self.marks: deque[_Mark] = deque()
        self._noted: tuple[int, int] | None = None
        self._is_old_marked = False
        self._rebuilt = -1

    def trim(self, *, now_ms: int) -> None:
        """Mark the end, and delete what is before the last mark that all have left behind."""
        view = self.shared.view
        rebuilt = view.rebuilt(self.arc, self.place.partition)
        if rebuilt != self._rebuilt:  # lost records: others have taken the offsets before a mark
            self._rebuilt, self._noted = rebuilt, None
            self.marks.clear()
        if rebuilt == PENDING:
            return
        asked = oldest_requested(self.shared, self.arc, self.place.partition)
        upto = self.guard.attempt.report.done if asked is None else asked
        expired_ms = expired_before(self.shared, self.arc, upto=upto, now_ms=now_ms)
        if expired_ms == NEVER:
            return
        written_ms = now_ms - self.shared.compaction_lag_ms
        self._mark_old(min(expired_ms, written_ms))
        self._mark_end(now_ms)
        kept, resumed = list(self.marks), self._resumed()
        passed = self.guard.passed(self.arc, self.place.partition)
        while kept and (mark := kept[0]).newest_ms < expired_ms and mark.time_ms <= written_ms:
            if mark.epoch > passed or mark.offset > resumed:
                break
            kept.pop(0)
        if len(kept) < len(self.marks):
            last = self.marks[len(self.marks) - len(kept) - 1]
            self.shared.cluster.delete_before(self.place, last.offset)
            self.marks = deque(kept)

    def _mark_old(self, expired_ms: int) -> None:
        """Mark once what earlier attempts have left: it was written before what has expired.

        A tuple is written after its event time, but for `max_ahead` and the extents of boxes.
        """
        if self._is_old_marked:
            return
        self._is_old_marked = True
        ahead_ms = self.shared.plan.ahead_ms(self.arc)
        if ahead_ms is not None and expired_ms > ahead_ms:
            offset = self.shared.cluster.offset_at(self.place, expired_ms - ahead_ms)
            newest = self.shared.view.newest_epoch()
            self.marks.append(_Mark(offset, expired_ms, NEVER, newest))

    def _mark_end(self, now_ms: int) -> None:
        """Note the end, or mark the end that was noted before."""
        last = self.marks[-1] if self.marks else _Mark(0, 0, NEVER, -1)
        if self._noted is None:
            _, end = self.shared.view.complete(self.arc, self.place.partition)
            if end > last.offset:
                self._noted = end, now_ms
            return
        end, time_ms = self._noted
        if now_ms - time_ms < _ENDED_MS:
            return
        self._noted = None
        newest_ms = max(last.newest_ms, newest_event_ms(self.shared, self.arc, written_ms=time_ms))
        spacing_ms = self.shared.plan.reach_ms[self.arc] // _MARKS_A_REACH
        if len(self.marks) > 1 and newest_ms - self.marks[-2].newest_ms < spacing_ms:
            self.marks.pop()
        self.marks.append(_Mark(end, time_ms, newest_ms, self.shared.view.newest_epoch()))

    def _resumed(self) -> int:
        """Return the offset at which the first of the arc's readers would begin again."""
        readers = self.shared.plan.topology.readers(self.arc)
        tasks = (str(ScopeId.parse(scope).task(self.place.partition)) for scope in readers)
        resumed = [self.shared.view.of(task).resume.get(self.place, 0) for task in tasks]
        return min(resumed, default=FOREVER)


class Trimmer:
    """Deletes old records of the connection points that one task writes.

    Args:
        guard: The task's, which knows how far readers have come.
        task: Name of the task.
    """

    def __init__(self, guard: CompactionGuard, task: str) -> None:
        self.guard, self.task = guard, task
        self._partitions: list[_Partition] | None = None
        self._trimmed_ms = 0

    def trim(self, *, now_ms: int) -> None:
        """Delete what nobody needs any more; does nothing if it was called just before.

        A cluster that refuses is not asked again: the records then stay.
        """
        if now_ms - self._trimmed_ms < TRIMMED_MS:
            return  # also while a clock that was set back is behind: the marks have its old times
        self._trimmed_ms = now_ms
        if self._partitions is None:
            self._partitions = list(self._owned())
        try:
            for partition in self._partitions:
                partition.trim(now_ms=now_ms)
        except (MovingLeaderError, SilentClusterError):
            return  # the next call tries again
        except ClusterError as error:
            log.warning("task %s: records that nobody needs any more stay: %s", self.task, error)
            self._partitions = []

    def _owned(self) -> Iterator[_Partition]:
        """Yield the partitions that are this task's: each has one owner among its writers."""
        plan = self.guard.shared.plan
        for arc in self.guard.outputs:
            if arc not in plan.trimmed:
                continue
            for partition in range(plan.placement.partitions[arc]):
                writers = plan.placement.writers(arc, partition)
                if writers[partition % len(writers)] == self.task:
                    place = TopicPartition(plan.deployment.topic(arc), partition)
                    yield _Partition(self.guard, arc, place)
