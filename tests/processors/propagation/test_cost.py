"""What an epoch costs, in steps that are counted: by the boxes that run, not by those there are."""

from math import log2

import pytest

from bench.propagation import CHAIN, SHAPES, TREE, Epoch, chains, epochs, measure, trees


@pytest.mark.parametrize("order", ["dynamic", "hybrid"])
@pytest.mark.parametrize(("shape", "part"), [(chains, CHAIN), (trees, TREE)])
def test_boxes_that_an_epoch_does_not_touch_cost_nothing(order, shape, part):
    alone, among = (
        measure(order, shape(count), Epoch([0], [True] * count)) for count in (part, 20 * part)
    )
    assert alone == among
    assert alone.ran == part


@pytest.mark.parametrize("order", ["dynamic", "hybrid"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_epoch_that_runs_k_boxes_costs_k_log_k_at_most(order, shape):
    for count in (100, 400, 1_600):
        graph = SHAPES[shape](count)
        cost = measure(order, graph, epochs(graph)["dense"])
        assert cost.steps <= count * (70 + 2 * log2(count))


def test_a_box_of_a_chain_costs_the_hybrid_order_the_same_however_many_chains_there_are():
    def a_box(count):
        graph = chains(count)
        heads, all_of_it = (
            measure("hybrid", graph, Epoch(epochs(graph)["dense"].active, [emits] * count))
            for emits in (False, True)
        )
        return (all_of_it.steps - heads.steps) / (all_of_it.ran - heads.ran)

    assert a_box(1_000) == a_box(10) > 0
