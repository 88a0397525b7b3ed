"""Rebuilds a task in one coalesced epoch when the history as of its epochs is gone.

Connection points keep superseded records for the compaction lag only. No sweeper can answer a task
whose last report is older as of the epochs that it missed. The task logs a warning, recomputes its
boxes from its inputs as of the frontier, and emits the difference to what it emitted last.

An input without history, such as an exchange, is recomputed from the nearest connection points
above it, in all their partitions. Of an output without history it is not known what was emitted:
the task reports the epoch in which it was rebuilt (`Report.rebuilt`), and its readers are rebuilt
in that epoch, too. So a rebuild goes down the network to the next arcs that keep their history.

Refused tuples become dead letters, except those that the task also refuses when it recomputes as of
its last report: these are dead letters already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes import base as differences
from errata.processors.boxes.base import Box, Refused
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import MAX_AHEAD_MS, Scope
from errata.processors.tasks.scope_run import EpochResult, Memory
from errata.processors.tasks.sink_content import is_readable
from errata.processors.wire.report import CountKey
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.topics.settings import PASSING_MS


class CannotRebuildError(ErrataError):
    """A task is behind, and its state can't be recomputed."""


@dataclass(frozen=True)
class Path:
    """How the content of an arc is recomputed.

    Args:
        anchors: The nearest connection points above the arc, or the arc itself if it is one.
        between: The boxes from there to the arc, in topological order.
    """

    anchors: tuple[str, ...]
    between: tuple[Box, ...]

    def content(
        self, anchors: Mapping[str, pl.DataFrame], arc: str, *, wm: Callable[[str], int]
    ) -> pl.DataFrame:
        """Return the tuples of an arc in all partitions.

        Args:
            anchors: The tuples of each anchor, in all partitions.
            arc: The arc.
            wm: Returns the watermark of the scope that a box runs in.
        """
        contents = dict(anchors)
        for box in self.between:
            above = [contents[name] for name in box.inputs]
            contents[box.arc.name], _ = box.applied(*above, wm=wm(box.arc.name))
        return contents[arc]


def path_to(plan: CompiledPlan, arc: str, *, at_rest: bool = False) -> Path:
    """Return how an arc's content is recomputed.

    Args:
        plan: The plan.
        arc: The arc.
        at_rest: Whether all tasks have processed the epoch as of which it is, and none after it.
            Else it can't be recomputed through a job on Spark, which takes several epochs at once.

    Raises:
        CannotRebuildError: If no connection point is above it on some way.
    """
    anchors: dict[str, None] = {}
    between = set[str]()

    def walk(name: str) -> None:
        if plan.topology.arcs[name].is_connection_point:
            anchors[name] = None
        elif name in plan.boxes and (at_rest or name not in plan.topology.spark):
            between.add(name)
            for above in plan.boxes[name].inputs:
                walk(above)
        else:
            raise CannotRebuildError(
                f"{arc!r} can't be recomputed: {name!r} keeps no history; give it keep="
            )

    walk(arc)
    return Path(tuple(anchors), tuple(box for name, box in plan.boxes.items() if name in between))


def check(plan: CompiledPlan, scope: Scope, *, why: str) -> None:
    """Check that a scope's inputs can be recomputed, and that what it has emitted is known.

    Raises:
        CannotRebuildError: If an input comes from no connection point, or results without history
            go to a sink whose records do not tell what they are of.
    """
    try:
        for arc in scope.inputs:
            path_to(plan, arc)
    except CannotRebuildError as error:
        raise CannotRebuildError(
            f"scope {scope.name!r} is behind and would have to be rebuilt ({why}), but {error}"
        ) from None
    unknown = [
        arc
        for arc in plan.topology.sunk_without_history(scope)
        if (arc not in scope.outputs or passes_on(plan, arc)) and not is_readable(plan, arc)
    ]
    if unknown:
        raise CannotRebuildError(
            f"scope {scope.name!r} is behind and would have to be rebuilt ({why}), but what it has "
            f"sent to the sink of {', '.join(unknown)} is not known, since its records do not have "
            "the identity and the event time; give the arc keep= and start again after `errata "
            "reset`, with another topic for this sink"
        )


def require_history(plan: CompiledPlan, scope: Scope, *, why: str) -> None:
    """Check that the inputs and outputs of a job on Spark keep their history.

    Raises:
        CannotRebuildError: If one is not a connection point.
    """
    without_history = [
        a for a in (*scope.inputs, *scope.outputs) if not plan.topology.arcs[a].is_connection_point
    ]
    if without_history:
        raise CannotRebuildError(
            f"scope {scope.name!r} is behind and would have to be rebuilt ({why}), but "
            f"{', '.join(without_history)} keep no history; give these arcs keep=, and start again "
            "after `errata reset`"
        )


def told_by_sinks(plan: CompiledPlan, scope: Scope, *, has_lost_records: bool) -> list[str]:
    """Return the arcs of a scope of which their sinks tell what was emitted.

    These are the arcs without history; and all, if the brokers have lost what the task had written:
    then sinks have results that the arc's own topic does not have.
    """
    topology = plan.topology
    sunk = topology.sunk(scope) if has_lost_records else topology.sunk_without_history(scope)
    return [arc for arc in sunk if is_readable(plan, arc)]


def passes_on(plan: CompiledPlan, arc: str) -> bool:
    """Whether an output keeps no history and is read by tasks.

    What it held is not known then. It is not revised: its readers are rebuilt in the same epoch.
    """
    return not plan.topology.arcs[arc].is_connection_point and bool(plan.topology.readers(arc))


def may_lack(arc: Arc, *, first: int | None, wrote: bool, settled_ms: int) -> bool:
    """Whether a topic may lack what a task has emitted and may have to revise.

    A topic without history loses records by age. A tuple is written after its event time, but for
    `max_ahead`; so those that can still be revised are there if they are young enough.

    Args:
        arc: The arc.
        first: The offset of the first record in its topic; None if it has none.
        wrote: Whether the task has ever written to it.
        settled_ms: Event time in ms; tuples before it can't be revised any more.
    """
    has_all = not wrote or first == 0
    if arc.is_connection_point or has_all:
        return False
    oldest_ms = time.time_ns() // 1_000_000 - PASSING_MS + MAX_AHEAD_MS
    return settled_ms < oldest_ms


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
    known: Mapping[str, pl.DataFrame] | None = None,
) -> tuple[dict[str, pl.DataFrame], EpochResult]:
    """Run boxes on the whole content of the inputs; return each arc's tuples and the epoch result.

    Args:
        plan: The whole plan.
        scope: The scope.
        inputs: Tuples of each input arc as of `epoch`.
        epoch: The frontier.
        watermark: wm(epoch).
        known: By arc, its tuples where these are not recomputed.
    """
    content, live, stateful = dict(inputs), {}, {}
    refused: dict[str, list[Refused]] = {}
    for name in scope.boxes:
        box = plan.boxes[name]
        above = [content[arc] for arc in box.inputs]
        content[name], refusals = box.applied(*above, wm=watermark)
        if known is not None and name in known:
            content[name] = known[name]
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
