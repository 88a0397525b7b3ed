"""Percentiles, arrays of values and volatilities of whole contents."""

import json
import math
import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.functions import aggregate_function
from errata.processors.aggregates.holistic import (
    MostCommon,
    Percentile,
    RealisedVolatility,
    TopK,
    json_texts,
)
from errata.processors.aggregates.ladder import Key
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import BY_TIME, columns, entered

LONG, DOUBLE, TEXT = FieldType("long"), FieldType("double"), FieldType("string")
WIDE = FieldType("decimal", 38, 2)


def test_percentiles_of_neighbours_that_no_double_holds_are_rounded_once() -> None:
    for kind in (LONG, FieldType("decimal", 38)):
        median = Percentile(kind, Fraction(1, 2))
        # By way of doubles: 2**53 + 2 and 2**53 + 4, and then 2**53 + 3 up to even.
        assert median.emit(entered(median, (0, 2**53 + 1), (0, 2**53 + 3)))[0] == 2.0**53 + 2
    tenth = Percentile(WIDE, Fraction("0.1"))
    cents = [10**37 + 1, 10**37 + 2]
    exact = (cents[0] + Fraction(1, 10)) / 100
    assert tenth.emit(entered(tenth, *((0, value) for value in cents)))[0] == float(exact)


def test_a_percentile_at_a_rank_is_the_value_there_where_spark_is_off() -> None:
    for share in ("0.07", "0.14", "0.28", "0.55", "0.56", "0.57", "0.58"):
        function = Percentile(LONG, Fraction(share))
        states = entered(function, *((0, value) for value in range(101)))
        assert function.emit(states)[0] == float(share) * 100 // 1 + (float(share) * 100 % 1 > 0.5)


def test_arrays_of_doubles_are_json_and_say_what_is_not_finite() -> None:
    values = [1e300, 0.1, -0.0, 5e-324, 1e16, math.nan, -math.inf, math.inf]
    top = TopK(DOUBLE, 1000)
    found = json.loads(top.emit(entered(top, *((0, value) for value in values)))[0])
    assert found == ["NaN", "Infinity", 1e300, 1e16, 0.1, 5e-324, 0.0, "-Infinity"]
    common = MostCommon(FieldType("float"), 1)
    states = entered(common, (0, 0.1), (0, math.nan), (0, math.nan))
    assert common.emit(states)[0] == '[{"item":"NaN","count":2}]'


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("decimal(9,2)", -5, "-0.05"),
        ("boolean", True, "true"),
        ("timestamp-millis", 1500, '"1970-01-01 00:00:01.5"'),
        ("timestamp-micros", 1, '"1970-01-01 00:00:00.000001"'),
        ("string", 'a"\\\n\u2028ä', '"a\\"\\\\\\n\u2028ä"'),
        ("uuid", "0b", '"0b"'),
        ("float", 0.1, "0.1"),
    ],
)
def test_values_are_written_as_json(kind: str, value: Any, text: str) -> None:
    field = FieldType.parse(kind)
    (found,) = json_texts(pl.Series([value], dtype=field.dtype), field)
    assert found == text
    json.loads(found)


def test_a_volatility_is_rounded_once_from_the_exact_sum_of_many_squares() -> None:
    dice = random.Random(4)
    prices = [dice.uniform(1.0, 1.0 + 10.0 ** -dice.randrange(9)) for _ in range(3000)]
    at = Key(FieldType("timestamp-millis"), largest=False)
    volatility = RealisedVolatility(DOUBLE, [at])
    rows = [(0, (price, number)) for number, price in enumerate(prices)]
    groups, frame = columns(dice.sample(rows, len(rows)), [DOUBLE, at.type])
    states = volatility.accumulate(volatility.init(1), groups, frame)
    returns = [math.log(after) - math.log(before) for before, after in pairwise(prices)]
    squares = [one * one for one in returns]
    exact = math.sqrt(sum(map(Fraction, squares)))
    assert volatility.emit(states)[0] == exact != math.sqrt(sum(squares))


def test_a_price_that_is_not_above_zero_gives_null_until_it_leaves() -> None:
    volatility = aggregate_function(Call("realised_volatility", (LONG,), BY_TIME))
    rows = [(0, (100, 1, "a")), (0, (0, 2, "b")), (0, (100, 3, "c"))]
    groups, frame = columns(rows, [LONG, FieldType("timestamp-millis"), TEXT])
    states = volatility.accumulate(volatility.init(1), groups, frame)
    assert volatility.emit(states)[0] is None
    assert volatility.emit(volatility.compensate(states, groups[1:2], frame[1:2]))[0] == 0.0
