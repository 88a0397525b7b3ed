"""Which epochs a batch takes: whole ones only, as reported in the progress topic.

A Spark batch is one coalesced epoch: it takes everything between two bounds at which the input was
complete, and its report names the upper one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from errata.processors.reports.progress_view import View
from errata.processors.wire.report import NEVER
from errata.schemas.errors import ErrataError
from errata.spark_jobs.job import Job
from errata.spark_jobs.limits import Backlog
from errata.spark_jobs.place import Place
from errata.spark_jobs.reading import NOTHING

log = logging.getLogger("errata")

OUTDATED = "its states have to be made anew"
_PUT_BACK = "a watermark was put back"


class OutdatedStatesError(ErrataError):
    """A job can't continue from its states."""

    def __init__(self, job: str, why: str) -> None:
        super().__init__(f"job {job!r}: {OUTDATED}: {why}")


@dataclass(frozen=True)
class Bound:
    """A point between two batches: the offset in Spark's log.

    Args:
        epoch: The last epoch before it.
        watermark: wm(epoch).
        starts: By partition of an input, where the batch begins that ends here.
        ends: By partition of an input, where it has read everything.
        settled: No tuple of an event time before this can be revised in later epochs.
        newest: By partition of a source's topic, its newest event time before the batch that ends
            here, less lateness.
        idle: The partitions of a source's topic that have fallen idle.
        settles: How many runs of `errata settle` it carries out, with earlier ones; 0: none is new.
        lowered: The partitions of a source's topic whose watermark is put back, with the time.
        settled_before: No tuple of an event time before this could be revised before the batch that
            ends here. None: as the job has reported, in logs of older releases.
    """

    epoch: int = NOTHING
    watermark: int = NEVER
    settled: int = NEVER
    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)
    newest: Mapping[Place, int] = field(default_factory=dict)
    idle: Sequence[int] = ()
    settles: int = 0
    lowered: tuple[tuple[int, int], ...] = ()
    settled_before: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        by_place = {"starts": self.starts, "ends": self.ends, "newest": self.newest}
        return {
            "epoch": self.epoch,
            "watermark": self.watermark,
            "settled": self.settled,
            **{
                name: {str(place): number for place, number in numbers.items()}
                for name, numbers in by_place.items()
            },
            "idle": list(self.idle),
            "settles": self.settles,
            "lowered": [list(pair) for pair in self.lowered],
            "settled_before": self.settled_before,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Bound:
        """Return the bound of a `plain` object."""
        starts, ends, newest = (
            {Place.parse(place): number for place, number in plain.get(name, {}).items()}
            for name in ("starts", "ends", "newest")
        )
        numbers = plain["epoch"], plain["watermark"], plain["settled"]
        idle, settles = tuple(plain.get("idle", ())), plain.get("settles", 0)
        lowered = _pairs(plain.get("lowered", ()))
        before = plain.get("settled_before")
        return cls(*numbers, starts, ends, newest, idle, settles, lowered, before)


def _pairs(plain: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((partition, time_ms) for partition, time_ms in plain)


@dataclass(frozen=True)
class Batch:
    """The coalesced epoch of a batch, as every row of it carries it.

    Args:
        after: The epoch that it follows; `NOTHING`: it takes the whole content instead.
        epoch: Its number.
        wm_before: wm(after).
        wm: wm(epoch).
        settled_before: No tuple of an event time before this could be revised after `after`.
        settled: Nor before this after `epoch`.
        parts: How many parts the whole content is processed in, so that each fits into memory.
        idle: The partitions of a source's topic that have fallen idle.
        settles: How many runs of `errata settle` it carries out, with earlier ones; 0: none is new.
        lowered: The partitions of a source's topic whose watermark is put back, with the time.
    """

    after: int
    epoch: int
    wm_before: int
    wm: int
    settled_before: int = NEVER
    settled: int = NEVER
    parts: int = 1
    idle: Sequence[int] = ()
    settles: int = 0
    lowered: tuple[tuple[int, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the batch starts from nothing: states are rebuilt from the whole content."""
        return self.after == NOTHING

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Batch:
        """Return the batch of a `text`."""
        plain = json.loads(text)
        return cls(**plain | {"lowered": _pairs(plain["lowered"])})


class Epochs:
    """Follows the reports and determines how far a job can read.

    Args:
        job: The job.
        view: Progress, as known to this process.
    """

    def __init__(self, job: Job, view: View) -> None:
        self.job, self.view = job, view

    @property
    def reported(self) -> int:
        """The last epoch that the job itself has reported."""
        return min(self._reported())

    def _reported(self) -> dict[int, int]:
        """Return the last epochs that the job's tasks have reported, each with its watermark.

        There is one epoch, unless a late EndTxn has exposed half of a transaction.
        """
        reports = [self.view.of(self.job.task(p)) for p in range(self.job.task_count)]
        return {report.done: report.watermark for report in reports}

    def complete(self) -> Bound:
        """Return how far all can be read now: up to the last complete epoch of the inputs."""
        return Bound(min(self.view.complete(*place)[0] for place in self.job.places))

    def next(self, now: Bound, *, most: int | None = None, upto: Bound | None = None) -> Bound:
        """Return the bound up to which a batch reads; the same if nothing changed.

        Args:
            now: The last bound. If reports are ahead of it, because what Spark knew is older than
                what was reported, the next bound is theirs; behind `NOTHING` if they differ.
            most: About how many records the batch takes at most, in whole epochs; None: all up to
                the last complete epoch. A batch behind `NOTHING` always takes all.
            upto: How far to read; None: up to the last complete epoch.

        Raises:
            OutdatedStatesError: If a watermark was put back since.
        """
        complete = {place: self.view.complete(*place) for place in self.job.places}
        ends: Mapping[Place, int] = {place: end for place, (_, end) in complete.items()}
        epoch, wm, starts = min(epoch for epoch, _ in complete.values()), now.watermark, now.starts
        epoch = epoch if upto is None else min(epoch, upto.epoch)
        task, reported = self.job.task(0), self._reported()
        ahead = sorted(done for done in reported if done > now.epoch)
        if now.epoch == NOTHING and len(reported) > 1:
            epoch = max(reported)
            wm = reported[epoch]
        elif now.epoch > NOTHING and ahead and min(reported) >= now.epoch:
            epoch = ahead[0]
            wm = reported[epoch]
            if wm < now.watermark:
                raise OutdatedStatesError(self.job.name, _PUT_BACK)
        elif epoch <= now.epoch or min(reported) < now.epoch:
            return now
        else:
            if self.view.frontiers.falls(task):
                if now.epoch > NOTHING:
                    raise OutdatedStatesError(self.job.name, _PUT_BACK)
                if epoch < self.view.line(self.job.scope.name).lowered:
                    return now
            if now.epoch > NOTHING:
                starts = {place: self.resume(place) for place in complete}
                backlog = Backlog(self.view, self.job.codec, ends, now.epoch)
                epoch, ends, is_over = backlog.limited(epoch, starts, most)
                if is_over:
                    log.warning(
                        "job %r: epoch %d alone has more records than the %d of --max-records; "
                        "it is processed in one batch", self.job.name, epoch, most,
                    )  # fmt: skip
            report, line = self.view.of(task), self.view.line(self.job.scope.name)
            done, wm = report.done, report.watermark
            if now.epoch > NOTHING:
                done, wm = now.epoch, now.watermark
            wm = line.following(done, wm, epoch=epoch)
            is_due = now.epoch == NOTHING or wm != now.watermark or self._has_input(now)
            if not is_due and not self._settles():
                return now
        settled, settles = self._settled(epoch), self._settles()
        before = self.view.of(task).settled_ms
        return Bound(epoch, wm, settled, starts, ends, settles=settles, settled_before=before)

    def _settles(self) -> int:
        """Return how many runs of `errata settle` there were, if a task has not carried out one."""
        scope, tasks = self.job.name, map(self.job.task, range(self.job.task_count))
        is_new = any(self.view.unsettled(scope, task) for task in tasks)
        return self.view.settles if is_new else 0

    def _settled(self, epoch: int) -> int:
        """Return the event time before which no tuple that it writes can be revised any more."""
        times_ms = (self.view.settled(arc, upto=epoch) for arc in self.job.outputs)
        return min(times_ms, default=NEVER)

    def resume(self, place: Place) -> int:
        """Return the offset of the oldest input record that no batch has taken."""
        report = self.view.of(self.job.task(place.partition))
        return report.resume.get(self.job.topic_partition(place), 0)

    def _has_input(self, now: Bound) -> bool:
        """Whether there are records of epochs that no batch has taken."""
        for place in self.job.places:
            at = self.job.topic_partition(place)
            for writer in self.view.writers(*place):
                end, epoch = self.view.of(writer).ends.get(at, (0, NEVER))
                if epoch > now.epoch and end > self.resume(place):
                    return True
        return False
