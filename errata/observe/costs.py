"""Predicts what a correction costs each box, from its structure and from running counts.

Borealis leaves to a planner where connection points are placed (section 3.3). What a revision costs
depends on how much event time it touches, which the windows tell, and on how many tuples there are
in it, which the tasks have counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from errata.processors.boxes.aggregating import Windowed
from errata.processors.boxes.base import Box
from errata.processors.boxes.modes import DOWNSTREAM, RESIDENT
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.windows.time_windows import History, Hopping
from errata.processors.wire.report import CountKey
from errata.processors.wire.task_id import ScopeKind, TaskId

SECOND_MS = 1_000


@dataclass(frozen=True)
class Load:
    """How many tuples a network has.

    Args:
        tuples: By arc: how many tuples it got, so far or in a second.
        corrections: By source: how many of them were corrected or deleted in that time.
        in_window: By aggregate: how many tuples a window of a group holds, if they are known: one
            that is corrected, since large windows are corrected more often.
    """

    tuples: Mapping[str, float]
    corrections: Mapping[str, float]
    in_window: Mapping[str, float] = field(default_factory=dict)


def counted_load(plan: CompiledPlan, counts: Mapping[str, Mapping[str, int]]) -> Load:
    """Return the load of a network that runs, since it started.

    Args:
        plan: Its plan.
        counts: Running totals, by task.
    """
    tuples = dict.fromkeys(plan.topology.sources, 0.0)
    corrections, totals = dict(tuples), dict[CountKey, int]()
    for task, own in counts.items():
        scope = TaskId.parse(task).scope
        source = scope.name
        if scope.kind == ScopeKind.INGEST:
            tuples[source] += own.get("inserted", 0)
            corrections[source] += own.get("replaced", 0) + own.get("deleted", 0)
        for text, count in own.items():
            key = CountKey.parse(text)
            totals[key] = totals.get(key, 0) + count
    in_window = dict[str, float]()
    for name, box in plan.boxes.items():
        tuples[name] = totals.get(CountKey("closed", name), 0) or _sum(tuples, box)
        for windows, held in (("sized_again", "held_again"), ("sized", "held")):
            if sized := totals.get(CountKey(windows, name), 0):
                in_window[name] = totals[CountKey(held, name)] / sized
                break
    return Load(tuples, corrections, in_window)


def assumed_load(plan: CompiledPlan, *, rate: float, corrected: float, groups: int) -> Load:
    """Return the load in a second, if all boxes pass on what they get.

    Args:
        plan: The plan.
        rate: Tuples of each source in a second.
        corrected: The share of them that is corrected.
        groups: Groups of each aggregate.
    """
    tuples = dict.fromkeys(plan.topology.sources, rate)
    corrections = dict.fromkeys(plan.topology.sources, rate * corrected)
    in_window = dict[str, float]()
    for name, box in plan.boxes.items():
        tuples[name] = _sum(tuples, box)
        if isinstance(box, Windowed) and not isinstance(box.window, History):
            in_window[name] = tuples[name] / groups * box.window.extent_ms / SECOND_MS
            if isinstance(box.window, Hopping):
                results = box.window.extent_ms / box.window.slide_ms
                most = groups * SECOND_MS / box.window.slide_ms
                tuples[name] = min(tuples[name] * results, most)
    return Load(tuples, corrections, in_window)


def _sum(tuples: Mapping[str, float], box: Box) -> float:
    return sum(tuples[arc] for arc in box.inputs)


class Spent(NamedTuple):
    """What one correction costs a box.

    Args:
        tuples: Tuples that connection points send it.
        results: Results that it fetches.
        revisions: Revisions that it emits.
        replays: Whether it replays; of several boxes, how many of them.
    """

    tuples: float = 0
    results: float = 0
    revisions: float = 0
    replays: float = 0

    def plus(self, other: Spent) -> Spent:
        """Return what both cost."""
        return Spent(*(mine + own for mine, own in zip(self, other, strict=True)))


class Reach(NamedTuple):
    """The revisions of an arc that one correction causes.

    Args:
        revisions: How many.
        span_ms: How far apart their event times are.
    """

    revisions: float
    span_ms: float


class WayCosts(NamedTuple):
    """What one correction costs an aggregate by either way.

    Args:
        replayed: By replaying.
        fetched: By fetching its results.
        reach: The revisions that it emits.
    """

    replayed: Spent
    fetched: Spent
    reach: Reach


def way_costs(plan: CompiledPlan, load: Load, name: str, reach: Reach) -> WayCosts | None:
    """Return what an aggregate spends for a correction; None if its windows were not seen yet.

    Args:
        plan: The plan.
        load: How many tuples there are.
        name: The aggregate.
        reach: The revisions of its input.
    """
    box = plan.boxes[name]
    in_window = load.in_window.get(name)
    if not isinstance(box, Windowed) or in_window is None:
        return None
    window = box.window
    if isinstance(window, Hopping):
        a_ms = in_window / window.extent_ms
        results = max(1.0, (reach.span_ms + window.extent_ms) / window.slide_ms)
        replayed_ms = window.extent_ms + (results - 1) * window.slide_ms
        after = Reach(results, (results - 1) * window.slide_ms)
    elif isinstance(window, History):
        a_ms, results, replayed_ms, after = in_window, 1.0, 1.0, Reach(1.0, 0.0)
    else:
        a_ms = in_window / window.extent_ms
        results = max(1.0, a_ms * (reach.span_ms + window.extent_ms))
        replayed_ms = reach.span_ms + 2 * window.extent_ms
        after = Reach(results, reach.span_ms + window.extent_ms)
    own, tuples = _sum(load.tuples, box), 0.0
    for anchor in plan.paths[name].anchors:
        whole_ms = replayed_ms if isinstance(window, History) else replayed_ms + anchor.extent_ms
        tuples += a_ms * whole_ms * load.tuples[anchor.arc.name] / own if own else 0.0
    return WayCosts(
        Spent(tuples, 0, after.revisions, 1),
        Spent(0, results, after.revisions),
        after,
    )


def reached(
    plan: CompiledPlan, load: Load, source: str
) -> Iterator[tuple[str, Reach, WayCosts | None]]:
    """Yield the boxes that the correction of a tuple reaches, with the revisions that they emit.

    Args:
        plan: The plan.
        load: How many tuples there are.
        source: The source of the tuple.

    Yields:
        A box, its revisions, and what either way costs it; None where nothing is known of that.
    """
    known = {source: Reach(1.0, 0.0)}
    for name, box in plan.boxes.items():
        above = [known[arc] for arc in box.inputs if arc in known]
        if above:
            reach = Reach(sum(r.revisions for r in above), max(r.span_ms for r in above))
            ways = way_costs(plan, load, name, reach)
            known[name] = reach if ways is None else ways.reach
            yield name, known[name], ways


def spent(plan: CompiledPlan, load: Load, source: str) -> dict[str, Spent]:
    """Return what the correction of a tuple of a source costs each box that it reaches.

    Boxes whose windows were not seen cost nothing.
    """
    found = dict[str, Spent]()
    for name, reach, ways in reached(plan, load, source):
        choice = plan.choices.get(name)
        if ways is None or choice is None or choice.mode == RESIDENT:
            found[name] = Spent(revisions=reach.revisions)
        elif choice.chooses:
            found[name] = min(ways.fetched, ways.replayed, key=lambda way: way.tuples + way.results)
        else:
            found[name] = ways.fetched if choice.mode == DOWNSTREAM else ways.replayed
    return found


def in_all(costs: Iterable[Spent]) -> Spent:
    """Return what all of some costs are together."""
    whole = Spent()
    for each in costs:
        whole = whole.plus(each)
    return whole
