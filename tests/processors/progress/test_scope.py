"""Scopes: who runs when, what is seen outside, and the same frontiers as without scopes."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.progress.antichain import Antichain
from errata.processors.progress.location import (
    OUTSIDE,
    Connectivity,
    Source,
    Target,
    fully_connected,
)
from errata.processors.progress.operate import Initialized, Interest, Progress
from errata.processors.progress.reachability import EndlessCycleError
from errata.processors.progress.refinement import Region, Rounds
from errata.processors.progress.scope import Scope, ScopeBuilder
from errata.processors.progress.summary import IDENTITY, Advance, ProductSummary
from errata.processors.progress.timestamp import Epoch, Product
from tests.processors.progress.nested import World, live, settle

ROUND = ProductSummary(IDENTITY, Advance(1))
STILL = ProductSummary(IDENTITY, IDENTITY)
seeds = st.integers(0, 10**9)


@settings(max_examples=60)
@given(seed=seeds)
def test_nested_scopes_have_the_frontiers_of_the_graph_laid_out_flat(seed: int) -> None:
    live(World(Random(seed), interest=Interest.ALWAYS, check=0.05), 40, check=0.3)


@settings(max_examples=60)
@given(seed=seeds)
def test_scopes_stay_safe_and_end_if_operators_do_not_hear_of_frontiers(seed: int) -> None:
    live(World(Random(seed), interest=None, check=0.05), 40, check=0.3)


class Scripted:
    """An operator that does what it is told to when it runs, and writes down that it ran."""

    def __init__(
        self,
        name: str,
        ran: list[str],
        *,
        inputs: int = 1,
        outputs: int = 1,
        interest: Interest = Interest.NEVER,
        paths: Connectivity[Any] | None = None,
        holds: Sequence[Any] = (),
    ) -> None:
        self.name, self.ran, self.inputs, self.outputs = name, ran, inputs, outputs
        self.interest = [interest] * inputs
        self.paths = fully_connected(inputs, outputs, IDENTITY) if paths is None else paths
        self.progress: Progress[Any] = Progress(inputs, outputs)
        self.incomplete = False
        self.script: list[Callable[[Progress[Any]], None]] = []
        for time in holds:
            self.progress.internals[0].update(time, 1)

    def initialize(self) -> Initialized[Any]:
        return Initialized(self.paths, self.progress, self)

    def schedule(self) -> bool:
        self.ran.append(self.name)
        while self.script:
            self.script.pop(0)(self.progress)
        return self.incomplete

    def sends(self, *times: Any) -> None:
        self.script += [lambda p, t=time: p.produceds[0].update(t, 1) for time in times]

    def takes(self, *times: Any, port: int = 0) -> None:
        self.script += [lambda p, t=time: p.consumeds[port].update(t, 1) for time in times]

    def moves_to(self, before: Any, after: Any) -> None:
        self.script.append(lambda p: p.internals[0].update(before, -1))
        if after is not None:
            self.script.append(lambda p: p.internals[0].update(after, 1))


def started(scope: ScopeBuilder[Any, Any], ran: list[str]) -> Scope[Any, Any]:
    """The scope, told of epoch 0 outside and settled; nobody has run, as far as `ran` says."""
    running = scope.build()
    for batch in running.progress.frontiers:
        batch.update(Epoch(0), 1)
    settle(running)
    ran.clear()
    return running


def row(
    ran: list[str], interest: Interest = Interest.NEVER
) -> tuple[Scope[Any, Any], list[Scripted]]:
    """A source, a map and a sink; and back from the sink to the map, an epoch later."""
    scope: ScopeBuilder[Any, Any] = ScopeBuilder("row", Region(IDENTITY))
    members = [
        Scripted("source", ran, inputs=0, holds=[Epoch(0)]),
        Scripted("map", ran, inputs=2, interest=interest),
        Scripted("sink", ran, paths=[{0: Antichain([Advance(1)])}]),
    ]
    for member in members:
        scope.add(member)
    scope.connect(Source(1, 0), Target(2, 0))
    scope.connect(Source(2, 0), Target(3, 0))
    scope.connect(Source(3, 0), Target(2, 1))
    return started(scope, ran), members


def test_a_round_runs_each_child_once_by_number_and_what_goes_back_waits_for_the_next() -> None:
    ran: list[str] = []
    scope, (source, map_, sink) = row(ran)
    source.sends(Epoch(0), Epoch(0), Epoch(0))
    map_.takes(Epoch(0), Epoch(0), Epoch(0))
    map_.sends(Epoch(0))
    sink.takes(Epoch(0))
    sink.sends(Epoch(1))
    for number in (3, 1, 3, 1):
        scope.activate(number)
    scope.schedule()
    assert ran == ["source", "map", "sink"]
    assert scope.progress.run_again
    scope.schedule()
    assert ran == ["source", "map", "sink", "map"]
    assert not scope.tracker.pointstamps(Target(2, 0))
    assert scope.tracker.pointstamps(Target(2, 1)).frontier == (1,)


@pytest.mark.parametrize(
    ("interest", "holding", "runs"),
    [
        (Interest.NEVER, True, False),
        (Interest.IF_CAPABILITY, False, False),
        (Interest.IF_CAPABILITY, True, True),
        (Interest.ALWAYS, False, True),
    ],
)
def test_a_change_of_a_frontier_runs_those_that_want_to_know(
    interest: Interest, holding: bool, runs: bool
) -> None:
    ran: list[str] = []
    scope, (source, map_, _) = row(ran, interest)
    if holding:
        source.sends(Epoch(0))
        map_.takes(Epoch(0))
        map_.script.append(lambda p: p.internals[0].update(Epoch(7), 1))
    scope.activate(1)
    settle(scope)
    ran.clear()
    source.moves_to(Epoch(0), Epoch(3))
    scope.activate(1)
    settle(scope)
    assert ("map" in ran) == runs
    assert dict(map_.progress.frontiers[0])[Epoch(3)] == 1


def test_an_operator_is_let_go_once_nothing_reaches_it_and_it_has_nothing_left() -> None:
    ran: list[str] = []
    scope, (source, map_, _) = row(ran)
    map_.incomplete = True
    source.moves_to(Epoch(0), None)
    scope.activate(1)
    assert settle(scope)  # the map has work left
    assert sorted(ran) == ["map", "sink", "source", "source"]
    assert not any(scope.tracker.frontier(Target(n, 0)) for n in (2, 3))
    map_.incomplete = False
    scope.activate(2)
    assert not scope.schedule()
    ran.clear()
    for number in (1, 2, 3):
        scope.activate(number)
    assert not scope.schedule()
    assert ran == []


def test_an_operator_that_asks_to_runs_again() -> None:
    ran: list[str] = []
    scope, (_, map_, _) = row(ran)
    map_.script.append(lambda p: setattr(p, "run_again", True))
    assert not scope.progress.run_again
    scope.activate(2)
    assert scope.progress.run_again
    scope.schedule()
    assert scope.progress.run_again
    scope.schedule()
    assert ran == ["map", "map"]
    assert not scope.progress.run_again


def test_a_message_without_an_edge_leads_nowhere() -> None:
    ran: list[str] = []
    scope: ScopeBuilder[Any, Any] = ScopeBuilder("alone", Region(IDENTITY))
    source = Scripted("source", ran, inputs=0, holds=[Epoch(0)])
    scope.add(source)
    running = started(scope, ran)
    source.sends(Epoch(0))
    source.moves_to(Epoch(0), None)
    running.activate(1)
    assert not settle(running)
    assert not running.tracker.tracks_anything()


def loop(ran: list[str]) -> tuple[ScopeBuilder[Any, Any], Scripted, Scripted]:
    """The seed's figure: an inner loop of a body and a feedback, within a stream."""
    inner: ScopeBuilder[Any, Any] = ScopeBuilder("loop", Rounds(IDENTITY), inputs=1, outputs=1)
    body = Scripted("body", ran, inputs=2, outputs=2, paths=fully_connected(2, 2, STILL))
    back = Scripted("feedback", ran, paths=fully_connected(1, 1, ROUND))
    inner.add(body)
    inner.add(back)
    inner.connect(Source(OUTSIDE, 0), Target(1, 0))
    inner.connect(Source(1, 0), Target(OUTSIDE, 0))
    inner.connect(Source(1, 1), Target(2, 0))
    inner.connect(Source(2, 0), Target(1, 1))
    return inner, body, back


def drained(batch: Any) -> list[Any]:
    return sorted(batch.drain())


def test_a_loop_reports_what_came_and_what_is_left_at_once_and_rounds_stay_inside() -> None:
    ran: list[str] = []
    inner, body, back = loop(ran)
    scope = started(inner, ran)
    assert not scope.progress.internals[0]  # what may come from outside is not held here
    scope.progress.frontiers[0].update(Epoch(0), -1)
    scope.progress.frontiers[0].update(Epoch(5), 1)
    scope.enter(0, Epoch(3), 2)
    scope.schedule()
    assert drained(scope.progress.consumeds[0]) == [(3, 2)]
    assert drained(scope.progress.internals[0]) == [(3, 1)]
    for turn in range(4):
        body.takes(Product(Epoch(3), Epoch(turn)), port=min(turn, 1))
        body.script.append(lambda p, t=turn: p.produceds[1].update(Product(Epoch(3), Epoch(t)), 1))
        back.takes(Product(Epoch(3), Epoch(turn)))
        back.sends(Product(Epoch(3), Epoch(turn + 1)))
        scope.activate(1)
        scope.schedule()
        scope.schedule()
        assert not body.script + back.script
        assert not any([*scope.progress.internals, *scope.progress.consumeds])
        assert scope.tracker.frontier(Target(1, 1)) == (Product(Epoch(3), Epoch(1)),)
    body.takes(Product(Epoch(3), Epoch(0)), port=0)
    body.takes(Product(Epoch(3), Epoch(4)), port=1)
    body.sends(Product(Epoch(3), Epoch(4)))
    scope.activate(1)
    scope.schedule()
    scope.schedule()
    assert drained(scope.progress.produceds[0]) == [(3, 1)]
    assert drained(scope.progress.internals[0]) == [(3, -1)]
    assert not scope.progress.consumeds[0]
    assert scope.tracker.frontier(Target(1, 0)) == (Product(Epoch(5), Epoch(0)),)


def test_a_loop_is_seen_from_outside_as_one_path_from_input_to_output() -> None:
    inner, _, _ = loop([])
    assert inner.build().connectivity == [{0: Antichain([IDENTITY])}]


def test_first_capabilities_inside_are_the_scopes_own() -> None:
    inner: ScopeBuilder[Any, Any] = ScopeBuilder("in", Rounds(IDENTITY), outputs=2)
    later_on = [Product(Epoch(2), Epoch(0)), Product(Epoch(1), Epoch(4))]
    inner.add(Scripted("source", [], inputs=0, holds=later_on))
    inner.connect(Source(1, 0), Target(OUTSIDE, 1))
    ready = inner.initialize()
    assert [drained(batch) for batch in ready.progress.internals] == [[], [(1, 1)]]


def test_a_loop_that_is_closed_outside_must_advance_there() -> None:
    """Rounds end at the scope: outside, its cycle brings the epoch back as it was."""
    inner, _, _ = loop([])
    outer: ScopeBuilder[Any, Any] = ScopeBuilder("stream", Region(IDENTITY))
    outer.add(inner)
    outer.connect(Source(1, 0), Target(1, 0))
    with pytest.raises(EndlessCycleError, match=r"'stream'.*loop -> loop"):
        outer.build()


def test_what_enters_may_leave_straight_away() -> None:
    ran: list[str] = []
    inner: ScopeBuilder[Any, Any] = ScopeBuilder("pipe", Region(IDENTITY), inputs=1, outputs=1)
    inner.connect(Source(OUTSIDE, 0), Target(OUTSIDE, 0))
    scope = started(inner, ran)
    scope.enter(0, Epoch(6), 3)
    assert scope.progress.run_again
    scope.schedule()
    assert drained(scope.progress.consumeds[0]) == [(6, 3)]
    assert drained(scope.progress.produceds[0]) == [(6, 3)]
    assert not scope.progress.internals[0]
