"""When a task is so far behind that history as of its epochs is gone: one coalesced epoch.

Connection points keep superseded records for the compaction lag only. A task whose last report is
older cannot be answered as of the epochs it missed. It says so, computes what its boxes make of its
inputs as they are at the frontier, and emits the difference to what it emitted last.

What it refuses of that goes to the dead letters, but for what it refuses as well of what its inputs
have had since before its last report: of that it has told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from errata.processors.boxes import difference as differences
from errata.processors.boxes.base import Refused
from errata.processors.plan.plan import Plan
from errata.processors.plan.scope import Scope
from errata.processors.tasks.scope_run import EpochResult, Memory
from errata.processors.wire.count_key import CountKey
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError


class CannotRebuildError(ErrataError):
    """A task is behind, and an arc it would have to read again keeps no history."""


def check(plan: Plan, scope: Scope, *, why: str) -> None:
    """See that everything a rebuild reads is kept.

    Raises:
        CannotRebuildError: If an input or an output of the scope is not a connection point.
    """
    lost = [a for a in (*scope.inputs, *scope.outputs) if not plan.arcs[a].is_connection_point]
    if lost:
        raise CannotRebuildError(
            f"scope {scope.name!r} is behind and would have to be rebuilt ({why}), but "
            f"{', '.join(lost)} keep no history; run the network under another name, with keep= on "
            "these arcs"
        )


def difference(
    arc: Arc, emitted: pl.DataFrame, made: pl.DataFrame, *, settled: int
) -> pl.DataFrame:
    """Return the revisions that make of what was emitted what was recomputed.

    What can't be revised any more is left as it is: retention may have taken what it was made of.

    Args:
        arc: The arc.
        emitted: Its tuples, by what was emitted last.
        made: Its tuples, recomputed.
        settled: No tuple of an event time before this could be revised since.
    """
    sides = (side.filter(arc.event_times(side) >= settled) for side in (emitted, made))
    return differences.difference(arc, *sides)


def recompute(
    plan: Plan, scope: Scope, inputs: Mapping[str, pl.DataFrame], *, epoch: int, watermark: int
) -> tuple[dict[str, pl.DataFrame], EpochResult]:
    """Return what boxes make of the inputs' whole content, what they keep, and what they refuse.

    Args:
        plan: The whole plan.
        scope: The scope.
        inputs: By input arc, its tuples as of `epoch`.
        epoch: The frontier.
        watermark: wm(epoch).
    """
    content, live, keeping = dict(inputs), {}, {}
    refused: dict[str, list[Refused]] = {}
    for name in scope.boxes:
        box = plan.boxes[name]
        above = [content[arc] for arc in box.inputs]
        content[name], some = box.applied(*above, wm=watermark)
        if some:
            refused[name] = list(some)
        if not box.is_stateless:
            keeping[name], live[name] = box, box.restore(*above, wm=watermark)
    memory = Memory.of(keeping, live, done=epoch, watermark=watermark)
    return content, EpochResult(memory, {}, refused=refused)


def beyond(result: EpochResult, before: EpochResult) -> EpochResult:
    """Return a result with what was not refused before: tuples by content, results by identity."""
    fresh = EpochResult(result.memory, {})
    for box, several in result.refused.items():
        known = before.refused.get(box, [])
        if left := [one for some in several if (one := _beyond(some, known)).reasons]:
            fresh.refused[box] = left
            fresh.counts[str(CountKey("refused", box))] = sum(len(some.reasons) for some in left)
    return fresh


def _beyond(some: Refused, known: Sequence[Refused]) -> Refused:
    rows, names = some.tuples.with_row_index("@row"), some.tuples.columns
    for other in known:
        if other.arc == some.arc and other.tuples.columns == names:
            rows = rows.join(other.tuples, on=names, how="anti", nulls_equal=True)
    return some.only(rows["@row"])
