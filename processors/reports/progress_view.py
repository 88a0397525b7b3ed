"""The progress of all tasks, as one process knows it.

An idle task writes nothing; its progress is inferred from its inputs. From the progress follows
where a reader of an arc starts that wants future epochs only, not its history (`settled`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from time import monotonic

import polars as pl

from errata.processors.plan.deployed import decode_record
from errata.processors.plan.plan import Plan
from errata.processors.plan.topology import ingest_scope
from errata.processors.reports.frontiers import Frontiers, Line, Watermarks
from errata.processors.reports.validation import InvalidReport, ReportValidator
from errata.processors.wire import report as reports
from errata.processors.wire.plan_records import (
    AnyPlanRecord,
    EndRecord,
    PlanRecordError,
    SettleRecord,
    WatermarkRecord,
)
from errata.processors.wire.report import FOREVER, IDLE, MOST_PAIRS, NEVER, SETTLES, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas import by_column, framing
from errata.topics import names
from errata.topics.cluster import Cluster, MovingLeaderError, Records, TopicPartition, catch_up
from errata.topics.transactions import TIMEOUT_S

MOST_UNPROVEN = 20
"""Invalid reports of a task that are held: among them may be its own, if records are lost."""


DELETED = "it has no value: compaction would remove the report before it"
"""Why a deletion of a report is invalid: no task deletes its own."""


@dataclass(frozen=True)
class UnreadableRecord:
    """A record of the plan topic that can't be read, and so does not count.

    Args:
        reason: Why.
        time_ms: When it was written.
    """

    reason: str
    time_ms: int


class View:
    """The newest report of every task, with the frontiers and watermarks that follow from them.

    Args:
        cluster: Holds the progress topic.
        plan: Gives the tasks.
    """

    def __init__(self, cluster: Cluster, *, plan: Plan) -> None:
        self.cluster, self.plan = cluster, plan
        self.source = TopicPartition(names.progress_topic(plan.network), 0)
        self.plans = TopicPartition(names.plan_topic(plan.network), 0)
        self.reader = cluster.reader({self.source: 0, self.plans: 0})
        self.reports: dict[str, Report] = {}
        self.watermarks = Watermarks(plan, self.of)
        self.ignored: dict[str, InvalidReport] = {}
        """By task: an invalid report, until the task writes a valid one."""
        self.unproven: dict[str, deque[Report]] = {}
        """By task: the newest invalid reports since the last valid one, oldest first."""
        self.invalid: dict[str, InvalidReport] = {}
        """By task: the last invalid report."""
        self.invalid_count = 0
        """Number of invalid reports."""
        self.validator = ReportValidator(plan, cluster.ends)
        self.newest_ms = 0
        """When the newest report was written, by the brokers' clock."""
        self._last_valid: dict[str, Report] = {}
        self._complete: dict[tuple[str, int], tuple[int, int]] = {}
        """What `complete` has returned since the last report."""
        self._arrived: list[tuple[str, Report, int]] = []
        self.ends: dict[str, dict[int, int]] = {}
        self.put_back: dict[str, WatermarkRecord] = {}
        """By source: where an operator has put its watermark back to."""
        self.settles = 0
        """How often `errata settle` was run."""
        self.unreadable: dict[bytes, UnreadableRecord] = {}
        """By key of the plan topic: the newest record, if it can't be read."""
        self._versions: dict[type[AnyPlanRecord], int] = {}

    def poll(self) -> None:
        """Read the reports and the declared ends of sources that have arrived."""
        for records in self.reader.poll():
            self._take(records)
        with suppress(MovingLeaderError):  # the next poll tries again
            self._validate_arrived()

    def catch_up(self, *, limit_s: float = 30.0) -> None:
        """Read every report and every record of the plan topic written before the call.

        Raises:
            ClusterError: If that takes longer than `limit_s`: an open transaction may block it.
        """
        until_s = monotonic() + limit_s
        self.poll()
        places = self.plans, self.source
        for records in catch_up(self.cluster, self.reader, *places, limit_s=limit_s):
            self._take(records)
        while True:
            try:
                return self._validate_arrived()
            except MovingLeaderError:
                if monotonic() > until_s:
                    raise

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        self.reader.close()

    def _take(self, records: Records) -> None:
        if records.source == self.source:
            self.newest_ms = max(self.newest_ms, records.times_ms[-1])
        columns = records.keys, records.values, records.times_ms
        for key, value, time_ms in zip(*columns, strict=True):
            if records.source != self.source:
                self._receive_plan_record(key, value, time_ms)
            elif (key, value) != (reports.NO_REPORT, None):
                self._receive_report((key or b"").decode(errors="replace"), value, time_ms)

    def _receive_report(self, key: str, value: bytes | None, time_ms: int) -> None:
        if value is None:  # the task reports again, above it
            self._ignore(key, InvalidReport(None, DELETED, time_ms))
            return
        try:
            self._arrived.append((key, reports.decode(value[framing.HEAD_BYTES :]), time_ms))
        except reports.ReportError as error:
            self._ignore(key, InvalidReport(None, str(error), time_ms))

    def _validate_arrived(self) -> None:
        """Validate the reports that have arrived; apply the valid ones, ignore the others."""
        self.validator.fetch_ends(report for _, report, _ in self._arrived)
        arrived, self._arrived = self._arrived, []
        for key, report, time_ms in arrived:
            reason: str | None = f"it is of task {report.task!r}, which is not its key"
            if report.task == key:
                before = self._last_valid.get(key, Report(key))
                reason = self.validator.why_invalid(report, before=before)
            if reason is not None:
                self._ignore(key, InvalidReport(report, reason, time_ms))
                continue
            self._last_valid[key] = report
            self.note(report)

    def _ignore(self, key: str, invalid: InvalidReport) -> None:
        self.ignored[key] = self.invalid[key] = invalid
        if invalid.report is not None:
            self.unproven.setdefault(key, deque(maxlen=MOST_UNPROVEN)).append(invalid.report)
        self.invalid_count += 1

    def _receive_plan_record(self, key: bytes | None, value: bytes | None, time_ms: int) -> None:
        try:
            record = decode_record(self.plan.network, key, value)
        except PlanRecordError as error:
            self.unreadable[key or b""] = UnreadableRecord(str(error), time_ms)
            return
        self.unreadable.pop(key or b"", None)
        if (
            isinstance(record, EndRecord | WatermarkRecord)
            and record.source not in self.plan.topology.sources
        ):
            reason = (
                f"record {(key or b'').decode()!r} of the plan topic names no source of the "
                f"network, and does not count; check who may write to topic '{self.plans.topic}'"
            )
            self.unreadable[key or b""] = UnreadableRecord(reason, time_ms)
            return
        self._take_plan_record(record)

    def _take_plan_record(self, record: AnyPlanRecord | None) -> None:
        if isinstance(record, EndRecord):
            self.ends[record.source] = dict(record.offsets)
        elif isinstance(record, WatermarkRecord):
            self.put_back[record.source] = record
        elif isinstance(record, SettleRecord):
            self.settles = record.number
        elif record is not None:
            self._versions[type(record)] = record.version

    def unsettled(self, scope: str, task: str) -> int:
        """Return how many runs of `errata settle` a task has still to carry out."""
        if not self.plan.topology.keeps_back(scope):
            return 0
        return max(self.settles - self.of(task).counts.get(SETTLES, 0), 0)

    @property
    def version(self) -> int:
        """The deployed version of the plan, or the announced one if that is newer.

        An announcement may be taken back.
        """
        return max(self._versions.values(), default=1)

    def note(self, report: Report) -> None:
        """Apply a valid report, unless a newer one of the same task is known."""
        self.validator.note(report)
        self.ignored.pop(report.task, None)
        self.unproven.pop(report.task, None)
        known, task = self.of(report.task), TaskId.parse_or_none(report.task)
        if (report.attempt, report.done) < (known.attempt, known.done):
            return
        self.reports[report.task] = report
        self._complete.clear()
        if task is not None and task.scope.is_ingest:
            self.watermarks.changed(task.scope.name)
        self.frontiers.changed(known, report)

    def has_read_to(self, end: int) -> bool:
        """Whether all reports before this offset have been applied or ignored."""
        return self.reader.position(self.source) >= end and not self._arrived

    def of(self, task: str) -> Report:
        """Return the newest report of a task; an empty one before its first."""
        return self.reports.get(task) or Report(task)

    # ---------------------------------------------------------------- readers and writers

    def newest_epoch(self) -> int:
        """Return the largest epoch that any ingest task has reported; -1 before the first."""
        return max(self.of(task).done for task in self.plan.placement.ingest_tasks())

    def tasks(self, scope: str) -> Sequence[str]:
        """Return the tasks of a scope, one per partition."""
        return self.plan.placement.tasks(scope)

    def writers(self, arc: str, partition: int) -> Sequence[str]:
        """Return the tasks that may write to one partition of an arc."""
        return self.plan.placement.writers(arc, partition)

    # ---------------------------------------------------------------- covered records

    def committed(self, tasks: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the last epoch that reports cover now, by task and attempt."""
        return {task: dict(self.of(task).committed) for task in tasks}

    def covered(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions that a report of their task covers; copies stay."""
        return covered(revisions, self.committed(by_column.distinct(revisions["task"])))

    # ---------------------------------------------------------------- frontiers

    @cached_property
    def frontiers(self) -> Frontiers:
        """The frontiers of all tasks."""
        return Frontiers(self.plan, self.of, self.watermarks)

    def frontier(self, task: str) -> int:
        """Return the last epoch that a task can no longer produce."""
        return self.frontiers.frontier(task)

    def complete(self, arc: str, partition: int) -> tuple[int, int]:
        """Return an arc partition's last complete epoch, and the offset after its records."""
        if (arc, partition) not in self._complete:
            place = TopicPartition(self.plan.deployment.topic(arc), partition)
            writers = self.writers(arc, partition)
            end = max(self.of(writer).ends.get(place, (0, 0))[0] for writer in writers)
            self._complete[arc, partition] = min(map(self.frontier, writers)), end
        return self._complete[arc, partition]

    def rebuilt(self, arc: str, partition: int) -> int:
        """Return the last epoch in which a writer of an arc's partition wrote lost records again.

        A reader that has not reached it is rebuilt there. `PENDING` if it is still to come.
        """
        return max(self.of(writer).rebuilt for writer in self.writers(arc, partition))

    # ---------------------------------------------------------------- watermarks

    def line(self, scope: str) -> Line:
        """Return the watermark of a scope by epoch, as far as it is reported."""
        return self.watermarks.line(self.plan.topology.sources_behind(scope))

    def watermark(self, task: str, *, upto: int) -> int:
        """Return wm(upto) for a task of a scope; the task must not have processed later epochs."""
        line, report = self.line(str(TaskId.parse(task).scope)), self.of(task)
        return line.following(report.done, report.watermark, epoch=upto)

    def settled(self, arc: str, *, upto: int) -> int:
        """Return the event time before which no tuple of an arc can be revised after an epoch.

        Ingest refuses tuples that are older than `keep` behind the watermark of their partition.
        `NEVER` if one of these watermarks is not known.
        """
        plan, times_ms = self.plan, [FOREVER]
        for source in plan.topology.sources_of[arc]:
            keep_ms = plan.topology.arcs[source].keep_ms
            newest_ms = self.newest([source], upto=upto)
            known = keep_ms is not None and newest_ms != NEVER
            times_ms.append(newest_ms - (keep_ms or 0) if known else NEVER)
        return NEVER if arc in plan.topology.moved else min(times_ms)

    def newest(self, sources: Iterable[str], *, upto: int) -> int:
        """Return the smallest watermark of the partitions of some sources, as of an epoch.

        It counts idle partitions too, and those that have ended: with the last watermark before.
        Watermarks far ahead of the clock count as they were before: they may be put back there.
        `NEVER` if one is not known.
        """
        tasks = (task for source in sources for task in self.tasks(ingest_scope(source)))
        return min((_newest(self.of(task), upto=upto) for task in tasks), default=NEVER)


def _newest(report: Report, *, upto: int) -> int:
    """Return the watermark of an ingest task as of an epoch; of an idle one, that before it was."""
    pair = next((pair for pair in reversed(report.watermarks) if pair[0] <= upto), (-1, NEVER))
    if pair[1] < FOREVER:
        return min(pair[1], report.trusted_ms)
    # Records may come after the declared end; they move `watermark`, but add no pair.
    is_idle = pair[1] == IDLE and len(report.watermarks) < MOST_PAIRS
    is_current = is_idle and pair == report.watermarks[-1]
    return report.trusted_ms if is_current or report.done <= upto else NEVER


def covered(revisions: pl.DataFrame, committed: Mapping[str, Mapping[int, int]]) -> pl.DataFrame:
    """Return the revisions that a report covers.

    Args:
        revisions: With the ``task``, ``attempt`` and ``epoch`` of each.
        committed: By task and attempt, the last epoch that its reports cover.
    """
    if revisions.is_empty():
        return revisions
    tasks, attempts = revisions["task"], revisions["attempt"]
    if tasks.n_unique() == attempts.n_unique() == 1:
        upto = committed.get(tasks[0], {}).get(attempts[0], NEVER)
        return by_column.kept(revisions, revisions["epoch"] <= upto)
    writers = revisions.select("task", "attempt").unique()
    last = [committed.get(task, {}).get(attempt, NEVER) for task, attempt in writers.iter_rows()]
    known = writers.with_columns(pl.Series("__last", last, dtype=pl.Int64))
    return (
        revisions.join(known, on=["task", "attempt"], how="left", maintain_order="left")
        .filter(pl.col("epoch") <= pl.col("__last"))
        .drop("__last")
    )


_LONGEST_MS = int(2 * TIMEOUT_S * 1000)
"""No transaction stays open this long."""


def settled(view: View, arc: str, *, now_ms: int | None = None) -> tuple[int, list[int]]:
    """Return an epoch, and by partition an offset; records of later epochs lie at or after it.

    The epoch is the newest that a writer of the arc has reported. Records so old that their
    transaction must have ended are reported by now.

    Args:
        view: The tasks' reports; it is caught up here.
        arc: The arc.
        now_ms: The time in ms since 1970; None: the clock's.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    partitions, starts = range(view.plan.placement.partitions[arc]), []
    for partition in partitions:
        place = TopicPartition(view.plan.deployment.topic(arc), partition)
        end = view.cluster.end(place)  # read first: offset_at may return a later one
        starts.append(min(end, view.cluster.offset_at(place, now_ms - _LONGEST_MS)))
    view.catch_up()
    writers = {writer for partition in partitions for writer in view.writers(arc, partition)}
    return max(view.of(writer).done for writer in writers), starts
