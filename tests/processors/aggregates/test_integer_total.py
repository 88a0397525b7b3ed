"""Totals of longs and decimals never wrap."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.aggregates.avg import DecimalAverage, LongAverage
from errata.processors.aggregates.integer_total import IntegerTotal
from errata.processors.aggregates.sum import IntegerSum
from errata.schemas.fields import FieldType

MOST = 10**38 - 1
LONG_MOST = 2**63 - 1


def rows(function: IntegerTotal, *values: int) -> tuple[pl.Series, pl.DataFrame]:
    column = pl.Series("x", values, dtype=function.argument.dtype)
    return pl.Series([0] * len(values), dtype=pl.UInt32), pl.DataFrame([column])


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_sum_of_wide_decimals_that_does_not_fit_is_null_and_comes_back(sign: int) -> None:
    total = IntegerSum(FieldType("decimal", 38, 2))
    full = total.accumulate(total.init(1), *rows(total, sign * MOST))
    assert total.emit(full)[0] == sign * MOST
    over = total.accumulate(full, *rows(total, sign))
    assert total.emit(over)[0] is None
    many = total.accumulate(over, *rows(total, *[sign * MOST] * 1_000))
    assert total.emit(many)[0] is None
    back = total.compensate(many, *rows(total, *[sign * MOST] * 1_000, sign))
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
