"""Graphs of boxes: chains, and what is below a box."""

import pytest
from hypothesis import given

from errata.processors.propagation.graph import Graph, GraphOrderError
from tests.processors.propagation.random_graphs import cases


@pytest.mark.parametrize("inputs", [[[0]], [[1], []], [[], [-1]]])
def test_a_box_that_reads_one_behind_it_is_refused(inputs):
    with pytest.raises(GraphOrderError, match="number boxes in topological order"):
        Graph(inputs)


@given(cases())
def test_below_a_box_are_those_that_it_is_above_of(case):
    graph = case.graph
    for box in range(len(graph)):
        found = {other for other in range(len(graph)) if graph.reachable[box] >> other & 1}
        assert found == {other for other in range(len(graph)) if box in case.above(other)}


@given(cases())
def test_a_box_follows_another_if_neither_has_anyone_else(case):
    graph = case.graph
    for box, follower in enumerate(graph.follower):
        alone = [
            reader
            for reader in range(len(graph))
            if case.inputs[reader] == [box] and sum(box in read for read in case.inputs) == 1
        ]
        assert [follower] == (alone or [None])
