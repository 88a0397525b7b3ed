"""What all ingest tasks do: they stamp epochs, and say where their watermarks rise."""

from __future__ import annotations

from collections.abc import Callable

from errata.processors.declare.declarations import EARLIEST
from errata.processors.plan.topology import MAX_AHEAD_MS, Source, ingest_scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks.elapsed import elapsed_ms
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import (
    FOREVER,
    INTERVAL_MS,
    MOST_PAIRS,
    PENDING,
    Floor,
    Report,
)
from errata.processors.wire.task_id import ScopeId
from errata.topics.cluster import Cluster, TopicPartition
from errata.topics.settings import PASSING_MS

WIDEST_MS = 2_000
AWAITED_MS = 1_000
"""How often an epoch without input is stamped while a task waits for one."""


class StampingTask(Task):
    """A task of a source, which stamps what it takes in with epochs.

    Args:
        shared: State shared by the tasks of the process.
        source: The source.
        partition: Its partition.
        outputs: The arcs that it writes.
        clock_ms: The wall clock.
        epoch_of: Returns the epoch to stamp with; input is then stamped at once. If None, the
            clock picks the epoch, at intervals.
    """

    def __init__(
        self,
        shared: Shared,
        source: Source,
        *,
        partition: int,
        outputs: tuple[str, ...],
        clock_ms: Callable[[], int],
        epoch_of: Callable[[], int] | None = None,
    ) -> None:
        arc = source.arc
        super().__init__(shared, ScopeId.of_source(arc.name).task(partition), outputs=outputs)
        self.source, self.arc, self.clock_ms = source, arc, clock_ms
        self.epoch_of = epoch_of or (lambda: clock_ms() // INTERVAL_MS)
        self.paced = epoch_of is None
        self.stamped_ms = clock_ms()

    def _next_epoch(self, newest: int) -> int:
        """Return the epoch of the next batch: that of other tasks, if one is ahead of this one.

        So the tasks of a process share epochs, however many there are, and readers have fewer.

        Args:
            newest: The largest epoch that any ingest task has reported.
        """
        newest = max(newest, self.shared.stamped)
        if not self.paced or newest <= self.report.done:
            newest = max(self.epoch_of(), self.report.done + 1, newest)
        self.shared.stamped = newest
        return newest

    def _is_due(self, now: int) -> bool:
        """Whether the time to stamp has come."""
        interval_ms = self._interval_ms()
        return not self.paced or now // interval_ms != self.stamped_ms // interval_ms

    def _interval_ms(self) -> int:
        """Return the time between stamps; it grows while readers lag, so that they batch more.

        Tasks stamp at its multiples: others that have input stamp the same epoch, and need not
        follow later.
        """
        least_ms = self.shared.interval_ms
        if self.report.done < 0:
            return least_ms
        slowest = min(
            (self.view.frontier(task) for task in self._readers()), default=self.report.done
        )
        lag_ms = (self.report.done - slowest) * INTERVAL_MS
        wanted_ms = min(max(least_ms, lag_ms // 2), max(least_ms, WIDEST_MS))
        return wanted_ms // least_ms * least_ms

    def _readers(self) -> list[str]:
        """Return the tasks whose watermark depends on this source."""
        return [
            task
            for scope in self.plan.topology.scopes.values()
            if self.arc.name in self.plan.topology.sources_behind(scope.name)
            for task in self.view.tasks(scope.name)
        ]

    def _is_awaited(self, now: int) -> bool:
        """Whether a task of boxes waits for an epoch: to write lost records again, or to settle.

        Without input there would be none. One ingest task stamps it, and the others follow.
        """
        return is_awaited(self.view, self.name, elapsed_ms(self.stamped_ms, now_ms=now))

    def _pairs(
        self, epoch: int, watermark: int, *, falls: bool
    ) -> tuple[tuple[tuple[int, int], ...], tuple[Floor, ...]]:
        """Return the (epoch, watermark) pairs that readers may still need, with the new one.

        Returns the floors too: readers' watermarks as of the pairs that are dropped.

        Args:
            epoch: The epoch.
            watermark: The watermark in it.
            falls: Whether it was put back. Readers that have not passed this epoch are rebuilt in
                it, and need no older pairs.
        """
        if falls:
            return ((epoch, watermark),), ()
        pairs = self.report.watermarks
        peers = self.view.tasks(ingest_scope(self.arc.name))
        passed = min(map(self.view.frontier, (*peers, *self._readers())))
        last = max((e for e, _ in pairs if e <= passed), default=-1)
        kept = tuple(pair for pair in pairs if pair[0] >= last)
        floors = self.report.floors
        if len(kept) < len(pairs):
            floors = self.view.watermarks.floors(self.arc.name, upto=passed)
        if (not kept or kept[-1][1] != watermark) and len(kept) < MOST_PAIRS:
            kept += ((epoch, watermark),)
        return kept, floors


def put_back_to(view: View, source: str, report: Report) -> int | None:
    """Return where a task's watermark is to be put back to in its next epoch; None: nowhere.

    Only one that has run ahead of the clock is. What may have expired by then, or does not count as
    revisable any more, is older than the last one before that.

    Args:
        view: The progress of the network.
        source: The source.
        report: The report of its ingest task.
    """
    record = view.put_back.get(source)
    if record is None or (report.watermarks and report.watermarks[-1][1] == FOREVER):
        return None
    return record.time_ms if report.trusted_ms < record.time_ms < report.watermark else None


def is_awaited(view: View, task: str, since_ms: int) -> bool:
    """Whether a task of boxes waits for an epoch: to write lost records again, or to settle.

    Without input there would be none. One ingest task stamps it, and the others follow.

    Args:
        view: The progress of the network.
        task: The ingest task that asks.
        since_ms: How long ago it has stamped the last epoch.
    """
    if task != next(iter(view.plan.placement.ingest_tasks())) or since_ms < AWAITED_MS:
        return False
    scopes = view.plan.topology.scopes
    tasks = ((scope, each) for scope in scopes for each in view.tasks(scope))
    return any(
        view.of(each).rebuilt == PENDING or view.unsettled(scope, each) for scope, each in tasks
    )


def first_positions(
    source: Source, place: TopicPartition, cluster: Cluster
) -> dict[TopicPartition, int]:
    """Return where a first attempt begins to read a partition of a source's topic."""
    if source.start == EARLIEST:
        return {}
    if isinstance(source.start, int):
        return {place: cluster.offset_at(place, source.start)}
    return {place: cluster.end(place)}


def believed(
    newest_ms: int, *, before_ms: int, now_ms: int, certain_ms: int | None = MAX_AHEAD_MS
) -> int | None:
    """Return the part of a watermark that is certain; None if that is all of it.

    Args:
        newest_ms: The watermark.
        before_ms: The certain part before a batch.
        now_ms: The clock.
        certain_ms: A watermark that is ahead of the clock by more may be wrong; None: none is.
    """
    if certain_ms is None or newest_ms <= now_ms + certain_ms:
        return None
    return max(min(before_ms, now_ms + certain_ms), now_ms - PASSING_MS)
