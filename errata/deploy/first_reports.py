"""The first reports of the tasks of a new version of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from errata.processors.reports.progress_view import View
from errata.processors.wire.report import NEVER, Report
from errata.processors.wire.task_id import ScopeId, TaskId
from errata.topics.cluster import TopicPartition


@dataclass(frozen=True)
class FirstReports:
    """First reports as of the last epoch of the old version, by which it has processed all input.

    Args:
        old: What the old version's tasks have reported.
        new: The same, read with the new version's plan.
        last: That epoch.
    """

    old: View
    new: View
    last: int

    def report(self, task: str, *, filled: Mapping[TopicPartition, tuple[int, int]]) -> Report:
        """Return a task's first report; whoever claims the task sets `attempt` and `committed`.

        Args:
            task: The task.
            filled: End positions of what is rewritten on behalf of its scope.
        """
        plan = self.new.plan
        own_id = TaskId.parse(task)
        scope, partition = str(own_id.scope), own_id.partition
        was = self.old.of(task)
        ended = [self.old.of(peer) for peer in self._peers(scope) if peer not in plan.tasks(scope)]
        counts = dict(was.counts)
        for report in ended if partition == 0 else ():
            for name, total in report.counts.items():
                counts[name] = counts.get(name, 0) + total
        there = {plan.topic(arc) for arc in plan.topics} | {s.topic for s in plan.sources.values()}
        own = {place: end for place, end in filled.items() if place.partition == partition}
        return replace(
            was,
            task=task,
            done=self.last,
            watermark=self.watermark(scope) if scope in plan.scopes else was.watermark,
            ends={place: end for place, end in was.ends.items() if place.topic in there} | own,
            closes=NEVER,  # whatever windows it may find open
            resume=self._unread(task)
            | {place: offset for place, offset in was.resume.items() if place.topic in there},
            counts=counts,
        )

    def watermark(self, scope: str) -> int:
        """Return wm(last) of a scope of boxes, as every reader of the same sources knows it.

        Reports of sources drop watermarks that all readers have passed. Only the readers then know
        that the watermark was higher before.
        """
        plan, view = self.old.plan, self.old
        behind = set(self.new.plan.sources_behind(scope))
        known = [self.new.line(scope).at(self.last)]
        for name in plan.scopes:
            if set(plan.sources_behind(name)) != behind:
                continue
            known += [view.watermark(peer, upto=self.last) for peer in plan.tasks(name)]
        return max(known)

    def _peers(self, scope: str) -> list[str]:
        """Return the tasks of a scope in the old version."""
        there = ScopeId.parse(scope).is_ingest or scope in self.old.plan.scopes
        return self.old.tasks(scope) if there else []

    def _unread(self, task: str) -> dict[TopicPartition, int]:
        """Return where a task starts in topics that are new to it: after all old records."""
        old, new = self.old.plan, self.new.plan
        own, found = TaskId.parse(task), dict[TopicPartition, int]()
        scope = new.scopes.get(str(own.scope))
        for arc in scope.inputs if scope is not None else ():
            if arc in old.topics and old.topic(arc) == new.topic(arc):
                place = TopicPartition(new.topic(arc), own.partition)
                writers = self.old.writers(arc, place.partition)
                found[place] = max(self.old.of(w).ends.get(place, (0, 0))[0] for w in writers)
        return found
