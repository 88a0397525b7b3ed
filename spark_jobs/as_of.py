"""The epoch as of which an arc can be audited, and the tuples that can be judged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import INTERVAL_MS, NEVER, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.spark_jobs.recompute import Way, starts, walk, ways_from, ways_to
from errata.topics.cluster import Cluster, TopicPartition
from errata.topics.settings import FOREVER_MS

LIMIT_S = 30.0
_PAUSE_S = 0.02


class NotAuditableError(ErrataError):
    """An arc can't be recomputed, or not as of the requested epoch."""


@dataclass(frozen=True)
class AsOf:
    """The epoch and watermarks as of which an arc is compared.

    Args:
        epoch: The epoch.
        watermarks: By aggregate that is recomputed: wm(epoch) of its scope.
    """

    epoch: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class Bound:
    """The tuples of an arc that can't be judged, since retention may have removed their inputs.

    Args:
        from_ms: Those that happened before this event time.
        unjudged: Operations of revisions that may be owed to retention alone.
    """

    from_ms: int = NEVER
    unjudged: tuple[int, ...] = ()


class Reports(View):
    """Every report that the progress topic still holds, not only the newest of each task.

    Args:
        cluster: Where the progress topic is.
        plan: Says which tasks there are.
    """

    def __init__(self, cluster: Cluster, *, plan: CompiledPlan) -> None:
        super().__init__(cluster, plan=plan)
        self.plan: CompiledPlan = plan
        self._watermarks: dict[str, dict[int, int]] = {}

    def note(self, report: Report) -> None:
        """Add a report; earlier pairs of epochs and watermarks are kept."""
        pairs = {*self.of(report.task).watermarks, *report.watermarks}
        merged = replace(report, watermarks=tuple(sorted(pairs)))
        super().note(merged)
        if self.of(report.task) is merged:
            task = TaskId.parse_or_none(report.task)
            scope = report.task if task is None else str(task.scope)
            self._watermarks.setdefault(scope, {})[report.done] = report.watermark

    def watermark_at(self, scope: str, epoch: int) -> int | None:
        """Return wm(epoch) of a scope; None if the reports that determine it are gone."""
        known = self._watermarks.get(scope, {-1: NEVER})
        since = max((done for done in known if done <= epoch), default=None)
        line = self.line(scope)
        if since is None or since < epoch < max(self._forgotten(scope), line.lowered):
            return None
        return line.following(since, known[since], epoch=epoch)

    def _forgotten(self, scope: str) -> int:
        """Return the epoch before which source reports no longer determine a scope's watermark."""
        sources = self.plan.topology.sources_behind(scope)
        reports = (self.of(task) for task in self.plan.placement.ingest_tasks(sources))
        return max((floor.epoch for r in reports for floor in r.floors), default=-1)


@dataclass(frozen=True)
class Auditor:
    """Determines which arcs can be audited, as of which epoch, and which of their tuples.

    Args:
        view: The reports, read up to now.
        compaction_lag_ms: How long superseded records stay in connection points.
    """

    view: Reports
    compaction_lag_ms: int

    @property
    def plan(self) -> CompiledPlan:
        """The audited plan."""
        return self.view.plan

    # ---------------------------------------------------------------- which arcs

    def arcs(self) -> dict[str, str]:
        """Return the arcs with topics that boxes write, and why each can't be audited, or "".

        Those of what boxes keep back are left out: what was kept back depends on the past.
        """
        plan = self.plan
        written = [
            arc
            for arc in plan.topology.topics
            if arc in plan.boxes
            and not (plan.topology.arcs[arc].exchange or plan.boxes[arc].reads_back)
        ]
        return {arc: self._fault(arc) for arc in written}

    def require(self, arc: str) -> str:
        """Return an arc's name if the arc can be audited.

        Raises:
            NotAuditableError: If it can't.
        """
        plan, faults = self.plan, self.arcs()
        known = (
            f"arcs that can be audited: {', '.join(a for a in faults if not faults[a]) or 'none'}"
        )
        if arc in faults:
            fault = faults[arc]
        elif arc in plan.topology.sources:
            fault = f"{arc!r} is a source: other arcs are recomputed from it"
        elif arc not in plan.topology.arcs:
            fault = f"network {plan.network!r} has no arc {arc!r}"
        elif arc in plan.boxes and plan.boxes[arc].reads_back:
            fault = f"{arc!r} holds what a box keeps back, which is not recomputed"
        elif plan.topology.arcs[arc].exchange:
            fault = f"{arc!r} is an exchange, which keeps no history"
        else:
            fault = f"arc {arc!r} stays inside its processes and has no topic; give it keep="
        if fault:
            raise NotAuditableError(f"{fault}; {known}")
        return arc

    def _fault(self, arc: str) -> str:
        unkept = [a for a in self._read(arc) if not self.plan.topology.arcs[a].is_connection_point]
        if not unkept:
            return ""
        return f"arc {arc!r} can't be recomputed: {unkept[0]!r} keeps no history; give it keep="

    def _read(self, arc: str) -> list[str]:
        """Return the arcs from which an arc is recomputed."""
        return starts(self.plan, ways_to(self.plan, arc))

    def _recomputed(self, arc: str) -> list[str]:
        """Return the aggregates that are recomputed for an arc."""
        return starts(self.plan, ways_to(self.plan, arc), recomputed=True)

    # ---------------------------------------------------------------- as of when

    def as_of(self, arc: str, *, requested: int | None) -> AsOf:
        """Return the epoch as of which an arc is compared.

        Args:
            arc: The arc.
            requested: The epoch; None for the last one that is complete in all partitions. After a
                job on Spark, an epoch within one of its batches is refused.

        Raises:
            NotAuditableError: If the arc's history does not reach to the epoch.
        """
        jobs = [scope for scope in self._scopes(arc) if self.plan.topology.scopes[scope].on_spark]
        deadline = monotonic() + (LIMIT_S if requested is None else 0.0)
        while True:
            self.view.catch_up()
            complete = self._complete(arc)
            tasks = [task for scope in jobs for task in self.view.tasks(scope)]
            first = max((self.view.of(task).done for task in tasks), default=NEVER)
            last = min((self.view.frontier(task) for task in tasks), default=complete)
            epoch = complete if requested is None else requested
            if first <= epoch <= min(last, complete):
                break
            if monotonic() > deadline:
                raise NotAuditableError(self._not_complete(arc, epoch, complete, jobs, first))
            time.sleep(_PAUSE_S)
        self._require_history(arc, epoch)
        return AsOf(epoch, self._watermarks(arc, epoch))

    def _scopes(self, arc: str) -> list[str]:
        names = [arc, *self._recomputed(arc)]
        return list(dict.fromkeys(self.plan.topology.scope_of(name) for name in names))

    def _complete(self, arc: str) -> int:
        partitions = range(self.plan.placement.partitions[arc])
        return min(self.view.complete(arc, partition)[0] for partition in partitions)

    def _not_complete(
        self, arc: str, epoch: int, complete: int, jobs: Sequence[str], first: int
    ) -> str:
        if epoch < first:
            return (
                f"arc {arc!r} can't be audited as of epoch {epoch}: Spark's job {jobs[0]!r} takes "
                f"many epochs at once, and its last batch ended with {first}; take a later one"
            )
        return (
            f"arc {arc!r} can't be audited as of epoch {epoch}: it is complete up to epoch "
            f"{complete} only; wait, or see `errata status` for what holds it back"
        )

    def _require_history(self, arc: str, epoch: int) -> None:
        """Check that no record of the content as of an epoch has been compacted or moved."""
        deployment = self.plan.deployment
        if epoch < deployment.first_epoch - 1:
            raise NotAuditableError(
                f"arc {arc!r} can't be audited as of epoch {epoch}: version "
                f"{deployment.version} of the plan begins with epoch {deployment.first_epoch}; "
                f"take epoch {deployment.first_epoch - 1}, or a later one"
            )
        oldest = (time.time_ns() // 1_000_000 - self.compaction_lag_ms) // INTERVAL_MS
        if epoch >= oldest or not any(self._later(name, epoch) for name in (arc, *self._read(arc))):
            return
        raise NotAuditableError(
            f"arc {arc!r} can't be audited as of epoch {epoch}: it has been revised since, and "
            f"connection points keep superseded records for {self.compaction_lag_ms} ms only, "
            f"since epoch {oldest}; take a later one, or see `errata status` for what holds the "
            "arc back"
        )

    def _later(self, arc: str, epoch: int) -> bool:
        """Whether an arc has records of later epochs."""
        return any(
            self.view.of(writer).ends.get(place, (0, NEVER))[1] > epoch
            for place in self._places(arc)
            for writer in self.view.writers(arc, place.partition)
        )

    def _places(self, arc: str) -> Iterator[TopicPartition]:
        for partition in range(self.plan.placement.partitions[arc]):
            yield TopicPartition(self.plan.deployment.topic(arc), partition)

    def _watermarks(self, arc: str, epoch: int) -> dict[str, int]:
        watermarks = {}
        for name in self._recomputed(arc):
            wm = self.view.watermark_at(self.plan.topology.scope_of(name), epoch)
            box = self.plan.boxes[name]
            if wm is None and box.emits_on_close:
                raise NotAuditableError(
                    f"arc {arc!r} can't be audited as of epoch {epoch}: the reports that say "
                    f"which windows of {name!r} were closed by then are gone; take a later epoch"
                )
            watermarks[name] = NEVER if wm is None else wm
        return watermarks

    # ---------------------------------------------------------------- which tuples

    def bound(self, arc: str) -> Bound:
        """Return which tuples of an arc can't be judged."""
        ways, unjudged = ways_to(self.plan, arc), list[int]()
        from_ms = max(self._complete_from(way) for way in ways)
        if self.plan.topology.arcs[arc].is_connection_point:
            from_ms = max(from_ms, self._kept_from(arc))
        elif any(self.view.cluster.offset_at(place, 0) for place in self._places(arc)):
            unjudged.append(frames.INSERT)  # the start of the arc's topic is gone
        if any(_moves(way) and self._complete_from(replace(way, boxes=())) > NEVER for way in ways):
            unjudged.append(frames.DELETE)  # its event time doesn't say when the original happened
        if any(map(self._may_lack_halves, walk(self.plan, ways))):
            plain = all(way.is_computed and _is_inner(self.plan, way.start) for way in ways)
            unjudged += [frames.DELETE] if plain else range(len(frames.OPS))
        return Bound(from_ms, tuple(unjudged))

    def _may_lack_halves(self, way: Way) -> bool:
        """Whether a join is recomputed from sides that retention may have shortened.

        Its pairs show when the later half happened; the earlier half may be gone.
        """
        if not way.is_computed or self.plan.boxes[way.start].result_delay_ms is not None:
            return False
        return self._complete_from(replace(way, boxes=())) > NEVER

    def _complete_from(self, way: Way) -> int:
        """Return the event time from which a way yields all tuples that should exist."""
        if _moves(way):
            return NEVER
        if not way.is_computed:
            return self._kept_from(way.start)
        box = self.plan.boxes[way.start]
        read = [way for a in box.history_inputs for way in ways_from(self.plan, a.arc.name)]
        above = max(map(self._complete_from, read))
        if box.result_delay_ms is None or above == NEVER:
            return above
        return above + box.result_delay_ms

    def _kept_from(self, arc: str) -> int:
        """Return the event time from which a connection point keeps all; NEVER if always."""
        plan, kept_ms = self.plan, self.plan.kept_ms[arc]
        if kept_ms + plan.radius_ms(arc) >= FOREVER_MS:
            return NEVER
        tasks = plan.placement.ingest_tasks(plan.topology.sources_of[arc])
        newest = max(self.view.of(task).trusted_ms for task in tasks)
        return NEVER if newest == NEVER else newest - kept_ms


def _is_inner(plan: CompiledPlan, name: str) -> bool:
    return plan.boxes[name].only_adds


def _moves(way: Way) -> bool:
    return any(box.moves_event_time for box in way.boxes)
