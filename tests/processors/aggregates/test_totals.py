"""Totals of longs and decimals never wrap; totals of doubles do not drift."""

import math
import random
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.aggregates.sums import (
    DecimalAverage,
    DoubleAverage,
    DoubleSum,
    IntegerSum,
    LongAverage,
)
from errata.processors.aggregates.totals import UNIT, IntegerTotal, exact_sums
from errata.schemas.fields import FieldType

MAX_VALUES = 10**38 - 1
LONG_MOST = 2**63 - 1


def rows(function: IntegerTotal, *values: int) -> tuple[pl.Series, pl.DataFrame]:
    column = pl.Series("x", values, dtype=function.argument.dtype)
    return pl.Series([0] * len(values), dtype=pl.UInt32), pl.DataFrame([column])


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_sum_of_wide_decimals_that_does_not_fit_is_null_and_comes_back(sign: int) -> None:
    total = IntegerSum(FieldType("decimal", 38, 2))
    full = total.accumulate(total.init(1), *rows(total, sign * MAX_VALUES))
    assert total.emit(full)[0] == sign * MAX_VALUES
    over = total.accumulate(full, *rows(total, sign))
    assert total.emit(over)[0] is None
    many = total.accumulate(over, *rows(total, *[sign * MAX_VALUES] * 1_000))
    assert total.emit(many)[0] is None
    back = total.compensate(many, *rows(total, *[sign * MAX_VALUES] * 1_000, sign))
    assert back.equals(full)


@pytest.mark.parametrize("edge", [LONG_MOST, -(2**63)])
def test_a_sum_of_longs_outside_long_is_null_and_comes_back(edge: int) -> None:
    total = IntegerSum(FieldType("long"))
    full = total.accumulate(total.init(1), *rows(total, edge))
    assert total.emit(full)[0] == edge
    over = total.accumulate(full, *rows(total, 1 if edge > 0 else -1))
    assert total.emit(over)[0] is None
    assert total.emit(total.compensate(over, *rows(total, edge)))[0] in (1, -1)


def test_low_stays_in_its_bounds_when_it_goes_below_zero() -> None:
    total = IntegerSum(FieldType("decimal", 38))
    states = total.accumulate(total.init(1), *rows(total, -1))
    assert states.row(0, named=True) == {"count": 1, "high": -1, "low": 10**18 - 1}


@pytest.mark.parametrize(
    "values",
    [
        [2**53 + 1],
        [2**53 + 1, 2**53 + 2],
        [LONG_MOST, LONG_MOST, LONG_MOST - 511],
        [-LONG_MOST - 1] * 3,
        [1, 0, 0],
        [2**54 + 2, 2**54 + 2, 2**54 + 3],
    ],
)
def test_the_average_of_longs_is_the_nearest_double(values: list[int]) -> None:
    average = LongAverage(FieldType("long"))
    states = average.accumulate(average.init(1), *rows(average, *values))
    assert average.emit(states)[0] == sum(values) / len(values)


def nearest(total: int, count: int) -> bool:
    states = pl.DataFrame(
        {"count": [count], "total": [total]}, schema={"count": pl.Int64, "total": pl.Int128}
    )
    return bool(LongAverage(FieldType("long")).emit(states)[0] == total / count)


@given(
    count=st.integers(1, 2**53) | st.integers(1, 100),
    average=st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**54), 2**54) | st.integers(-3, 3),
    data=st.data(),
)
def test_oracle_the_average_of_longs_is_rounded_once(
    count: int, average: int, data: st.DataObject
) -> None:
    above = data.draw(st.integers(0, count - 1))
    assert nearest(average * count + above, count)


@pytest.mark.parametrize("total", [1, -1, 5])
def test_a_small_average_of_longs_keeps_all_its_bits(total: int) -> None:
    assert nearest(total, 3 * 10**12 + 1)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("beside", [-1, 1])
@pytest.mark.parametrize("count", [2**44 + 1, 2**44 + 3])
def test_an_average_of_longs_within_2_to_the_minus_80_of_a_tie_is_rounded_once(
    sign: int, beside: int, count: int
) -> None:
    # total * 2**43 = tie * count + beside, where tie lies halfway between two doubles.
    tie = -beside * pow(count, -1, 2**43) % 2**43 + 2**53
    total = (tie * count + beside) // 2**43
    assert total * 2**43 == tie * count + beside
    assert nearest(sign * total, count)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 0], 5_000), ([1, 0, 0], 3_333), ([2, 0, 0], 6_667), ([-1, 0, 0, 0, 0, 0, 0, 0], -1_250)],
)
def test_the_average_of_decimals_has_four_more_digits(values: list[int], expected: int) -> None:
    average = DecimalAverage(FieldType("decimal", 10, 2))
    states = average.accumulate(average.init(1), *rows(average, *values))
    assert average.emit(states)[0] == expected


@pytest.mark.parametrize("sign", [-1, 1])
def test_half_goes_away_from_zero(sign: int) -> None:
    average = DecimalAverage(FieldType("decimal", 10, 2))
    states = average.accumulate(average.init(1), *rows(average, sign, *[0] * 31))
    assert average.emit(states)[0] == sign * 313  # 312.5


@pytest.mark.parametrize("fits", [True, False])
def test_an_average_of_wide_decimals_that_does_not_fit_is_null(fits: bool) -> None:
    average = DecimalAverage(FieldType("decimal", 38, 2))
    value = 10**34 - 1 if fits else 10**34
    states = average.accumulate(average.init(1), *rows(average, value, value))
    assert average.emit(states)[0] == (value * 10**4 if fits else None)


def test_an_average_just_above_the_least_decimal_fits() -> None:
    average = DecimalAverage(FieldType("decimal", 38))
    states = average.accumulate(average.init(1), *rows(average, -(10**34), 1 - 10**34))
    assert average.emit(states)[0] == 5_000 - 10**38


@pytest.mark.parametrize("digits", [19, 28, 29, 38])
def test_no_states_and_no_rows_are_fine(digits: int) -> None:
    for function in (IntegerSum, DecimalAverage):
        total = function(FieldType("decimal", digits))
        assert total.emit(total.accumulate(total.init(0), *rows(total))).len() == 0
        assert total.emit(total.compensate(total.init(2), *rows(total))).to_list() == [None, None]


ONE = pl.Series([0], dtype=pl.UInt32)


def doubles(*values: float) -> tuple[pl.Series, pl.DataFrame]:
    return ONE.new_from_index(0, len(values)), pl.DataFrame({"x": values}, schema={"x": pl.Float64})


def test_mean_is_right_after_a_large_value_came_and_went() -> None:
    """River's revert gives -4.0 here."""
    average = DoubleAverage()
    states = average.init(1)
    for value in (1.0, 2.0, 1e17):
        states = average.accumulate(states, *doubles(value))
    assert average.emit(average.compensate(states, *doubles(1e17)))[0] == 1.5


def test_two_thousand_changes_one_by_one_stay_within_the_bound() -> None:
    drawn = random.Random(7)
    total, ever = DoubleSum(), Fraction(0)
    inside: list[float] = []
    states = total.init(1)
    change_count = 2_000
    for _ in range(change_count):
        if inside and drawn.random() < 0.5:
            value = inside.pop(drawn.randrange(len(inside)))
            states = total.compensate(states, *doubles(value))
        else:
            value = drawn.uniform(-1, 1) * 10.0 ** drawn.randrange(-18, 18)
            inside.append(value)
            states = total.accumulate(states, *doubles(value))
        ever += abs(Fraction(value))
    found = (Fraction(states["high"][0]) + Fraction(states["low"][0])) * Fraction(UNIT)
    off = abs(found - sum(map(Fraction, inside)))
    assert off <= change_count * ever / 2**96
    assert total.emit(states)[0] == math.fsum(inside)


def test_two_of_the_largest_double_are_infinite_until_one_leaves() -> None:
    largest = np.finfo(np.float64).max
    total = DoubleSum()
    states = total.accumulate(total.init(1), *doubles(largest, largest, 1.0))
    assert total.emit(states)[0] == math.inf
    assert DoubleAverage().emit(states)[0] < largest
    assert total.emit(total.compensate(states, *doubles(largest)))[0] == largest
    assert total.emit(total.compensate(states, *doubles(largest, largest)))[0] == 1.0


def test_an_emptied_group_is_exactly_empty_although_bits_were_lost() -> None:
    total = DoubleSum()
    states = total.init(1)
    values = (1e-200, 1.0, 1e200)
    for value in values:
        states = total.accumulate(states, *doubles(value))
    for value in reversed(values):
        states = total.compensate(states, *doubles(value))
    assert states.equals(total.init(1))


def test_nan_and_infinities_can_leave() -> None:
    total = DoubleSum()
    states = total.accumulate(total.init(1), *doubles(1.0, math.nan, math.inf, -math.inf))
    assert math.isnan(total.emit(states)[0])
    states = total.compensate(states, *doubles(math.nan))
    assert math.isnan(total.emit(states)[0])
    states = total.compensate(states, *doubles(math.inf))
    assert total.emit(states)[0] == -math.inf
    assert total.emit(total.compensate(states, *doubles(-math.inf)))[0] == 1.0


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
