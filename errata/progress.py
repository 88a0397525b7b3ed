"""How far a network has come: every task's frontier, and who holds it back since when.

An epoch's number is a clock's reading (DESIGN 5): lags between epochs are told as time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic

from errata.filters import silent_filters
from processors.plan import Plan
from processors.report import FOREVER, IDLE, NEVER
from processors.scopes import INGEST
from processors.task import INTERVAL_MS
from processors.view import View
from processors.watermarks import combined
from topics.cluster import (
    Cluster,
    LostOffsetError,
    Reader,
    Records,
    TopicPartition,
)

STALE_MS = 5_000
"""A task that has something to do and has not reported for so long is busy, or not running."""

_COUNTED, _COUNT_S = 1_000, 2.0


@dataclass(frozen=True)
class TaskStatus:
    """One task, or a sweeper, as its reports tell it. Times are ms since the epoch.

    Args:
        task: Its name.
        attempt: Its life; 0 before the first.
        done: The last epoch it has processed; None before the first.
        frontier: The last epoch that it can no longer produce; None before the first.
        lag_ms: How far the frontier is behind the newest epoch of ingest; None before the first.
        watermark_ms: Event time up to which its input has been seen; None if not known.
        idle: Whether it is an idle partition of a source, which does not hold the watermark.
        ended: Whether its input has ended.
        waiting: Records of its input that it has not processed; of many, marks of transactions'
            ends count too.
        counts: Running totals.
        reported_ms: When it last reported; None if it never has.
        held_by: The task that keeps its frontier from the newest epoch: itself, or one above it;
            None if nothing does.
        held_since_ms: When that one last reported; None if it never has.
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

    def total(self, name: str) -> int:
        """Return a running total; for those of boxes, the sum over the boxes."""
        return sum(n for key, n in self.counts.items() if key.rpartition(".")[2] == name)


@dataclass(frozen=True)
class Hold:
    """A partition of a source that holds the watermark below that of its peers.

    Args:
        source: The source.
        task: The ingest task of the partition.
        watermark_ms: Where it stands; None if it never had a record.
        since_ms: When it last rose, by the number of its epoch; None if it never has.
        peers_ms: The highest watermark among its peers; None if they have ended.
    """

    source: str
    task: str
    watermark_ms: int | None
    since_ms: int | None
    peers_ms: int | None

    def __str__(self) -> str:
        return f"{self.task} holds the watermark of {self.source!r}"


@dataclass(frozen=True)
class NetworkStatus:
    """A network: the newest epoch of any ingest task, its tasks, and who holds watermarks back.

    `silent` has a sentence for each filter that has let nothing pass.
    """

    network: str
    newest_epoch: int | None
    tasks: list[TaskStatus]
    holds: list[Hold] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


class _TimedReader:
    """A reader that notes when the newest record of each key was written."""

    def __init__(self, reader: Reader, written_ms: dict[str, int]) -> None:
        self._reader, self._written_ms = reader, written_ms
        self.position, self.add, self.close = reader.position, reader.add, reader.close

    def poll(self, *, limit: int = 50_000, timeout_s: float = 0.0) -> list[Records]:
        """Return what has arrived."""
        found = self._reader.poll(limit=limit, timeout_s=timeout_s)
        for records in found:
            for key, time_ms in zip(records.keys, records.times_ms, strict=True):
                if key is not None:
                    self._written_ms[key.decode(errors="replace")] = time_ms
        return found


class Progress(View):
    """A view that also knows when each report was written.

    Args:
        cluster: Where the network runs.
        plan: What runs.
    """

    def __init__(self, cluster: Cluster, *, plan: Plan) -> None:
        super().__init__(cluster, plan=plan)
        self.written_ms: dict[str, int] = {}
        self.reader: Reader = _TimedReader(self.reader, self.written_ms)

    def newest_epoch(self) -> int:
        """Return the largest epoch that any ingest task has reported; -1 before the first."""
        ingests = [task for source in self.plan.sources for task in self.tasks(INGEST + source)]
        return max(self.of(task).done for task in ingests)


def current(cluster: Cluster, plan: Plan) -> Progress:
    """Return what all tasks have reported up to now."""
    progress = Progress(cluster, plan=plan)
    progress.catch_up()
    return progress


def status(progress: Progress) -> NetworkStatus:
    """Return how far a network has come, from what has been read of its reports."""
    ingests = [task for s in progress.plan.sources for task in progress.tasks(INGEST + s)]
    scopes = [task for scope in progress.plan.scopes for task in progress.tasks(scope)]
    sweepers = sorted(task for task in progress.reports if task.startswith("sweep."))
    newest = progress.newest_epoch()
    return NetworkStatus(
        progress.plan.network,
        _known(newest),
        [_task_status(progress, task, newest) for task in (*ingests, *scopes, *sweepers)],
        list(watermark_holds(progress)),
        silent_filters(progress.plan, [report.counts for report in progress.reports.values()]),
    )


def holder(view: View, task: str) -> str:
    """Return the task that keeps a frontier from moving: the task itself, or one that it awaits."""
    scope, _, partition = task.rpartition(".")
    if scope in view.plan.scopes:
        frontier = view.frontier(task)
        for arc, number in view.plan.read_by(scope, int(partition)):
            for writer in view.writers(arc, number):
                if view.frontier(writer) <= frontier:
                    return holder(view, writer)
    return task


def watermark_holds(view: View) -> Iterator[Hold]:
    """Yield the partitions that hold a source's watermark well behind that of their peers."""
    for source in view.plan.sources:
        tasks = view.tasks(INGEST + source)
        last = {task: _last_pair(view, task) for task in tasks}
        known = [wm for _, wm in last.values() if wm != IDLE]
        lowest, highest = combined(known), max(known, default=NEVER)
        newest = max(view.of(task).done for task in tasks)
        for task, (epoch, watermark) in last.items():
            stands_ms = (newest - epoch) * INTERVAL_MS
            if watermark == lowest < highest and (watermark == NEVER or stands_ms > STALE_MS):
                yield Hold(
                    source,
                    task,
                    _moment(watermark),
                    epoch * INTERVAL_MS if watermark != NEVER else None,
                    _moment(highest),
                )


def _last_pair(view: View, task: str) -> tuple[int, int]:
    pairs = view.of(task).watermarks
    return pairs[-1] if pairs else (-1, NEVER)


def _task_status(progress: Progress, task: str, newest: int) -> TaskStatus:
    report = progress.of(task)
    scope = task.rpartition(".")[0]
    frontier = report.done if task.startswith("sweep.") else progress.frontier(task)
    last = _last_pair(progress, task)[1] if scope.startswith(INGEST) else report.watermark
    watermark = report.watermark
    if scope in progress.plan.scopes:
        last = watermark = progress.watermark(task, upto=frontier)
    waiting = _waiting(progress, task)
    held = None
    if not task.startswith("sweep.") and (frontier < newest or (waiting and frontier == newest)):
        held = holder(progress, task)
    return TaskStatus(
        task=task,
        attempt=report.attempt,
        done=_known(report.done),
        frontier=_known(frontier),
        lag_ms=max(0, newest - frontier) * INTERVAL_MS if frontier >= 0 else None,
        watermark_ms=_moment(watermark),
        idle=last == IDLE,
        ended=last == FOREVER,
        waiting=waiting,
        counts=dict(report.counts),
        reported_ms=progress.written_ms.get(task),
        held_by=held,
        held_since_ms=progress.written_ms.get(held) if held else None,
    )


def _waiting(progress: Progress, task: str) -> int:
    """Return how many records of a task's input lie behind the position that it reported."""
    report = progress.of(task)
    scope, _, partition = task.rpartition(".")
    if scope.startswith(INGEST):
        source = progress.plan.sources[scope.removeprefix(INGEST)]
        place = TopicPartition(source.topic, int(partition))
        return records_from(progress.cluster, place, report.resume.get(place, 0))
    if scope not in progress.plan.scopes:
        return 0
    count = 0
    for arc in progress.plan.scopes[scope].inputs:
        place = TopicPartition(progress.plan.topic(arc), int(partition))
        ends = [progress.of(w).ends.get(place) for w in progress.writers(arc, int(partition))]
        fresh = [end[0] for end in ends if end is not None and end[1] > report.done]
        count += max(0, max(fresh, default=0) - report.resume.get(place, 0))
    return count


def records_from(cluster: Cluster, place: TopicPartition, offset: int) -> int:
    """Return how many records lie at an offset and behind it.

    Up to a thousand are counted; of more, the marks of transactions' ends and aborted records are
    counted too. Records of an open transaction are not there yet.
    """
    end, count = cluster.end(place), 0
    if end - offset > _COUNTED:
        return end - offset
    reader, deadline = cluster.reader({place: offset}), monotonic() + _COUNT_S
    try:
        while reader.position(place) < end and monotonic() < deadline:
            count += sum(map(len, reader.poll(timeout_s=0.1)))
    except LostOffsetError:
        return end - offset  # retention was faster: its ingest will stop over it, and say so
    finally:
        reader.close()
    return count


def _known(epoch: int) -> int | None:
    return epoch if epoch >= 0 else None


def _moment(watermark: int) -> int | None:
    return watermark if NEVER < watermark < FOREVER else None
