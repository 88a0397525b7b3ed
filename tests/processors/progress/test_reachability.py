"""The tracker against a search of the graph: safe, exact, live, and the same as from scratch."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.progress.location import Source, Target, fully_connected
from errata.processors.progress.reachability import Builder, EndlessCycleError, GraphError
from errata.processors.progress.timestamp import IDENTITY, Advance, Epoch
from tests.processors.progress.flat import Flat, Graph, live
from tests.processors.progress.times import Both, Pair, all_that_appear, minimal

seeds = st.integers(0, 10**9)


@pytest.mark.parametrize("depth", [0, 1, 2])
@settings(max_examples=60)
@given(seed=seeds)
def test_frontiers_are_safe_exact_and_live_whatever_nodes_do(depth: int, seed: int) -> None:
    live(Flat(Random(seed), depth), 50, check=0.4)


@pytest.mark.parametrize("depth", [0, 1])
@settings(max_examples=60)
@given(seed=seeds)
def test_frontiers_are_the_first_of_all_times_that_may_appear(depth: int, seed: int) -> None:
    flat = Flat(Random(seed), depth)
    for _ in range(10):
        flat.move()
    flat.hear()
    horizon = Epoch(9) if depth == 0 else Pair(Epoch(9), Epoch(9))
    every = all_that_appear(flat.graph.steps, flat.stamps(), horizon)
    for place in flat.graph.steps:
        near = {time for time in flat.tracker.frontier(place) if time.less_equal(horizon)}
        assert near == minimal(every.get(place, ()))


@pytest.mark.parametrize("depth", [0, 1, 2])
@given(seed=seeds)
def test_a_graph_is_refused_exactly_if_a_time_can_come_back_as_it_was(
    depth: int, seed: int
) -> None:
    graph = Graph(Random(seed), depth)
    if graph.stands_still:
        with pytest.raises(EndlessCycleError):
            graph.build()
    else:
        graph.build()


def chain(*summaries: Any, back: bool = False) -> Builder[Any]:
    """Nodes in a row, or in a ring."""
    graph: Builder[Any] = Builder("row")
    for number, summary in enumerate(summaries):
        graph.add_node(f"n{number}", 1, 1, fully_connected(1, 1, summary))
    for number in range(1, len(summaries)):
        graph.add_edge(Source(number - 1, 0), Target(number, 0))
    if back:
        graph.add_edge(Source(len(summaries) - 1, 0), Target(0, 0))
    return graph


def test_a_cycle_that_does_not_advance_is_refused_by_name() -> None:
    with pytest.raises(EndlessCycleError) as caught:
        chain(IDENTITY, IDENTITY, IDENTITY, back=True).build()
    assert caught.value.nodes[0] == caught.value.nodes[-1]
    assert set(caught.value.nodes) == {"n0", "n1", "n2"}
    text = str(caught.value)
    assert "graph 'row'" in text
    assert any(f"{a} -> {b}" in text for a, b in [("n0", "n1"), ("n1", "n2"), ("n2", "n0")])


def test_a_node_that_feeds_itself_is_a_cycle() -> None:
    with pytest.raises(EndlessCycleError, match="n0 -> n0"):
        chain(IDENTITY, back=True).build()


def test_a_cycle_that_advances_only_by_one_of_two_paths_is_refused() -> None:
    """Advancing is asked of every way round."""
    graph: Builder[Any] = Builder("two ways")
    graph.add_node("both", 2, 1, [{0: [IDENTITY]}, {0: [Advance(1)]}])
    graph.add_edge(Source(0, 0), Target(0, 1))
    graph.build()
    graph.add_edge(Source(0, 0), Target(0, 0))
    with pytest.raises(EndlessCycleError):
        graph.build()


def test_a_cycle_that_advances_one_part_of_a_time_is_enough() -> None:
    tracker = chain(Both(IDENTITY, Advance(1)), back=True).build()
    tracker.update(Target(0, 0), Pair(Epoch(3), Epoch(2)), 1)
    tracker.propagate_all()
    assert tracker.frontier(Source(0, 0)) == (Pair(Epoch(3), Epoch(3)),)


@pytest.mark.parametrize(
    "edge",
    [(Source(0, 1), Target(0, 0)), (Source(0, 0), Target(0, 1)), (Source(0, 0), Target(1, 0))],
)
def test_an_edge_to_a_port_that_is_not_there_is_refused(edge: tuple[Source, Target]) -> None:
    with pytest.raises(GraphError, match="no node"):
        chain(IDENTITY).add_edge(*edge)


@pytest.mark.parametrize("paths", [[], [{1: [IDENTITY]}]])
def test_connectivity_that_does_not_fit_the_ports_is_refused(paths: Any) -> None:
    with pytest.raises(GraphError, match="has 1 inputs and 1 outputs"):
        Builder("x").add_node("n", 1, 1, paths)


@pytest.fixture
def results_asked(monkeypatch: pytest.MonkeyPatch) -> list[Epoch]:
    """The times whose results were asked for."""
    asked: list[Epoch] = []
    results_in = Advance.results_in
    monkeypatch.setattr(
        Advance, "results_in", lambda path, time: asked.append(time) or results_in(path, time)
    )
    return asked


def test_propagation_touches_only_what_changes(results_asked: list[Epoch]) -> None:
    tracker = chain(*[IDENTITY] * 1000).build()
    for number in (0, 997):
        tracker.update(Source(number, 0), Epoch(5), 1)
    tracker.propagate_all()
    results_asked.clear()
    tracker.update(Source(997, 0), Epoch(5), -1)  # node 0 still holds 5
    tracker.update(Target(998, 0), Epoch(9), 1)
    tracker.propagate_all()
    assert results_asked == []
    tracker.update(Target(998, 0), Epoch(4), 1)
    tracker.propagate_all()
    assert sorted(results_asked) == [4, 4, 5, 5]


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_nothing_is_touched_below_where_what_ends_and_what_begins_meet(
    results_asked: list[Epoch], before: int, after: int
) -> None:
    """Two sources of one node: each place is visited once for each time, with the net change."""
    graph: Builder[Any] = Builder("meeting")
    for name in "one", "other":
        graph.add_node(name, 0, 1, [])
    graph.add_node("both", 1, 1, fully_connected(1, 1, IDENTITY))
    for number in 0, 1:
        graph.add_edge(Source(number, 0), Target(2, 0))
    tracker = graph.build()
    tracker.update(Source(before, 0), Epoch(3), 1)
    tracker.propagate_all()
    results_asked.clear()
    tracker.update(Source(before, 0), Epoch(3), -1)
    tracker.update(Source(after, 0), Epoch(3), 1)
    tracker.propagate_all()
    assert results_asked == []
    assert tracker.frontier(Source(2, 0)) == (3,)


def test_nothing_moves_before_propagation() -> None:
    tracker = chain(IDENTITY, IDENTITY).build()
    tracker.update(Source(0, 0), Epoch(3), 1)
    assert tracker.frontier(Target(1, 0)) == ()
    tracker.propagate_all()
    assert tracker.frontier(Target(1, 0)) == (3,)
