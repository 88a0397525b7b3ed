"""The short form of the benchmark of sliding windows: both ways have the same results."""

from unittest import mock

import pytest

from bench.sliding import FUNCTIONS, HEADS, Cost, measure, row
from errata.processors.boxes.sliding import SlidingInOrder


@pytest.mark.parametrize("function", FUNCTIONS)
def test_both_ways_have_the_same_results_for_every_size(function: str) -> None:
    costs = list(measure(function, most=1_000, epoch=200, least=1_000))
    assert [cost.size for cost in costs] == [10, 100, 1_000]
    assert all(cost.box > 0 and cost.naive > 0 for cost in costs)


def test_a_result_that_is_wrong_is_told() -> None:
    wrong = mock.patch.object(SlidingInOrder, "_merged", lambda self, one, other: other)
    with wrong, pytest.raises(ArithmeticError, match=r"sum\(size\) over 10 tuples"):
        list(measure("sum(size)", most=10, epoch=100, least=200))


def test_a_line_has_a_cell_for_each_head() -> None:
    line = row("sum(x)", Cost(1_000, 2.0, 300.0), Cost(10, 1.0, 30.0))
    assert line == "| `sum(x)` | 1,000 | 2.0 | 2.00 | 300 | 150 |"
    assert line.count("|") == HEADS.count("|")
