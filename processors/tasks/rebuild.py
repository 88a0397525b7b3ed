"""Rebuilds a task in one coalesced epoch when the history as of its epochs is gone.

Connection points keep superseded records for the compaction lag only. No sweeper can answer a task
whose last report is older as of the epochs that it missed. The task logs a warning, recomputes its
boxes from its inputs as of the frontier, and emits the difference to what it emitted last.

Refused tuples become dead letters, except those that the task also refuses when it recomputes as of
its last report: these are dead letters already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from errata.processors.boxes import base as differences
from errata.processors.boxes.base import Refused
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.tasks.scope_run import EpochResult, Memory
from errata.processors.wire.report import CountKey
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError


class CannotRebuildError(ErrataError):
    """A task is behind, and an arc that it must reread keeps no history."""


def check(plan: CompiledPlan, scope: Scope, *, why: str) -> None:
    """Check that all arcs that a rebuild reads keep their history.

    Raises:
        CannotRebuildError: If an input or an output of the scope is not a connection point.
    """
    without_history = [
        a for a in (*scope.inputs, *scope.outputs) if not plan.topology.arcs[a].is_connection_point
    ]
    if without_history:
        raise CannotRebuildError(
            f"scope {scope.name!r} is behind and would have to be rebuilt ({why}), but "
            f"{', '.join(without_history)} keep no history; run the network under another "
            "name, with keep= on these arcs"
        )


def difference(
    arc: Arc, emitted: pl.DataFrame, recomputed: pl.DataFrame, *, settled: int
) -> pl.DataFrame:
    """Return the revisions that turn the emitted tuples into the recomputed ones.

    Tuples that can't be revised any more stay: retention may have removed their inputs.

    Args:
        arc: The arc.
        emitted: Its tuples as emitted last.
        recomputed: Its tuples, recomputed.
        settled: Event time in ms; tuples before it can't have been revised since.
    """
    sides = (side.filter(arc.event_times(side) >= settled) for side in (emitted, recomputed))
    return differences.difference(arc, *sides)


def recompute(
    plan: CompiledPlan,
    scope: Scope,
    inputs: Mapping[str, pl.DataFrame],
    *,
    epoch: int,
    watermark: int,
) -> tuple[dict[str, pl.DataFrame], EpochResult]:
    """Run boxes on the whole content of the inputs; return each arc's tuples and the epoch result.

    Args:
        plan: The whole plan.
        scope: The scope.
        inputs: Tuples of each input arc as of `epoch`.
        epoch: The frontier.
        watermark: wm(epoch).
    """
    content, live, stateful = dict(inputs), {}, {}
    refused: dict[str, list[Refused]] = {}
    for name in scope.boxes:
        box = plan.boxes[name]
        above = [content[arc] for arc in box.inputs]
        content[name], refusals = box.applied(*above, wm=watermark)
        if refusals:
            refused[name] = list(refusals)
        if not box.is_stateless:
            stateful[name], live[name] = box, box.restore(*above, wm=watermark)
    memory = Memory.of(stateful, live, done=epoch, watermark=watermark)
    return content, EpochResult(memory, {}, refused=refused)


def only_new_refusals(result: EpochResult, before: EpochResult) -> EpochResult:
    """Return a result with only the refusals that an earlier result does not have.

    Refused tuples are compared by content, refused results by identity.
    """
    fresh = EpochResult(result.memory, {})
    for box, several in result.refused.items():
        known = before.refused.get(box, [])
        if new := [one for some in several if (one := _only_new(some, known)).reasons]:
            fresh.refused[box] = new
            fresh.counts[str(CountKey("refused", box))] = sum(len(some.reasons) for some in new)
    return fresh


def _only_new(some: Refused, known: Sequence[Refused]) -> Refused:
    rows, names = some.tuples.with_row_index("@row"), some.tuples.columns
    for other in known:
        if other.arc == some.arc and other.tuples.columns == names:
            rows = rows.join(other.tuples, on=names, how="anti", nulls_equal=True)
    return some.only(rows["@row"])
