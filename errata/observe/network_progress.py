"""How far a network has come: every task's frontier, and the task that holds it back.

The number of an epoch is a clock reading, so lags between epochs are shown as time
(``docs/protocol.md#9-epochs-frontiers-and-watermarks``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

from errata.observe.diagnosis import (
    Complaint,
    Hold,
    complaints,
    holder,
    is_sweeper,
    last_pair,
    moment,
    silent_filters,
    watermark_holds,
)
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.processors.reports.validation import ReportValidator
from errata.processors.wire.report import FOREVER, IDLE, INTERVAL_MS, CountKey
from errata.processors.wire.task_id import TaskId
from errata.topics.cluster import (
    Cluster,
    LostOffsetError,
    MovingLeaderError,
    Reader,
    Records,
    TopicPartition,
)
from errata.topics.registry import Registry

_COUNTED, _COUNT_S = 1_000, 2.0


@dataclass(frozen=True)
class TaskStatus:
    """Status of a task or a sweeper, from its reports. Times are ms since the epoch.

    Args:
        task: Its name.
        attempt: Its attempt; 0 before the first.
        done: The last epoch that it has processed; None before the first.
        frontier: The last epoch that it can no longer produce; None before the first.
        lag_ms: How far the frontier is behind the newest epoch of ingest; None before the first.
        watermark_ms: Event time up to which its input has been seen; None if not known.
        idle: Whether it is an idle partition of a source, which does not hold the watermark.
        ended: Whether its input has ended.
        waiting: Records of its input that it has not processed; of many, transaction markers count
            too.
        counts: Running totals.
        reported_ms: When it last reported; None if it never has.
        held_by: The task that holds its frontier behind the newest epoch: itself, or one upstream;
            None if nothing does.
        held_since_ms: When that task last reported; None if it never has.
        read_again: Records that it has read again, to rebuild what it keeps; None if it does not.
        read_again_of: Of how many; 0 if that is not known.
    """

    task: str
    attempt: int
    done: int | None
    frontier: int | None
    lag_ms: int | None
    watermark_ms: int | None
    idle: bool
    ended: bool
    waiting: int
    counts: Mapping[str, int]
    reported_ms: int | None
    held_by: str | None
    held_since_ms: int | None
    read_again: int | None = None
    read_again_of: int = 0

    def total(self, name: str) -> int:
        """Return a running total, summed over the boxes if each box has its own."""
        return sum(n for key, n in self.counts.items() if CountKey.parse(key).what == name)


@dataclass(frozen=True)
class ArcStatus:
    """Status of an arc with a topic, as readers see it. Times are ms since the epoch.

    Args:
        arc: Its name.
        frontier: The last epoch that is complete in all its partitions; None before the first.
        lag_ms: How far that is behind the newest epoch of ingest; None before the first.
        watermark_ms: Event time up to which its sources have been seen by then; None if not known.
        held_by: The task that holds its frontier behind the newest epoch; None if nothing does.
        held_since_ms: When that task last reported; None if it never has.
    """

    arc: str
    frontier: int | None
    lag_ms: int | None
    watermark_ms: int | None
    held_by: str | None
    held_since_ms: int | None


@dataclass(frozen=True)
class NetworkStatus:
    """Status of a network: its newest epoch of ingest, its tasks and arcs, and what holds it back.

    `silent` has a sentence for each filter that has passed no tuple. `complaints` lists tasks whose
    reports are invalid or missing. `holds` lists the partitions that hold watermarks back.
    """

    network: str
    newest_epoch: int | None
    tasks: list[TaskStatus]
    arcs: list[ArcStatus] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


class _TimedReader:
    """A reader that keeps the time at which the newest record of each key was written."""

    def __init__(self, reader: Reader, written_ms: dict[str, int]) -> None:
        self._reader, self._written_ms = reader, written_ms
        self.position, self.close = reader.position, reader.close
        self.add, self.remove = reader.add, reader.remove

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return the records that have arrived."""
        polled = self._reader.poll(limit=limit, timeout_s=timeout_s)
        for records in polled:
            for key, time_ms in zip(records.keys, records.times_ms, strict=True):
                if key is not None:
                    self._written_ms[key.decode(errors="replace")] = time_ms
        return polled


class Progress(View):
    """A view that also knows when each report was written.

    Args:
        cluster: The cluster that the network runs on.
        plan: The plan that it runs.
        believes: Whether reports count that name a partition without a leader, although nobody
            knows whether their records are there: to be shown, and for nothing else.
    """

    def __init__(self, cluster: Cluster, *, plan: CompiledPlan, believes: bool = False) -> None:
        super().__init__(cluster, plan=plan)
        self.plan: CompiledPlan = plan
        self.written_ms: dict[str, int] = {}
        self.reader: Reader = _TimedReader(self.reader, self.written_ms)
        if believes:
            self.validator = ReportValidator(plan, self._ends_or_any)
        self.leaderless: set[TopicPartition] = set()
        """Partitions that had no leader when their end was looked up last."""

    def ends_of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of partitions, without those that have no leader.

        Raises:
            ClusterError: If no broker answers.
        """
        left = set(places)
        while left:
            try:
                ends = dict(self.cluster.ends(left))
            except MovingLeaderError as error:
                if not left & set(error.places):
                    raise
                self.leaderless |= left & set(error.places)
                left -= self.leaderless
            else:
                self.leaderless -= left
                return ends
        return {}

    def watermark_now(self, scope: str) -> int:
        """Return the watermark of a scope of boxes in the newest epoch of ingest."""
        return self.watermark(self.tasks(scope)[0], upto=self.newest_epoch())

    def _ends_or_any(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of partitions; without a leader, one that no report exceeds."""
        return {place: FOREVER for place in places} | self.ends_of(places)


def current(cluster: Cluster, plan: CompiledPlan) -> Progress:
    """Return what all tasks have reported up to now."""
    progress = Progress(cluster, plan=plan)
    progress.catch_up()
    return progress


def status(
    progress: Progress, *, now_ms: int | None = None, schemas: Registry | None = None
) -> NetworkStatus:
    """Return how far a network has come, from the reports that have been read.

    Args:
        progress: The reports that have been read.
        now_ms: The time; None for the clock's.
        schemas: The registry of its schemas, read to its end.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    topology = progress.plan.topology
    ends = progress.ends_of(_watched(progress))
    scopes = [task for scope in topology.all_scopes for task in progress.tasks(scope)]
    sweepers = sorted(task for task in progress.reports if is_sweeper(task))
    newest = progress.newest_epoch()
    tasks = [_task_status(progress, task, newest, ends) for task in (*scopes, *sweepers)]
    arcs = [arc for arc in topology.topics if not topology.arcs[arc].exchange]
    silent = {task.task: task.held_since_ms for task in tasks if task.held_by == task.task}
    return NetworkStatus(
        progress.plan.network,
        _known(newest),
        tasks,
        [_arc_status(progress, arc, newest) for arc in arcs],
        complaints(
            progress, silent, leaderless=progress.leaderless, schemas=schemas, now_ms=now_ms
        ),
        list(watermark_holds(progress)),
        silent_filters(progress.plan, [report.counts for report in progress.reports.values()]),
    )


def _watched(progress: Progress) -> set[TopicPartition]:
    """Return the partitions of sources, and those that tasks have written."""
    validator, topology = progress.validator, progress.plan.topology
    written = {at for report in progress.reports.values() for at, _ in validator.claims(report)}
    counts = progress.plan.placement.topic_partitions
    return written | {
        TopicPartition(source.topic, partition)
        for name, source in topology.own_sources.items()
        for partition in range(counts[name])
    }


def _arc_status(progress: Progress, arc: str, newest: int) -> ArcStatus:
    plan = progress.plan
    writers = {
        task: progress.frontier(task)
        for partition in range(plan.placement.partitions[arc])
        for task in progress.writers(arc, partition)
    }
    slowest = min(writers, key=lambda task: writers[task])
    frontier = writers[slowest]
    held = holder(progress, slowest) if frontier < newest else None
    return ArcStatus(
        arc,
        _known(frontier),
        max(0, newest - frontier) * INTERVAL_MS if frontier >= 0 else None,
        moment(progress.watermarks.line(plan.topology.sources_of[arc]).at(frontier)),
        held,
        progress.written_ms.get(held) if held else None,
    )


def _task_status(
    progress: Progress, task: str, newest: int, ends: Mapping[TopicPartition, int]
) -> TaskStatus:
    report = progress.of(task)
    scope = TaskId.parse(task).scope
    frontier = report.done if scope.is_sweeper else progress.frontier(task)
    last = last_pair(progress, task)[1] if scope.is_ingest else report.watermark
    watermark = report.watermark
    if str(scope) in progress.plan.topology.scopes:
        last = watermark = progress.watermark(task, upto=frontier)
    waiting = _waiting(progress, task, ends)
    held = None
    if not scope.is_sweeper and (frontier < newest or (waiting and frontier == newest)):
        held = holder(progress, task)
    return TaskStatus(
        task=task,
        attempt=report.attempt,
        done=_known(report.done),
        frontier=_known(frontier),
        lag_ms=max(0, newest - frontier) * INTERVAL_MS if frontier >= 0 else None,
        watermark_ms=moment(watermark),
        idle=last == IDLE,
        ended=last == FOREVER,
        waiting=waiting,
        counts=dict(report.counts),
        reported_ms=progress.written_ms.get(task),
        held_by=held,
        held_since_ms=progress.written_ms.get(held) if held else None,
        read_again=None if report.again is None else report.again[0],
        read_again_of=0 if report.again is None else report.again[1],
    )


def _waiting(progress: Progress, task: str, ends: Mapping[TopicPartition, int]) -> int:
    """Return how many records of a task's input follow the position in its report.

    0 if its input has no leader.
    """
    report = progress.of(task)
    task_id = TaskId.parse(task)
    if task_id.scope.is_ingest:
        source = progress.plan.topology.sources[task_id.scope.name]
        if source.is_bound:
            return 0
        place = TopicPartition(source.topic, task_id.partition)
        offset = report.resume.get(place, 0)
        return records_from(progress.cluster, place, offset, end=ends.get(place, offset))
    is_of_boxes = str(task_id.scope) in progress.plan.topology.scopes
    return waiting_behind(progress, task) if is_of_boxes else 0


def waiting_behind(view: View, task: str) -> int:
    """Return how many input records of a scope's task follow its position.

    Only records covered by reports count; transaction markers among them count too.
    """
    report, count, task_id = view.of(task), 0, TaskId.parse(task)
    for arc in view.plan.topology.scopes[task_id.scope.name].inputs:
        place = TopicPartition(view.plan.deployment.topic(arc), task_id.partition)
        ends = [view.of(w).ends.get(place) for w in view.writers(arc, task_id.partition)]
        unread_ends = [end[0] for end in ends if end is not None and end[1] > report.done]
        count += max(0, max(unread_ends, default=0) - report.resume.get(place, 0))
    return count


def records_from(cluster: Cluster, place: TopicPartition, offset: int, *, end: int) -> int:
    """Return how many records have this offset or a later one, before the end of the log.

    Up to 1000 records are counted exactly. Beyond that, transaction markers and aborted records
    count too. Records of an open transaction don't count.
    """
    count = 0
    if end <= offset:
        return 0
    if end - offset > _COUNTED:
        return end - offset
    reader, deadline = cluster.reader({place: offset}), monotonic() + _COUNT_S
    try:
        while reader.position(place) < end and monotonic() < deadline:
            count += sum(map(len, reader.poll(timeout_s=0.1)))
    except LostOffsetError:
        return end - offset  # retention was faster: the ingest task will stop with an error
    finally:
        reader.close()
    return count


def _known(epoch: int) -> int | None:
    return epoch if epoch >= 0 else None
