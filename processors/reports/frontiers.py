"""The frontiers of tasks and the watermarks of sources, computed from the reports of all tasks.

Each task keeps epochs open: those that it may still produce. Its *pointstamp* is the first of them:

* an ingest task can produce all epochs after the last that it has processed;
* unprocessed records of a task's input can produce output from its next epoch on;
* a task with open windows can produce output in the epoch in which the first of them closes.

All else is inferred, and written nowhere: whatever a task produces reaches all tasks below it in
the same epoch, so the first epoch that a task may still produce is the minimum of its own
pointstamp and of those of all tasks above it. A tracker follows that as Timely's does, over a graph
with a node for each task; boxes inside a task are invisible to it.

The watermark wm(e) is the event time up to which some sources had been seen in epochs up to e. It
is the minimum of the watermarks in the reports of ingest tasks, without idle partitions, and it
never falls, except in an epoch in which an operator has put a watermark back (`Report.lowered`).
Tasks that close windows are rebuilt there. It depends on reports only: every reader computes the
same value at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from errata.processors.plan.plan import Plan
from errata.processors.wire.report import IDLE, NEVER, Floor, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition


class CyclicTasksError(ErrataError):
    """Tasks read each other's output in a cycle, so no epoch would ever end.

    Args:
        network: The network's name.
        tasks: The tasks of the cycle; the last is the first again.
    """

    def __init__(self, network: str, *, tasks: list[str]) -> None:
        self.network, self.tasks = network, tasks
        super().__init__(
            f"the tasks of network '{network}' read each other in a cycle: {' -> '.join(tasks)}; "
            "tasks need an order in which each reads only earlier ones (a loop stays in one scope)"
        )


class Tracker:
    """Maintains the first open epoch of every task as pointstamps change.

    Changes are buffered until `propagate`. It visits tasks in an order in which each comes after
    all that it reads: so each is visited at most once, and only tasks below a change are.

    Args:
        network: Name of the network, for messages.
        reads: For each task, the tasks that it reads.

    Raises:
        CyclicTasksError: If tasks read each other in a cycle.

    Example:
        >>> tracker = Tracker("example", {"ingest": [], "first": ["ingest"], "second": ["first"]})
        >>> tracker.update("ingest", 8)
        >>> tracker.update("first", 5)
        >>> tracker.propagate()
        >>> tracker.first_open("ingest"), tracker.first_open("second")
        (8, 5)
    """

    def __init__(self, network: str, reads: Mapping[str, Iterable[str]]) -> None:
        try:
            order = list(TopologicalSorter(reads).static_order())
        except CycleError as error:
            raise CyclicTasksError(network, tasks=error.args[1]) from error
        self._order = order
        self._place = place = {task: number for number, task in enumerate(order)}
        self._above = [sorted({place[other] for other in reads.get(task, ())}) for task in order]
        self._below: list[list[int]] = [[] for _ in order]
        for number, above in enumerate(self._above):
            for other in above:
                self._below[other].append(number)
        self._pointstamps: list[int | None] = [None] * len(order)
        self._first: list[int | None] = [None] * len(order)
        self._changed: set[int] = set()

    def update(self, task: str, pointstamp: int | None) -> None:
        """Set the first epoch that a task keeps open itself; None if it keeps none open."""
        place = self._place[task]
        if self._pointstamps[place] != pointstamp:
            self._pointstamps[place] = pointstamp
            self._changed.add(place)

    def propagate(self) -> None:
        """Apply the buffered updates to all tasks."""
        due, self._changed = self._changed, set()
        queue = sorted(due)  # a sorted list is a heap
        while queue:
            place = heappop(queue)
            known = [
                self._pointstamps[place],
                *(self._first[above] for above in self._above[place]),
            ]
            before, first = (
                self._first[place],
                min((e for e in known if e is not None), default=None),
            )
            self._first[place] = first
            for below in self._below[place] if first != before else ():
                if below not in due and self._may_change(below, before, first):
                    due.add(below)
                    heappush(queue, below)

    def first_open(self, task: str) -> int | None:
        """Return the first epoch that a task may still produce; None if it produces no more."""
        return self._first[self._place[task]]

    def _may_change(self, place: int, before: int | None, now: int | None) -> bool:
        """Whether a change of one task above can change a task's minimum."""
        first = self._first[place]
        return first is None or first == before or (now is not None and now < first)


@dataclass(frozen=True)
class Line:
    """The watermark of some sources as a step function of the epoch.

    Args:
        epochs: Epochs at which it rises, in order.
        values: Event times to which it rises, in order.
        lowered: The last epoch in which it was put back, from which on it is known; -1: never.
    """

    epochs: list[int]
    values: list[int]
    lowered: int = -1

    def at(self, epoch: int) -> int:
        """Return wm(epoch), `NEVER` before the first."""
        count = bisect_right(self.epochs, epoch)
        return self.values[count - 1] if count else NEVER

    def following(self, done: int, watermark: int, *, epoch: int) -> int:
        """Return wm(epoch) for a reader that has processed an epoch, with this watermark."""
        has_fallen = done < self.lowered <= epoch
        return self.at(epoch) if has_fallen else max(watermark, self.at(epoch))

    def first(self, at_least: int, *, after: int) -> int | None:
        """Return the first epoch past `after` with a watermark of `at_least` or more, if known."""
        place = max(bisect_right(self.values, at_least - 1), bisect_right(self.epochs, after))
        return self.epochs[place] if place < len(self.epochs) else None


class Watermarks:
    """The watermarks of a network.

    Args:
        plan: Gives the sources and their tasks.
        of: Returns the newest report of a task.
    """

    def __init__(self, plan: Plan, of: Callable[[str], Report]) -> None:
        self.plan, self.of = plan, of
        self._lines: dict[tuple[str, ...], Line] = {}

    def line(self, sources: tuple[str, ...]) -> Line:
        """Return the watermark of some sources."""
        if sources not in self._lines:
            self._lines[sources] = self._computed(sources)
        return self._lines[sources]

    def changed(self, source: str) -> None:
        """Drop cached watermarks: an ingest task of this source has reported."""
        self._lines = {key: line for key, line in self._lines.items() if source not in key}

    def _computed(self, sources: tuple[str, ...]) -> Line:
        reports = [self.of(task) for task in self.plan.placement.ingest_tasks(sources)]
        lowered = max((report.lowered for report in reports), default=-1)
        floors = [(f.epoch, f.watermark) for r in reports for f in r.floors if f.sources == sources]
        events = sorted(
            (epoch, number, watermark)
            for number, report in enumerate(reports)
            for epoch, watermark in report.watermarks
        )
        now = [NEVER] * len(reports)
        rises = dict.fromkeys(sorted(epoch for epoch, _ in floors), NEVER)
        for epoch, number, watermark in events:
            now[number] = watermark
            rises[epoch] = combined(now)  # an epoch's last value wins: its events are simultaneous
        for epoch, watermark in floors:
            rises[epoch] = max(rises[epoch], watermark)
        line, highest = Line([], [], lowered), NEVER
        for epoch in sorted(epoch for epoch in rises if epoch >= lowered):
            if rises[epoch] > highest:
                highest = rises[epoch]
                line.epochs.append(epoch)
                line.values.append(highest)
        return line

    def floors(self, source: str, *, upto: int) -> tuple[Floor, ...]:
        """Return wm(upto) of every set of sources that some arc comes from and that has this one.

        A report that drops older pairs must hold it: the minimum of the remaining pairs may be
        lower, where an idle partition becomes active again. Readers of arcs need it, too.
        """
        topology = self.plan.topology
        behind = {topology.sources_behind(scope) for scope in topology.scopes}
        behind |= {topology.sources_of[arc] for arc in topology.topics}
        return tuple(
            Floor(sources, upto, self.line(sources).at(upto))
            for sources in sorted(behind)
            if source in sources
        )


def combined(watermarks: Iterable[int]) -> int:
    """Return the minimum of watermarks without idle ones; `NEVER` if all are idle.

    Example:
        >>> combined([5, IDLE, 3]), combined([IDLE, IDLE]) == NEVER
        (3, True)
    """
    known = [w for w in watermarks if w != IDLE]
    return min(known, default=NEVER)


ALL = 2**62
"""A frontier beyond every epoch: nothing can be produced any more."""


class Frontiers:
    """Follows the reports of a network's tasks.

    Args:
        plan: Gives the tasks, and the partitions that each reads and writes.
        of: Returns the newest report of a task.
        watermarks: The watermarks from these reports.
    """

    def __init__(self, plan: Plan, of: Callable[[str], Report], watermarks: Watermarks) -> None:
        self.plan, self.of, self.watermarks = plan, of, watermarks
        self._reads = {
            task: list(plan.placement.read_by(scope, number))
            for scope in plan.topology.scopes
            for number, task in enumerate(plan.placement.tasks(scope))
        }
        above = {
            task: {w for arc, number in places for w in plan.placement.writers(arc, number)}
            for task, places in self._reads.items()
        }
        tasks = [*plan.placement.ingest_tasks(), *self._reads]
        self._tracker = Tracker(plan.network, {task: above.get(task, ()) for task in tasks})
        self._readers: dict[str, set[str]] = {task: set() for task in tasks}
        for task, writers in above.items():
            for writer in writers:
                self._readers[writer].add(task)
        self._closing = {
            source: [
                task
                for scope in plan.topology.scopes
                if plan.topology.closes_windows(scope)
                and source in plan.topology.sources_behind(scope)
                for task in plan.placement.tasks(scope)
            ]
            for source in plan.topology.sources
        }
        self._stale = set(tasks)

    def changed(self, before: Report, now: Report) -> None:
        """Mark the frontiers that a new report of a task may change."""
        task = now.task
        if task not in self._readers:
            return
        scope = TaskId.parse(task).scope
        self._stale.add(task)
        if (before.ends, before.rebuilt) != (now.ends, now.rebuilt):
            self._stale |= self._readers[task]
        if scope.is_ingest and (before.watermarks, before.floors) != (
            now.watermarks,
            now.floors,
        ):
            self._stale.update(self._closing[scope.name])
        elif (
            scope.name in self.plan.topology.scopes
            and self.plan.topology.scopes[scope.name].on_spark
        ):
            self._stale.update(
                self.plan.placement.tasks(scope.name)
            )  # each reads the inputs of all

    def frontier(self, task: str) -> int:
        """Return the last epoch that a task can no longer produce."""
        if self._stale:
            self._follow()
        first = self._tracker.first_open(task)
        return max(self.of(task).done, ALL if first is None else first - 1)

    def _follow(self) -> None:
        stale, self._stale = self._stale, set()
        for task in stale:
            self._tracker.update(task, self._pointstamp(task))
        self._tracker.propagate()

    def _pointstamp(self, task: str) -> int | None:
        """Return the first epoch that a task keeps open; None if none."""
        done = self.of(task).done
        if task not in self._reads or self._has_unprocessed(task) or self.falls(task):
            return done + 1
        return self.closing(task, after=done)

    def _has_unprocessed(self, task: str) -> bool:
        """Whether some input of a task has records that it has not processed.

        Epochs decide: offsets are given out anew after a loss of records.
        """
        done = self.of(task).done
        for arc, number in self._reads[task]:
            place = TopicPartition(self.plan.deployment.topic(arc), number)
            for writer in self.plan.placement.writers(arc, number):
                report = self.of(writer)
                _, epoch = report.ends.get(place, (0, NEVER))
                if max(epoch, report.rebuilt) > done:
                    return True
        return False

    def falls(self, task: str) -> bool:
        """Whether a task must be rebuilt at a lower watermark, in an epoch to come.

        One that closes no windows just reads on.
        """
        scope, topology = str(TaskId.parse(task).scope), self.plan.topology
        if not topology.closes_windows(scope):
            return False
        return self.of(task).done < self.watermarks.line(topology.sources_behind(scope)).lowered

    def closing(self, task: str, *, after: int, closes: int | None = None) -> int | None:
        """Return the first epoch in which a window of a task closes without any input.

        Args:
            task: A task of a scope.
            after: Only epochs after this one.
            closes: Event time at which its first open window ends; None: as in its report.
        """
        scope, report = str(TaskId.parse(task).scope), self.of(task)
        closes = report.closes if closes is None else closes
        if not self.plan.topology.closes_windows(scope):
            return None
        line = self.watermarks.line(self.plan.topology.sources_behind(scope))
        return line.first(max(closes, report.watermark + 1), after=after)
