"""When a task is so far behind that history as of its epochs is gone: one coalesced epoch.

Connection points keep superseded records for the compaction lag only. A task whose last report is
older cannot be answered as of the epochs it missed. It says so, computes what its boxes make of its
inputs as they are at the frontier, and emits the difference to what it emitted last (DESIGN 3).
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from processors.boxes import difference as differences
from processors.boxes.asking import Asking
from processors.plan import Plan
from processors.scope import Memory
from processors.scopes import Scope
from schemas.arc import Arc
from schemas.errors import ErrataError


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
) -> tuple[dict[str, pl.DataFrame], Memory]:
    """Return what every box makes of the inputs' whole content, and the memory to go on with.

    Args:
        plan: The whole plan.
        scope: The scope.
        inputs: Tuples by input arc, as of `epoch`.
        epoch: The frontier.
        watermark: wm(epoch).
    """
    content, live, asking = dict(inputs), {}, {}
    for name in scope.boxes:
        box = plan.boxes[name]
        above = [content[arc] for arc in box.inputs]
        content[name] = box.recompute(*above, wm=watermark)
        if isinstance(box, Asking):
            asking[name], live[name] = box, box.restore(*above, wm=watermark)
    return content, Memory.of(asking, live, done=epoch, watermark=watermark)
