"""Variances and covariances: of whole numbers rounded once, of doubles within the bound."""

import math
import random
import statistics
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.aggregates.moments import (
    LIMB,
    TOO_LARGE,
    normalize_limbs,
    products,
    two_product,
)
from errata.processors.aggregates.variance import (
    CORR,
    POPULATION,
    SAMPLE,
    SUMS,
    DoubleCovariance,
    DoubleVariance,
    IntegerVariance,
    roots,
)
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import History, nearest_root, same

ONE = pl.Series([0], dtype=pl.UInt32)
SPREAD = DoubleVariance(sample=True, root=False)


def rows(*values: float) -> tuple[pl.Series, pl.DataFrame]:
    return ONE.new_from_index(0, len(values)), pl.DataFrame({"x": values}, schema={"x": pl.Float64})


def of(*values: float) -> pl.DataFrame:
    return SPREAD.accumulate(SPREAD.init(1), *rows(*values))


def test_variance_is_right_after_a_large_value_came_and_went() -> None:
    """Two doubles are not enough here: the square of the large one fills them."""
    for large in (1e17, 3.3e20, -1.7e9):
        states = of(1.0, 3.0, large)
        assert SPREAD.emit(SPREAD.compensate(states, *rows(large)))[0] == 2.0


def test_values_that_are_all_the_same_have_no_variance() -> None:
    for value in (0.1, -1e100, 7e-200, 123456789.123):
        assert SPREAD.emit(of(*[value] * 7))[0] == 0.0


def test_a_small_spread_about_a_large_mean_is_kept() -> None:
    values = [1e9 + 0.25, 1e9 + 0.5, 1e9 + 1.0]
    exact = statistics.variance(map(Fraction, values))
    assert SPREAD.emit(of(*values))[0] == float(exact)


def test_what_is_not_finite_or_too_large_gives_nan_until_it_leaves() -> None:
    for special in (math.nan, math.inf, -math.inf, TOO_LARGE, -1e300):
        states = of(1.0, 3.0, special)
        assert math.isnan(SPREAD.emit(states)[0])
        assert SPREAD.emit(SPREAD.compensate(states, *rows(special)))[0] == 2.0


def test_an_emptied_group_is_exactly_empty_although_bits_were_lost() -> None:
    states = of()
    values = (1e-100, 1.0, 1e100, math.inf)
    for value in values:
        states = SPREAD.accumulate(states, *rows(value))
    for value in reversed(values):
        states = SPREAD.compensate(states, *rows(value))
    assert states.equals(SPREAD.init(1))


@given(st.floats(-1e140, 1e140), st.floats(-1e140, 1e140))
def test_a_product_and_what_it_lost_are_exact_together(a: float, b: float) -> None:
    product, lost = two_product(np.array([a]), np.array([b]))
    if abs(product[0]) > 2.0**-900:
        assert Fraction(product[0]) + Fraction(lost[0]) == Fraction(a) * Fraction(b)


DOUBLES = st.floats(-1e6, 1e6) | st.integers(-5, 5).map(float) | st.floats() | st.just(1e17)


@pytest.mark.parametrize("sample", [True, False])
@pytest.mark.parametrize("root", [True, False])
@settings(max_examples=60)
@given(data=st.data())
def test_oracle_variances_of_doubles_stay_within_the_bound(
    sample: bool, root: bool, data: st.DataObject
) -> None:
    function = DoubleVariance(sample=sample, root=root)
    kind = FieldType("double", optional=True)
    history = History(function, [kind], st.tuples(st.none() | DOUBLES))
    history.run(data.draw)
    emitted = function.emit(history.states)
    for group, inside in enumerate(history.content):
        there = [v for (v,) in inside if v is not None]
        usual = [Fraction(v) for v in there if abs(v) < TOO_LARGE]
        ever = [Fraction(v) for (v,) in history.moved[group] if v is not None if abs(v) < TOO_LARGE]
        squares = sum(v * v for v in usual)
        held = sum(
            Fraction(history.states[f"square_{part}"][group]) for part in ("high", "middle", "low")
        )
        drift = 2 * history.change_count * sum(v * v for v in ever) / 2**140
        drift += Fraction(len(ever), 2**1070)
        assert abs(held - squares) <= drift
        if len(there) < 1 + sample:
            assert emitted[group] is None
        elif len(usual) < len(there):
            assert math.isnan(emitted[group])
        else:
            mean = sum(usual) / len(usual)
            moments = 4 * history.change_count * sum(map(abs, ever)) / 2**140 * abs(mean)
            about = sum((v - mean) ** 2 for v in usual)
            off = drift + moments + squares / 2**130
            divisor = len(usual) - sample
            low, high = (max(about + sign * off, 0) / divisor for sign in (-1, 1))
            found = Fraction(emitted[group]) ** (2 if root else 1)
            slack = Fraction(2**50 + 1, 2**50)
            tiny = Fraction(1, 2**1000)
            assert low / slack - tiny <= found <= high * slack + tiny


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-(10**38) + 1, 10**38 - 1)), max_size=9),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), max_size=9),
)
def test_oracle_sums_of_squares_are_exact(
    wide: list[tuple[int, int]], narrow: list[tuple[int, int]]
) -> None:
    for batch in (wide, narrow, wide + narrow):
        groups = pl.Series([group for group, _ in batch], dtype=pl.UInt32)
        numbers = pl.Series([number for _, number in batch], dtype=pl.Int128)
        limbs = products(groups, numbers, numbers, 3, limbs=3)
        found = [sum(limb[g] * LIMB**n for n, limb in enumerate(limbs)) for g in range(3)]
        assert found == [sum(n * n for g, n in batch if g == group) for group in range(3)]


def test_carrying_leaves_the_number_and_brings_lower_limbs_into_range() -> None:
    limbs = [pl.Series([n], dtype=pl.Int128) for n in (-5, LIMB + 3, 7)]
    low, middle, high = (limb[0] for limb in normalize_limbs(limbs))
    assert low + middle * LIMB + high * LIMB**2 == -5 + (LIMB + 3) * LIMB + 7 * LIMB**2
    assert 0 <= low < LIMB
    assert 0 <= middle < LIMB


def test_ten_thousand_longs_of_the_largest_kind_leave_again() -> None:
    spread = IntegerVariance(FieldType("long"), sample=False, root=True)
    groups = ONE.new_from_index(0, 10_000)
    largest = pl.DataFrame({"x": pl.Series([2**63 - 1, -(2**63)] * 5_000)})
    states = spread.accumulate(spread.init(1), groups, largest)
    mean = Fraction(-1, 2)
    expected = ((2**63 - 1 - mean) ** 2 + (-(2**63) - mean) ** 2) / 2
    assert spread.emit(states)[0] == nearest_root(expected)
    states = spread.compensate(states, groups[1:], largest[1:])
    assert spread.emit(states)[0] == 0.0
    assert spread.compensate(states, ONE, largest[:1]).equals(spread.init(1))


def test_a_root_a_hair_above_the_middle_between_two_doubles_is_rounded_up() -> None:
    middle, unit = 2**53 + 1, 1 << 800
    squares = [middle**2 * unit + hair for hair in (-1, 0, 1)]
    assert list(roots(squares, [unit] * 3)) == [2.0**53, 2.0**53, 2.0**53 + 2]


def test_oracle_standard_deviations_of_longs_are_the_nearest_double() -> None:
    drawn = random.Random(3)
    spread = IntegerVariance(FieldType("long"), sample=True, root=True)
    for _ in range(200):
        size = drawn.choice((2, 10**3, 10**9, 10**18))
        values = [drawn.randrange(-size, size) for _ in range(drawn.randrange(2, 6))]
        frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Int64)})
        states = spread.accumulate(spread.init(1), ONE.new_from_index(0, len(values)), frame)
        exact = Fraction(statistics.variance(map(Fraction, values)))
        assert same(spread.emit(states)[0], nearest_root(exact))


def test_the_root_of_the_least_correlation_is_the_nearest_double() -> None:
    assert list(roots([1, 2], [10**196, 10**196])) == [1e-98, nearest_root(Fraction(2, 10**196))]


DOUBLE = FieldType("double", optional=True)
PAIR = [DOUBLE, DOUBLE]


def entered(function: DoubleCovariance, *rows: tuple[float, float]) -> pl.DataFrame:
    groups = pl.Series([0] * len(rows), dtype=pl.UInt32)
    frame = pl.DataFrame(rows, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
    return function.accumulate(function.init(1), groups, frame)


def left(function: DoubleCovariance, states: pl.DataFrame, row: tuple[float, float]) -> float:
    frame = pl.DataFrame([row], schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
    after = function.compensate(states, pl.Series([0], dtype=pl.UInt32), frame)
    return float(function.emit(after)[0])


def test_a_large_row_that_came_and_went_leaves_nothing_behind() -> None:
    covariance, correlation = DoubleCovariance(PAIR, SAMPLE), DoubleCovariance(PAIR, CORR)
    for large in ((1e17, 3.0), (-3.3e20, 1.7e19), (1.0, 1e17), (math.nan, 1.0), (0.0, TOO_LARGE)):
        rows = ((1.0, 10.0), (2.0, 30.0), large)
        assert left(covariance, entered(covariance, *rows), large) == 10.0
        assert left(correlation, entered(correlation, *rows), large) == 1.0


def test_nan_infinity_and_a_constant() -> None:
    for what in (CORR, SAMPLE, POPULATION):
        function = DoubleCovariance(PAIR, what)
        for special in (math.nan, math.inf, TOO_LARGE):
            assert math.isnan(function.emit(entered(function, (1.0, 2.0), (3.0, special)))[0])
        constant = function.emit(entered(function, (0.1, 2.0), (0.1, 3.0), (0.1, 7.5)))[0]
        assert constant == (None if what == CORR else 0.0)
        one = function.emit(entered(function, (1.0, 2.0)))[0]
        assert one == (0.0 if what == POPULATION else None)


def test_a_correlation_is_never_above_one() -> None:
    function = DoubleCovariance(PAIR, CORR)
    values = (0.651592972722763, 0.7887233511355132, 0.0938595867742349)
    for sign in (1.0, -1.0):
        states = entered(function, *((value, sign * 3 * value) for value in values))
        assert function.emit(states)[0] == sign


def test_a_decimal_beside_a_double_is_the_nearest_double() -> None:
    function = DoubleCovariance([FieldType("decimal", 20, 2), FieldType("float")], SAMPLE)
    frame = pl.DataFrame(
        {"x": pl.Series([10, 25], dtype=pl.Int128), "y": pl.Series([1, 3], dtype=pl.Float32)}
    )
    states = function.accumulate(function.init(1), pl.Series([0, 0], dtype=pl.UInt32), frame)
    assert function.emit(states)[0] == pytest.approx(0.15, rel=1e-15)


@pytest.mark.parametrize("what", [CORR, SAMPLE, POPULATION])
@settings(max_examples=60)
@given(data=st.data())
def test_oracle_covariances_of_doubles_stay_within_the_bound(
    what: str, data: st.DataObject
) -> None:
    function = DoubleCovariance(PAIR, what)
    history = History(function, PAIR, st.tuples(st.none() | DOUBLES, st.none() | DOUBLES))
    history.run(data.draw)
    emitted = function.emit(history.states)
    for group, inside in enumerate(history.content):
        rows = [row for row in inside if None not in row]
        usual = [tuple(map(Fraction, row)) for row in rows if is_usual(row)]
        ever = [
            tuple(map(Fraction, row))
            for row in history.moved[group]
            if None not in row and is_usual(row)
        ]
        exact, off = {}, {}
        for name, places in SUMS.items():
            exact[name] = sum(math.prod(row[place] for place in places) for row in usual)
            size = sum(abs(math.prod(row[place] for place in places)) for row in ever)
            off[name] = 2 * history.change_count * size / 2**140 + Fraction(len(ever), 2**1070)
            held = sum(
                Fraction(history.states[f"{name}_{place}"][group])
                for place in ("high", "middle", "low")
            )
            assert abs(held - exact[name]) <= off[name]
        if len(rows) < 1 + (what != POPULATION):
            assert emitted[group] is None
        elif len(usual) < len(rows):
            assert math.isnan(emitted[group])
        elif what != CORR:
            count = len(usual)
            both = count * exact["xy"] - exact["x"] * exact["y"]
            means = nearest_root(exact["xx"] * exact["yy"]) if min(exact["xx"], exact["yy"]) else 0
            error = count * off["xy"] + abs(exact["x"]) * off["y"] + abs(exact["y"]) * off["x"]
            error += off["x"] * off["y"] + count * Fraction(means) / 2**129
            divisor = count * (count - (what == SAMPLE))
            error = error / divisor + abs(both / divisor) / 2**51 + Fraction(1, 2**1000)
            assert abs(Fraction(emitted[group]) - both / divisor) <= error


def is_usual(row: tuple[float, ...]) -> bool:
    return all(abs(value) < TOO_LARGE for value in row)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-9, 9),
            st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-9, 9),
        ),
        max_size=9,
    )
)
def test_oracle_sums_of_products_are_exact(rows: list[tuple[int, int, int]]) -> None:
    groups = pl.Series([group for group, _, _ in rows], dtype=pl.UInt32)
    one, other = (pl.Series([r[place] for r in rows], dtype=pl.Int128) for place in (1, 2))
    limbs = products(groups, one, other, 3, limbs=3)
    found = [sum(limb[g] * LIMB**n for n, limb in enumerate(limbs)) for g in range(3)]
    assert found == [sum(a * b for group, a, b in rows if group == g) for g in range(3)]
    assert all(0 <= limb[g] < LIMB for limb in limbs[:-1] for g in range(3))


@pytest.mark.parametrize("precision", [11, 13])
def test_many_squares_that_one_limb_of_96_bits_does_not_hold_are_not_cut(precision: int) -> None:
    """One limb is enough for their sum, but only if it may have more than 96 bits."""
    spread = IntegerVariance(FieldType("decimal", precision), sample=False, root=False)
    values = [10**precision - 1, 1 - 10**precision] * 50_000
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Int128)})
    groups = pl.Series([0], dtype=pl.UInt32).new_from_index(0, len(values))
    assert len(spread.squares) == 1
    states = spread.accumulate(spread.init(1), groups, frame)
    assert spread.emit(states)[0] == float((10**precision - 1) ** 2)
    assert spread.compensate(states, groups, frame).equals(spread.init(1))
