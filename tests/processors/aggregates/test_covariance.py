"""Covariances and correlations: of whole numbers rounded once, of doubles within the bound."""

import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.aggregates.covariance import CORR, POPULATION, SAMPLE, SUMS, DoubleCovariance
from errata.processors.aggregates.double_moments import TOO_LARGE
from errata.processors.aggregates.squares import LIMB, products
from errata.processors.aggregates.variance import IntegerVariance
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import History, nearest_root

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


DOUBLES = st.floats(-1e6, 1e6) | st.integers(-5, 5).map(float) | st.floats() | st.just(1e17)


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
