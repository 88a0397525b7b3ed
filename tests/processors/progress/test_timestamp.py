"""Timestamps and refinements: their laws."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.progress.refinement import Refinement, Region, Rounds
from errata.processors.progress.summary import IDENTITY, ProductSummary
from errata.processors.progress.timestamp import Epoch, Product
from tests.processors.progress.times import IDENTITIES, summaries, times_of

DEPTHS = pytest.mark.parametrize("depth", [0, 2])
REFINEMENTS: list[tuple[Refinement[Any, Any], int, int]] = [
    (Region(IDENTITIES[1]), 1, 1),
    (Rounds(IDENTITIES[0]), 0, 1),
    (Rounds(IDENTITIES[1]), 1, 2),
]


@DEPTHS
@given(data=st.data())
def test_times_are_partially_ordered(depth: int, data: st.DataObject) -> None:
    a, b, c = (data.draw(times_of(depth)) for _ in range(3))
    assert a.less_equal(a)
    assert a.minimum().less_equal(a)
    if a.less_equal(b) and b.less_equal(a):
        assert a == b
    if a.less_equal(b) and b.less_equal(c):
        assert a.less_equal(c)


@DEPTHS
@given(data=st.data())
def test_the_total_order_agrees_with_the_partial_one(depth: int, data: st.DataObject) -> None:
    a, b = data.draw(times_of(depth)), data.draw(times_of(depth))
    assert (a < b) + (b < a) + (a == b) == 1
    if a.less_equal(b):
        assert not b < a


def test_a_product_is_before_another_only_if_both_parts_are() -> None:
    assert not Product(Epoch(1), Epoch(5)).less_equal(Product(Epoch(2), Epoch(4)))
    assert Product(Epoch(1), Epoch(4)).less_equal(Product(Epoch(2), Epoch(4)))


@pytest.mark.parametrize(("refinement", "outer", "inner"), REFINEMENTS)
@given(data=st.data())
def test_a_time_that_enters_a_scope_leaves_as_it_came_and_is_the_least_that_does(
    refinement: Refinement[Any, Any], outer: int, inner: int, data: st.DataObject
) -> None:
    a, b = data.draw(times_of(outer)), data.draw(times_of(outer))
    within = data.draw(times_of(inner))
    assert refinement.to_outer(refinement.to_inner(a)) == a
    assert refinement.to_inner(a).less_equal(refinement.to_inner(b)) == a.less_equal(b)
    assert refinement.to_inner(refinement.to_outer(within)).less_equal(within)
    assert refinement.identity.results_in(within) == within


@pytest.mark.parametrize(("refinement", "outer", "inner"), REFINEMENTS)
@given(data=st.data())
def test_a_path_through_a_scope_is_seen_from_outside_no_later_than_it_is(
    refinement: Refinement[Any, Any], outer: int, inner: int, data: st.DataObject
) -> None:
    path, time = data.draw(summaries(inner)), data.draw(times_of(outer))
    through = path.results_in(refinement.to_inner(time))
    seen = refinement.summarize(path).results_in(time)
    if through is not None:
        assert seen.less_equal(refinement.to_outer(through))


def test_a_loop_is_seen_from_outside_without_its_rounds() -> None:
    loop = Rounds(IDENTITY)
    assert loop.summarize(ProductSummary(IDENTITY, IDENTITY)) == IDENTITY
    assert loop.to_inner(Epoch(7)) == Product(Epoch(7), Epoch(0))
