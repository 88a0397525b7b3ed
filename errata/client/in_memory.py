"""A network as of an epoch, computed in memory from what its sources held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from errata.processors.boxes.replay import ReplayQuery, merged, overlay
from errata.processors.boxes.sharing import Part
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.tasks.rebuild import recompute
from errata.processors.tasks.scope_run import EpochResult, EpochSteps, Memory, ScopeRun
from errata.processors.wire.report import CountKey

Watermark = Callable[[str], int]
"""Returns the watermark of a scope, in ms."""
WAYS = {
    "replayed": "tuples replayed",
    "fetched": "results fetched",
    "kept_back": "revisions kept back",
}
"""What a box may have done for a revision beside computing from what it keeps, in words."""


class Consequences(NamedTuple):
    """What revisions of sources cause.

    Args:
        revisions: By arc that changes, in topological order: its revisions.
        counts: By box that they reach, in that order: what is counted of an epoch, by name (such as
            ``replayed``, ``fetched`` and ``kept_back``), without zeros.
    """

    revisions: dict[str, pl.DataFrame]
    counts: dict[str, dict[str, int]]

    @property
    def ways(self) -> dict[str, dict[str, int]]:
        """By box that had to look back: how many tuples, results and revisions; see `WAYS`."""
        ways = {box: {w: own[w] for w in WAYS if w in own} for box, own in self.counts.items()}
        return {box: own for box, own in ways.items() if own}


def ways_text(ways: Mapping[str, int]) -> str:
    """Return what a box had to look back for, in words."""
    return ", ".join(f"{count} {WAYS[what]}" for what, count in ways.items())


class InMemory:
    """The content of every arc of a network as of an epoch, and the state of its boxes.

    Args:
        plan: The plan.
        contents: Tuples by source, and of the arcs of what boxes keep back.
        epoch: The epoch.
        watermark: Returns the watermark of a scope in that epoch.
        arcs: The arcs that are needed; None: all.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        contents: Mapping[str, pl.DataFrame],
        *,
        epoch: int,
        watermark: Watermark,
        arcs: Collection[str] | None = None,
    ) -> None:
        self.plan, self.epoch, self.watermark = plan.alone(), epoch, watermark
        self.contents, self._memories = dict(contents), dict[str, Memory]()
        self._scopes = list(_in_order(self.plan, arcs))
        for scope in self._scopes:
            inputs = {arc: self.contents[arc] for arc in scope.inputs}
            found, result = recompute(
                self.plan,
                scope,
                inputs,
                epoch=epoch,
                watermark=watermark(scope.name),
                known=contents,
            )
            self.contents |= found
            self._memories[scope.name] = _with_kept_back(result.memory, self.plan, contents)

    def consequences(
        self, revisions: Mapping[str, pl.DataFrame], *, watermark: Watermark | None = None
    ) -> Consequences:
        """Return what revisions of sources would cause, as an epoch of their own.

        What is in memory stays as it is. What boxes ask for comes from the contents.

        Args:
            revisions: By source; they match its content.
            watermark: Returns the watermark of a scope in that epoch; None: it does not move.
        """
        plan, epoch = self.plan, self.epoch
        changes, counts = dict(revisions), dict[str, dict[str, int]]()
        for scope in self._scopes:
            if changes.keys().isdisjoint(scope.inputs) and watermark is None:
                continue
            run, memory = ScopeRun(plan, scope, partition=0), self._memories[scope.name]
            reached = memory.watermark if watermark is None else watermark(scope.name)
            steps = run.epoch(
                epoch + 1,
                {arc: changes.get(arc, run.nothing[arc]) for arc in scope.inputs},
                memory=memory,
                watermark=max(reached, memory.watermark),
                uncommitted={},
                committed=epoch,
            )
            result = self._answered(steps, changes)
            changes |= result.revisions
            for text, count in result.counts.items():
                key = CountKey.parse(text)
                if count and key.box:
                    counts.setdefault(key.box, {})[key.what] = count
        arcs = plan.topology.arcs
        names = [name for name in arcs if name in changes and not arcs[name].exchange]
        return Consequences({name: changes[name] for name in names}, counts)

    def _answered(self, steps: EpochSteps, changes: Mapping[str, pl.DataFrame]) -> EpochResult:
        """Take an epoch's steps, and answer its requests for history.

        Args:
            steps: The steps.
            changes: The revisions of the epoch so far, by arc.
        """

        def answer(query: ReplayQuery) -> pl.DataFrame:
            arc, content = self.plan.topology.arcs[query.arc], self.contents[query.arc]
            if query.as_of > self.epoch:
                content = overlay(content, arc, [changes[arc.name]] if arc.name in changes else [])
            found = Part(arc, merged(query.ranges)).of(content)
            if query.take is None:
                return found
            query.take(found)
            return found.clear()

        try:
            queries = next(steps)
            while True:
                queries = steps.send([answer(query) for query in queries])
        except StopIteration as stop:
            result: EpochResult = stop.value
            return result


def _in_order(plan: CompiledPlan, arcs: Collection[str] | None) -> Iterator[Scope]:
    """Yield the scopes of boxes, each after those that it reads from.

    Args:
        plan: The plan.
        arcs: Only boxes that these come from, or whose results they fetch; None: all boxes.
    """
    known = {*plan.topology.sources}
    left = [scope for scope in plan.topology.scopes.values() if scope.boxes]
    if arcs is not None:
        needed = _needed(plan, arcs)
        left = [
            replace(scope, boxes=tuple(box for box in scope.boxes if box in needed))
            for scope in left
            if needed.intersection(scope.boxes)
        ]
    while left:  # scopes never form a cycle
        scope = next(s for s in left if known.issuperset(_read(plan, s)))
        left.remove(scope)
        known.update(scope.boxes)
        yield replace(scope, inputs=_read(plan, scope))


def _needed(plan: CompiledPlan, arcs: Collection[str]) -> set[str]:
    """Return the boxes that some arcs come from, and those whose results these fetch."""
    found, left = set[str](), [*arcs]
    while left:
        above = plan.topology.boxes_above(left.pop()) - found
        found |= above
        left += [arc for box in above for arc in plan.fetched_by(box)]
    return found


def _read(plan: CompiledPlan, scope: Scope) -> tuple[str, ...]:
    """Return the arcs from elsewhere that the boxes of a scope read."""
    read = dict.fromkeys(arc for box in scope.boxes for arc in plan.boxes[box].inputs)
    return tuple(arc for arc in read if arc not in scope.boxes)


def _with_kept_back(
    memory: Memory, plan: CompiledPlan, contents: Mapping[str, pl.DataFrame]
) -> Memory:
    """Return a memory that knows how many results boxes keep back."""
    live = {
        name: replace(each, kept_back=contents[name].height)
        if plan.boxes[name].reads_back and name in contents
        else each
        for name, each in memory.live.items()
    }
    return replace(memory, live=live)
