"""The frontier of every task, computed by Timely's tracker from the reports of all tasks.

The tracked graph has a node for each task; boxes inside a task are invisible to it. A pointstamp
keeps an epoch open:

* an ingest task can produce all epochs after the last that it has processed;
* unprocessed records of a task's input can produce output from its next epoch on;
* a task with open windows can produce output in the epoch in which the first of them closes.

All else is inferred: the frontier of a task without these is that of its inputs, and it writes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from errata.processors.plan.plan import Plan
from errata.processors.plan.scope import ingest_scope
from errata.processors.progress.location import Location, Source, Target, fully_connected
from errata.processors.progress.reachability import Builder, Tracker
from errata.processors.progress.summary import IDENTITY
from errata.processors.progress.timestamp import Epoch
from errata.processors.reports.watermarks import Watermarks
from errata.processors.wire.report import NEVER, Report
from errata.processors.wire.task_id import TaskId
from errata.topics.cluster import TopicPartition

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
            task: list(plan.read_by(scope, number))
            for scope in plan.scopes
            for number, task in enumerate(plan.tasks(scope))
        }
        ingests = [task for source in plan.sources for task in plan.tasks(ingest_scope(source))]
        self._nodes, self._tracker = self._built([*ingests, *self._reads])
        self._readers: dict[str, set[str]] = {task: set() for task in self._nodes}
        for task, places in self._reads.items():
            for arc, number in places:
                for writer in plan.writers(arc, number):
                    self._readers[writer].add(task)
        self._closing = {
            source: [
                task
                for scope in plan.scopes
                if plan.closes_windows(scope) and source in plan.sources_behind(scope)
                for task in plan.tasks(scope)
            ]
            for source in plan.sources
        }
        self._told: dict[Location, Epoch] = {}
        self._stale = set(self._nodes)

    def _built(self, tasks: list[str]) -> tuple[dict[str, int], Tracker[Epoch]]:
        graph = Builder(self.plan.network, IDENTITY)
        nodes = {}
        for task in tasks:
            inputs = len(self._reads.get(task, ()))
            nodes[task] = graph.add_node(task, inputs, 1, fully_connected(inputs, 1, IDENTITY))
        for task, places in self._reads.items():
            for port, (arc, number) in enumerate(places):
                for writer in self.plan.writers(arc, number):
                    graph.add_edge(Source(nodes[writer], 0), Target(nodes[task], port))
        return nodes, graph.build()[0]

    def changed(self, before: Report, now: Report) -> None:
        """Mark the frontiers that a new report of a task may change."""
        task = now.task
        if task not in self._nodes:
            return
        scope = TaskId.parse(task).scope
        self._stale.add(task)
        if before.ends != now.ends:
            self._stale |= self._readers[task]
        if scope.is_ingest and (before.watermarks, before.floors) != (
            now.watermarks,
            now.floors,
        ):
            self._stale.update(self._closing[scope.name])
        elif scope.name in self.plan.scopes and self.plan.scopes[scope.name].on_spark:
            self._stale.update(self.plan.tasks(scope.name))  # each reads the inputs of all

    def frontier(self, task: str) -> int:
        """Return the last epoch that a task can no longer produce."""
        if self._stale:
            self._follow()
        found = self._tracker.frontier(Source(self._nodes[task], 0))
        return max(self.of(task).done, found[0] - 1 if found else ALL)

    def _follow(self) -> None:
        stale, self._stale = self._stale, set()
        for task in stale:
            for location, epoch in self._pointstamps(task).items():
                told = self._told.pop(location, None)
                if told is not None:
                    self._tracker.update(location, told, -1)
                if epoch is not None:
                    self._told[location] = Epoch(epoch)
                    self._tracker.update(location, Epoch(epoch), 1)
        self._tracker.propagate_all()

    def _pointstamps(self, task: str) -> Mapping[Location, int | None]:
        """Return the epoch that a task keeps open at each of its locations; None if none."""
        node, done = self._nodes[task], self.of(task).done
        if task not in self._reads:
            return {Source(node, 0): done + 1}
        waiting = (done + 1 if there else None for there in self._waiting(task))
        own: dict[Location, int | None] = {Target(node, n): at for n, at in enumerate(waiting)}
        return {Source(node, 0): self.closing(task, after=done), **own}

    def _waiting(self, task: str) -> Iterator[bool]:
        """Yield for each input of a task whether it has unprocessed records."""
        scope, done = TaskId.parse(task).scope, self.of(task).done
        for arc, number in self._reads[task]:
            place = TopicPartition(self.plan.topic(arc), number)
            resume = self.of(str(scope.task(number))).resume.get(place, 0)
            ends = (self.of(w).ends.get(place, (0, NEVER)) for w in self.plan.writers(arc, number))
            yield any(epoch > done and end > resume for end, epoch in ends)

    def closing(self, task: str, *, after: int, closes: int | None = None) -> int | None:
        """Return the first epoch in which a window of a task closes without any input.

        Args:
            task: A task of a scope.
            after: Only epochs after this one.
            closes: Event time at which its first open window ends; None: as in its report.
        """
        scope, report = str(TaskId.parse(task).scope), self.of(task)
        closes = report.closes if closes is None else closes
        if not self.plan.closes_windows(scope):
            return None
        line = self.watermarks.line(self.plan.sources_behind(scope))
        return line.first(max(closes, report.watermark + 1), after=after)
