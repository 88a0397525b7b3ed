"""Which tuples nobody needs any more, by their event time.

Ingest refuses revisions that are older than `keep`. What is older by more than the radius of every
box that replays an arc can't have a part in any later result. So the arc's topic, the copies of its
sweepers and the indexes of its writers need not hold it.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.processors.plan.topology import ingest_scope
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER, NEVER
from errata.processors.wire.task_id import ScopeId


def expired_before(shared: Shared, arc: str, *, upto: int, now_ms: int) -> int:
    """Return the event time before which no epoch after some one needs tuples of an arc.

    Args:
        shared: State shared by the tasks of the process.
        arc: A connection point.
        upto: The epoch that all who may ask for tuples have processed.
        now_ms: The clock. Watermarks ahead of it may be wrong, and be corrected later; they let
            nothing expire that is young by the clock.

    Returns:
        An event time in ms; `NEVER` if all tuples may be needed.
    """
    reach_ms = shared.plan.reach_ms.get(arc)
    if reach_ms is None:
        return NEVER
    beside = shared.plan.topology.sources_beside(arc)
    newest_ms = shared.view.newest(beside, upto=upto)
    return NEVER if newest_ms == NEVER else min(newest_ms, now_ms) - reach_ms


def newest_event_ms(shared: Shared, arc: str, *, written_ms: int) -> int:
    """Return an event time after which no tuple of an arc can be, of all that reports cover.

    Once a watermark has been put back, it tells nothing of the tuple that had moved it; then it is
    `max_ahead` after the time of writing.

    Args:
        shared: State shared by the tasks of the process.
        arc: The arc.
        written_ms: A time by which all these tuples had been written.

    Returns:
        An event time in ms; `NEVER` before the first tuple, `FOREVER` if it can have any.
    """
    plan, newest_ms, extents_ms = shared.plan, NEVER, shared.plan.extents_ms(arc)
    for name in plan.topology.sources_of[arc]:
        source = plan.topology.sources[name]
        reports = [shared.view.of(task) for task in shared.view.tasks(ingest_scope(name))]
        known_ms = [r.watermark + source.lateness_ms for r in reports if r.watermark != NEVER]
        if any(report.lowered >= 0 for report in reports):
            ahead_ms = source.max_ahead_ms
            known_ms.append(FOREVER if ahead_ms is None else written_ms + ahead_ms)
        newest_ms = max(newest_ms, *known_ms, NEVER)
    return newest_ms if newest_ms in (NEVER, FOREVER) else newest_ms + extents_ms


def oldest_requested(shared: Shared, arc: str, partition: int) -> int | None:
    """Return the oldest epoch as of which a task may still request a partition's tuples.

    None if no box replays the arc.
    """
    plan = shared.plan
    near = {name for name in plan.boxes if arc in plan.fetched_by(name)}
    tasks: set[str] = set()
    for name, path in plan.paths.items():
        if arc in plan.replayed_everywhere(name):
            tasks.update(plan.placement.tasks(plan.topology.scope_of(name)))
        elif any(anchor.arc.name == arc for anchor in path.anchors):
            near.add(name)
    scopes = (ScopeId.parse(plan.topology.scope_of(name)) for name in near)
    tasks.update(str(scope.task(partition)) for scope in scopes)
    return passed(shared, tasks) if tasks else None


def passed(shared: Shared, tasks: Iterable[str]) -> int:
    """Return the epoch that all of some tasks have reported; -1 without tasks."""
    return min((shared.view.of(task).done for task in tasks), default=-1)
