"""The counts behind the planner's rule: they run, the rule follows them, the page shows them."""

import sys
from pathlib import Path

import pytest

from bench.propagation import SHARES, branches, epochs, idle, measure, orders, shares
from errata.processors.propagation.orders import choose_order

PAGE = Path(__file__).parents[2] / "docs" / "propagation.md"


@pytest.mark.parametrize("share", ["none", "1/5", "1/2", "9/10"])
def test_the_rule_takes_the_cheaper_one_of_dynamic_and_hybrid(share):
    graph = branches(300, SHARES[share])
    dense = epochs(graph)["dense"]
    found = {order: measure(order, graph, dense).steps for order in ("dynamic", "hybrid")}
    assert choose_order(graph) == min(found, key=lambda order: found[order])


def test_static_is_the_cheapest_when_all_run_and_the_dearest_when_few_do():
    found = {(row[0], row[2]): [int(n.replace(",", "")) for n in row[4:7]] for row in orders([400])}
    for shape in ("chains", "trees", "layers"):
        assert min(found[shape, "dense"]) == found[shape, "dense"][0]
    assert max(found["chains", "sparse"]) == found["chains", "sparse"][0]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions: other bytecodes")
def test_the_page_shows_what_is_counted():
    shown = {
        tuple(cell.strip() for cell in row.split("|")[1:-1])
        for row in PAGE.read_text().splitlines()
    }
    assert {*orders([10, 100]), *shares()} <= shown


def test_a_box_that_is_run_for_nothing_costs_more_than_any_order_takes_to_leave_it_out():
    found = {kind: int(count.replace(",", "")) for kind, count in idle()}
    assert min(found.values()) > 60
    assert found["aggregate"] > 100 * found["map"]
