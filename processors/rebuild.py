"""When a task is so far behind that history as of its epochs is gone: one coalesced epoch.

Connection points keep superseded records for the compaction lag only. A task whose last report is
older cannot be answered as of the epochs it missed. It says so, computes what its boxes make of its
inputs as they are at the frontier, and emits the difference to what it emitted last (DESIGN 3).
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from processors.boxes.aggregate import Aggregate
from processors.boxes.states import START
from processors.plan import Plan
from processors.scope import Memory
from processors.scopes import Scope
from schemas import revisions as frames
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
    content, live = dict(inputs), {}
    for name in scope.boxes:
        box = plan.boxes[name]
        above = content[box.input.name if isinstance(box, Aggregate) else box.input]
        content[name] = box.recompute(above, watermark)
        if isinstance(box, Aggregate):
            open_now = pl.col(START) + box.window.size_ms > watermark
            live[name] = box.states_of(above).filter(open_now)
    return content, Memory(epoch, watermark, live)


def difference(arc: Arc, emitted: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that lead from one content of an arc to another."""
    identity = list(arc.identity)
    keys = pl.concat([emitted.select(identity), wanted.select(identity)])
    keys = keys.unique(maintain_order=True)

    def side(tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        found = keys.join(
            tuples.with_columns(pl.lit(True).alias("@there")),
            on=identity,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return found.select(list(arc.fields)), found["@there"].fill_null(False)

    return frames.between(*side(emitted), *side(wanted))
