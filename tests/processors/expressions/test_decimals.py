import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.processors.expressions import arithmetic, decimals
from errata.schemas.fields import FieldType

TOP = 10**38 - 1
UNSCALED = st.one_of(
    st.none(), st.integers(-50, 50), st.integers(-TOP, TOP), st.sampled_from([TOP, -TOP])
)
PAIRS = st.lists(st.tuples(UNSCALED, UNSCALED), max_size=6)


def columns(pairs):
    return [pl.Series([p[k] for p in pairs], dtype=pl.Int128) for k in (0, 1)]


def rounded(exact, precision=38):
    whole = math.floor(abs(exact) + Fraction(1, 2)) * (-1 if exact < 0 else 1)
    return whole if abs(whole) < 10**precision else None


@settings(deadline=None)
@given(PAIRS, st.integers(0, 40), st.integers(1, 38))
def test_multiply_is_exact_then_rounded_half_up(pairs, drop, precision):
    got = decimals.multiply(*columns(pairs), drop=drop, precision=precision).to_list()
    assert got == [
        None if None in (a, b) else rounded(Fraction(a * b, 10**drop), precision) for a, b in pairs
    ]


@settings(deadline=None)
@given(PAIRS, st.integers(0, 38))
def test_divide_half_up_is_exact_and_null_by_zero(pairs, shift):
    got = decimals.divide_half_up(*columns(pairs), shift=shift).to_list()
    assert got == [
        None if None in (a, b) or b == 0 else rounded(Fraction(a * 10**shift, b)) for a, b in pairs
    ]


@settings(deadline=None)
@given(PAIRS, st.integers(0, 38), st.integers(0, 38), st.integers(0, 38))
def test_add_is_exact_then_rounded_half_up(pairs, up, other, drop):
    got = decimals.add(*columns(pairs), raise_left=up, raise_right=other, drop=drop).to_list()
    assert got == [
        None if None in (a, b) else rounded(Fraction(a * 10**up + b * 10**other, 10**drop))
        for a, b in pairs
    ]


@settings(deadline=None)
@given(PAIRS, st.integers(0, 38))
def test_remainder_has_the_sign_of_the_left(pairs, up):
    left, right = FieldType("decimal", 38, 0), FieldType("decimal", 38, up)
    got = arithmetic.kernel("%", left, right, right)(*columns(pairs)).to_list()
    assert got == [
        None
        if None in (a, b) or b == 0
        else rounded(Fraction(math.copysign(1, a)) * (abs(a) * 10**up % abs(b)))
        for a, b in pairs
    ]


@settings(deadline=None)
@given(st.lists(UNSCALED, max_size=6), st.integers(0, 38))
def test_to_double_is_the_nearest_double(values, scale):
    got = decimals.to_double(pl.Series(values, dtype=pl.Int128), scale=scale).to_list()
    assert got == [None if v is None else float(Fraction(v, 10**scale)) for v in values]


@pytest.mark.parametrize("edge", [2**126 - 1, 2**126, 2**127 - 1, 10**38 - 1])
def test_sums_around_the_width_of_128_bits_never_wrap(edge):
    edge = min(edge, TOP)
    column = pl.Series([edge, -edge], dtype=pl.Int128)
    total = decimals.add(column, column).to_list()
    assert total == [rounded(Fraction(2 * edge)), rounded(Fraction(-2 * edge))]
