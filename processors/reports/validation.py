"""Validates progress reports; invalid ones are ignored (``docs/protocol.md#4-reports``).

A valid report names a task of the plan, speaks only of partitions that this task writes and reads,
and never goes back. It was committed together with the records that it claims, so whoever reads it
finds them written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from errata.processors.plan.plan import Plan
from errata.processors.wire.report import COUNTED, Report
from errata.processors.wire.task_id import TaskId
from errata.topics.cluster import TopicPartition


@dataclass(frozen=True)
class InvalidReport:
    """A report that is ignored.

    Args:
        report: The report; None if it could not be decoded.
        reason: Why it is invalid.
        time_ms: When it was written, ms since the epoch.
    """

    report: Report | None
    reason: str
    time_ms: int


class ReportValidator:
    """Validates the reports of a network.

    Args:
        plan: The deployed plan. In a report by another plan, claims about unknown topics pass.
        ends: Returns the end offsets of partitions.
    """

    def __init__(
        self, plan: Plan, ends: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
    ) -> None:
        self.plan, self._read_ends = plan, ends
        self._partitions: dict[str, tuple[set[TopicPartition], ...]] = {}
        self._ends: dict[TopicPartition, int] = {}

    def knows(self, task: str) -> bool:
        """Whether the plan has a task, or a sweeper, of this name."""
        known = TaskId.parse_or_none(task)
        if known is None:
            return False
        plan, scope = self.plan, known.scope
        if scope.is_sweeper:
            return scope.name in plan.topology.arcs
        parts: Collection[str] = plan.topology.sources if scope.is_ingest else plan.topology.scopes
        return scope.name in parts and known.partition < plan.placement.task_count(scope)

    def fetch_ends(self, reports: Iterable[Report]) -> None:
        """Fetch the end offsets that validating these reports needs, with at most one request.

        Call it with newly arrived reports, before `why_invalid`.
        """
        unseen = {
            place
            for report in reports
            for place, end in self.claims(report)
            if end > self._end(place)
        }
        if unseen:
            self._ends |= self._read_ends(unseen)

    def note(self, report: Report) -> None:
        """Note that the records that a valid report, or one of this process, claims exist."""
        for place, end in self.claims(report):
            self._ends[place] = max(end, self._end(place))

    def why_invalid(self, report: Report, *, before: Report) -> str | None:
        """Return why a report is invalid; None if it is valid.

        Args:
            report: The report.
            before: The task's report before it.
        """
        return next(self._reasons(report, before), None)

    def _reasons(self, report: Report, before: Report) -> Iterator[str]:
        task, is_same_plan = report.task, report.plan in ("", self.plan.fingerprint)
        if not self.knows(task):
            if is_same_plan:
                yield f"the plan has no task {task!r}"
            return
        for what, number in (("attempt", report.attempt), ("epoch", report.done)):
            if number >= COUNTED:
                yield f"its {what} {number} is none that a task can have reached"
        if is_same_plan and not TaskId.parse(task).scope.is_sweeper:
            written, read, bound = self._partitions_of(task)
            for action, claimed, allowed in (
                ("write", report.ends, bound or written),
                ("read", report.resume, read),
            ):
                for place in claimed:
                    if place not in allowed:
                        yield f"it names {text_of(place)}, which its task does not {action}"
        if not self._are_pairs(report):
            yield "its pairs of epochs here and upstream do not rise together up to the last one"
        for place, end in self.claims(report):
            if end > self._end(place):
                wrote = f"it has written up to offset {end} of {text_of(place)}"
                yield f"{wrote}, which ends at {self._end(place)}"
        if report.attempt < before.attempt:
            yield f"its attempt {report.attempt} follows attempt {before.attempt}"
        if report.attempt != before.attempt:
            return  # the older attempt's last report may have been aborted
        if report.done < before.done:
            yield f"it goes back from epoch {before.done} to {report.done}"
        for place, (offset, _) in report.ends.items():
            if offset < before.ends.get(place, (0, 0))[0]:
                yield f"the end of what it wrote to {text_of(place)} goes back to {offset}"

    def claims_too_much(self, report: Report, *, before: Report) -> bool:
        """Whether nothing else is wrong with a report than records beyond the ends of logs."""
        shorter = {at: min(end, self._end(at)) for at, end in self.claims(report)}
        ends = {at: (shorter.get(at, end), epoch) for at, (end, epoch) in report.ends.items()}
        fits = replace(report, ends=ends)
        return fits != report and self.why_invalid(fits, before=before) is None

    def claims(self, report: Report) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the task's own output partitions in a report, and where its records end there."""
        if self.knows(report.task) and not TaskId.parse(report.task).scope.is_sweeper:
            written = self.written(report.task)
            yield from ((at, end) for at, (end, _) in report.ends.items() if at in written)

    def written(self, task: str) -> set[TopicPartition]:
        """Return the partitions of arcs that a task writes."""
        return self._partitions_of(task)[0]

    def read(self, task: str) -> set[TopicPartition]:
        """Return the partitions that a task reads."""
        return self._partitions_of(task)[1]

    def _end(self, place: TopicPartition) -> int:
        return self._ends.get(place, 0)

    def _partitions_of(self, task: str) -> tuple[set[TopicPartition], ...]:
        """Return the partitions that a task writes, those that it reads, and those of `_bound`.

        Not for sweepers.
        """
        if task not in self._partitions:
            parts = self._written(task), self._read(task), self._bound(task)
            self._partitions[task] = tuple(map(set, parts))
        return self._partitions[task]

    def _are_pairs(self, report: Report) -> bool:
        """Whether `Report.bound` has pairs that readers can follow."""
        rises = all(
            own < later and upstream < next_upstream
            for (own, upstream), (later, next_upstream) in pairwise(report.bound)
        )
        return rises and (not report.bound or report.bound[-1][0] <= report.done)

    def _bound(self, task: str) -> Iterator[TopicPartition]:
        """Yield the partitions of a bound source, of which its ingest task tells what changed."""
        topology, scope = self.plan.topology, TaskId.parse(task).scope
        if scope.is_ingest and scope.name in topology.bound:
            for number in range(self.plan.placement.partitions[scope.name]):
                yield TopicPartition(topology.bound[scope.name], number)

    def _written(self, task: str) -> Iterator[TopicPartition]:
        plan, scope = self.plan, str(TaskId.parse(task).scope)
        for arc in plan.topology.written_by.get(scope, ()):
            for number in range(plan.placement.partitions[arc]):
                if task in plan.placement.writers(arc, number):
                    yield TopicPartition(plan.deployment.topic(arc), number)

    def _read(self, task: str) -> Iterator[TopicPartition]:
        plan, task_id = self.plan, TaskId.parse(task)
        if task_id.scope.is_ingest:
            scope, number = str(task_id.scope), task_id.partition
            tells_all = scope in plan.topology.jobs and number == 0
            numbers = range(len(plan.placement.tasks(scope))) if tells_all else (number,)
            yield from (TopicPartition(plan.group_topic(scope), each) for each in numbers)
            return
        for arc in plan.topology.scopes[task_id.scope.name].inputs:
            if task_id.partition < plan.placement.partitions[arc]:
                yield TopicPartition(plan.deployment.topic(arc), task_id.partition)


def text_of(place: TopicPartition) -> str:
    """Return a partition as text for messages."""
    return f"partition {place.partition} of {place.topic}"
