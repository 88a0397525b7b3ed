"""Which tuples nobody needs any more, by their event time.

Ingest refuses revisions that are older than `keep`. What is older by more than the radius of every
box that replays an arc can't have a part in any later result. So the arc's topic, the copies of its
sweepers and the indexes of its writers need not hold it.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import NEVER


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


def passed(shared: Shared, tasks: Iterable[str]) -> int:
    """Return the epoch that all of some tasks have reported; -1 without tasks."""
    return min((shared.view.of(task).done for task in tasks), default=-1)
