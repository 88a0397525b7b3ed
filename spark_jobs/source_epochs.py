"""Which epoch a batch of a source's records is, and which records it takes.

The driver chooses both before the batch runs, and Spark logs them: a batch that is run again is the
same epoch of the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from errata.processors.ingest.stamping_task import is_awaited, put_back_to
from errata.processors.plan.topology import Source
from errata.processors.reports.progress_view import View
from errata.processors.tasks.elapsed import elapsed_ms, wall_clock_ms
from errata.processors.tasks.expiry import expired_before
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER, IDLE, INTERVAL_MS, NEVER, Report
from errata.spark_jobs.epochs import Bound, Epochs, OutdatedStatesError
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.reading import NOTHING

MOST_RECORDS = 250_000
"""How many records each writer of a batch gets at most, about, where no limit is told."""


class SourceEpochs(Epochs):
    """Follows the reports and chooses the batches of a source.

    Args:
        job: The job.
        view: Progress, as known to this process.
        clock_ms: The wall clock.
    """

    def __init__(
        self, job: Job, view: View, *, clock_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        super().__init__(job, view)
        assert job.source is not None
        self.source: Source = job.source
        self.clock_ms = clock_ms
        self._shared = Shared(view.cluster, job.plan, job.registry, view, job.compaction_lag_ms)
        self._ends: Mapping[Place, int] = {}
        self._moved_ms = [clock_ms() for _ in job.places]
        """By partition of the topic: when its end was last seen to move."""
        self._stamped_ms = clock_ms()

    def _report(self, place: Place) -> Report:
        return self.view.of(self.job.task(place.partition))

    def resume(self, place: Place) -> int:
        """Return the offset of the oldest record that no batch has taken."""
        first = self.view.of(self.job.task(0))
        at = self.job.topic_partition(place)
        return first.resume.get(at, self._report(place).resume.get(at, 0))

    def complete(self) -> Bound:
        """Return how far all can be read now."""
        return Bound(self.view.newest_epoch(), ends=self._stable_ends())

    def _stable_ends(self) -> dict[Place, int]:
        at = {place: self.job.topic_partition(place) for place in self.job.places}
        ends = self.view.cluster.stable_ends(at.values())
        return {place: ends[at[place]] for place in at}

    def next(self, now: Bound, *, most: int | None = None, upto: Bound | None = None) -> Bound:
        """Return the bound up to which a batch reads; the same if there is nothing to do.

        Without records it is an epoch of others that this source follows, or one that declares an
        end, or idle partitions.

        Args:
            now: The last bound.
            most: About how many records the batch takes at most; None: `MOST_RECORDS` a writer.
            upto: How far to read; None: as far as there are records.

        Raises:
            OutdatedStatesError: If reports are ahead of the last bound.
        """
        done, clock = self.reported, self.clock_ms()
        if NOTHING < now.epoch < done:
            raise OutdatedStatesError(self.job.name, "its checkpoint is older than its reports")
        if done < now.epoch:
            return now
        starts = {place: self.resume(place) for place in self.job.places}
        there = self._stable_ends()
        ends = self._limited(starts, there if upto is None else _nearer(there, upto.ends), most)
        idle = self._idle(starts, there, clock)
        lowered = tuple(self._lowered())
        is_busy = ends != starts or bool(idle) or bool(lowered)
        is_busy |= any(map(self._has_end, ends, ends.values()))
        since_ms = elapsed_ms(self._stamped_ms, now_ms=clock)
        is_busy |= is_awaited(self.view, self.job.task(0), since_ms)
        newest = self.view.newest_epoch()
        last = newest if upto is None else upto.epoch
        if is_busy:
            epoch = max(clock // INTERVAL_MS, done + 1, now.epoch + 1, newest)
        elif min(newest, last) > done:
            epoch = newest
        else:
            return now
        self._stamped_ms = clock
        expired = expired_before(self._shared, self.source.arc.name, upto=done, now_ms=clock)
        known = {place: self._report(place).watermark for place in starts}
        known |= {self.job.places[partition]: time_ms for partition, time_ms in lowered}
        return replace(
            now,
            epoch=epoch,
            settled=expired,
            starts=starts,
            ends=ends,
            newest=known,
            idle=idle,
            lowered=lowered,
        )

    def _lowered(self) -> Iterator[tuple[int, int]]:
        """Yield the partitions whose watermark is put back now, with the time."""
        for place in self.job.places:
            time_ms = put_back_to(self.view, self.source.arc.name, self._report(place))
            if time_ms is not None:
                yield place.partition, time_ms

    def _limited(
        self, starts: Mapping[Place, int], there: Mapping[Place, int], most: int | None
    ) -> dict[Place, int]:
        """Return up to where a batch reads: each partition has its part of what there is."""
        ends = {place: max(start, there[place]) for place, start in starts.items()}
        most = MOST_RECORDS * self.job.writers if most is None else most
        total = sum(ends.values()) - sum(starts.values())
        if total <= most:
            return ends
        return {
            place: start + -(-(ends[place] - start) * most // total)
            for place, start in starts.items()
        }

    def _has_end(self, place: Place, end: int) -> bool:
        """Whether a batch reaches the declared end of a partition, which is not reported yet."""
        declared = self.view.ends.get(self.source.arc.name, {}).get(place.partition)
        return declared is not None and end >= declared and self._last(place) != FOREVER

    def _last(self, place: Place) -> int:
        pairs = self._report(place).watermarks
        return pairs[-1][1] if pairs else NEVER

    def _idle(
        self, starts: Mapping[Place, int], there: Mapping[Place, int], clock: int
    ) -> tuple[int, ...]:
        """Return the partitions that fall idle now: nothing has come for some time."""
        after_ms, found = self.source.idle_after_ms, list[int]()
        if after_ms is None:
            return ()
        for place, end in there.items():
            number = place.partition
            if end != self._ends.get(place, end) or end > starts[place]:
                self._moved_ms[number] = clock
            elif elapsed_ms(self._moved_ms[number], now_ms=clock) >= after_ms:
                found += [number] if self._last(place) not in (IDLE, FOREVER) else []
        self._ends = there
        return tuple(found)


def _nearer(one: Mapping[Place, int], other: Mapping[Place, int]) -> dict[Place, int]:
    return {place: min(end, other[place]) for place, end in one.items()}


def epochs_of(job: Job, view: View, clock_ms: Callable[[], int] = wall_clock_ms) -> Epochs:
    """Return what determines the batches of a job."""
    return Epochs(job, view) if job.source is None else SourceEpochs(job, view, clock_ms=clock_ms)
