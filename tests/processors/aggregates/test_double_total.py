"""Totals of doubles do not drift."""

import math
import random
from fractions import Fraction

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.aggregates.avg import DoubleAverage
from errata.processors.aggregates.double_total import UNIT, exact_sums
from errata.processors.aggregates.sum import DoubleSum

ONE = pl.Series([0], dtype=pl.UInt32)


def rows(*values: float) -> tuple[pl.Series, pl.DataFrame]:
    return ONE.new_from_index(0, len(values)), pl.DataFrame({"x": values}, schema={"x": pl.Float64})


def test_mean_is_right_after_a_large_value_came_and_went() -> None:
    """River's revert gives -4.0 here."""
    average = DoubleAverage()
    states = average.init(1)
    for value in (1.0, 2.0, 1e17):
        states = average.accumulate(states, *rows(value))
    assert average.emit(average.compensate(states, *rows(1e17)))[0] == 1.5


def test_two_thousand_changes_one_by_one_stay_within_the_bound() -> None:
    drawn = random.Random(7)
    total, ever = DoubleSum(), Fraction(0)
    inside: list[float] = []
    states = total.init(1)
    change_count = 2_000
    for _ in range(change_count):
        if inside and drawn.random() < 0.5:
            value = inside.pop(drawn.randrange(len(inside)))
            states = total.compensate(states, *rows(value))
        else:
            value = drawn.uniform(-1, 1) * 10.0 ** drawn.randrange(-18, 18)
            inside.append(value)
            states = total.accumulate(states, *rows(value))
        ever += abs(Fraction(value))
    found = (Fraction(states["high"][0]) + Fraction(states["low"][0])) * Fraction(UNIT)
    off = abs(found - sum(map(Fraction, inside)))
    assert off <= change_count * ever / 2**96
    assert total.emit(states)[0] == math.fsum(inside)


def test_two_of_the_largest_double_are_infinite_until_one_leaves() -> None:
    largest = np.finfo(np.float64).max
    total = DoubleSum()
    states = total.accumulate(total.init(1), *rows(largest, largest, 1.0))
    assert total.emit(states)[0] == math.inf
    assert DoubleAverage().emit(states)[0] < largest
    assert total.emit(total.compensate(states, *rows(largest)))[0] == largest
    assert total.emit(total.compensate(states, *rows(largest, largest)))[0] == 1.0


def test_an_emptied_group_is_exactly_empty_although_bits_were_lost() -> None:
    total = DoubleSum()
    states = total.init(1)
    values = (1e-200, 1.0, 1e200)
    for value in values:
        states = total.accumulate(states, *rows(value))
    for value in reversed(values):
        states = total.compensate(states, *rows(value))
    assert states.equals(total.init(1))


def test_nan_and_infinities_can_leave() -> None:
    total = DoubleSum()
    states = total.accumulate(total.init(1), *rows(1.0, math.nan, math.inf, -math.inf))
    assert math.isnan(total.emit(states)[0])
    states = total.compensate(states, *rows(math.nan))
    assert math.isnan(total.emit(states)[0])
    states = total.compensate(states, *rows(math.inf))
    assert total.emit(states)[0] == -math.inf
    assert total.emit(total.compensate(states, *rows(-math.inf)))[0] == 1.0


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(-(2.0**984), 2.0**984, exclude_max=True)),
        max_size=20,
    )
)
def test_sums_of_a_batch_are_exact(batch: list[tuple[int, float]]) -> None:
    groups = np.array([group for group, _ in batch], dtype=np.int64)
    values = np.array([value for _, value in batch], dtype=np.float64)
    found = [Fraction(0)] * 3
    for sums in exact_sums(groups, values, 3):
        found = [one + Fraction(other) for one, other in zip(found, sums, strict=True)]
    expected = [
        sum((Fraction(v) for g, v in batch if g == group), Fraction(0)) for group in range(3)
    ]
    assert found == expected
