"""Bags: whole contents as states, in order and as the content alone makes them."""

import io
import json
import math
import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from errata.processors.aggregates.bag import COUNTS, VALUES, BagOfValues
from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.functions import aggregate_function
from errata.processors.aggregates.ladder import Key
from errata.processors.aggregates.mode import Mode
from errata.processors.aggregates.percentile import Percentile
from errata.processors.aggregates.ranking import MostCommon, TopK, json_texts
from errata.processors.aggregates.volatility import RealisedVolatility
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import BY_TIME, columns

LONG, DOUBLE, TEXT = FieldType("long"), FieldType("double"), FieldType("string")
WIDE = FieldType("decimal", 38, 2)
KINDS = {
    "long": [3, -(2**63)],
    "decimal(38,0)": [10**38 - 1, 1 - 10**38],
    "string": ["b", ""],
    "bytes": [b"\xff", b""],
    "boolean": [True, False],
    "double": [1.5, math.nan],
    "float": [1.5, -math.inf],
    "date": [5, -5],
    "uuid": ["b", "a"],
}


def entered(function: BagOfValues, *rows: tuple[int, Any], groups: int = 2) -> pl.DataFrame:
    """Return the states of values that entered groups by their numbers."""
    content = [(group, (value,)) for group, value in rows]
    return function.accumulate(function.init(groups), *columns(content, [function.argument]))


def test_a_bag_is_in_order_with_counts_and_nan_and_zero_are_one_value_each() -> None:
    median = Percentile(DOUBLE, Fraction(1, 2))
    values = [math.nan, -0.0, 0.0, None, math.inf, -math.nan, -1.0]
    states = entered(median, *((1, value) for value in values))
    assert states[COUNTS].to_list() == [[], [1, 2, 1, 2]]
    *numbers, last = states[VALUES].to_list()[1]
    assert (numbers, math.isnan(last)) == ([-1.0, 0.0, math.inf], True)
    assert math.copysign(1.0, numbers[1]) == 1.0


def test_texts_are_in_the_order_of_their_octets() -> None:
    states = entered(
        Mode(TEXT), *((0, text) for text in ("ä", "b", "", "Z", "\U0001f600", "\uffff"))
    )
    assert states[VALUES].to_list()[0] == ["", "Z", "b", "ä", "\uffff", "\U0001f600"]


def test_groups_that_a_change_does_not_touch_keep_theirs() -> None:
    mode = Mode(LONG)
    states = entered(mode, (0, 7), (0, 7), (2, 5), groups=4)
    states = mode.accumulate(states, *columns([(3, (1,)), (0, (8,))], [LONG]))
    assert states[VALUES].to_list() == [[7, 8], [], [5], [1]]
    states = mode.compensate(states, *columns([(2, (5,)), (0, (7,))], [LONG]))
    assert states[VALUES].to_list() == [[7, 8], [], [], [1]]
    assert states[COUNTS].to_list() == [[1, 1], [], [], [1]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bag_of_any_type_can_be_stored_as_arrow_and_goes_on(kind: str) -> None:
    mode = Mode(FieldType.parse(kind))
    states = entered(mode, *((0, value) for value in KINDS[kind]))
    stored = io.BytesIO()
    states.write_ipc(stored)
    read = pl.read_ipc(stored.getvalue())
    assert states.to_arrow().num_rows == 2  # which Arrow's own library can hold as well
    assert read.equals(states)
    assert dict(read.schema) == dict(states.schema)
    rows = columns([(0, (value,)) for value in KINDS[kind]], [mode.argument])
    assert mode.compensate(read, *rows).equals(mode.init(2))


def test_no_function_of_a_whole_content_keeps_anything_with_a_result() -> None:
    for name in ("percentile", "median", "mode", "top_k", "most_common", "count distinct"):
        parameters = () if name in ("median", "mode", "count distinct") else (Fraction(1),)
        function = aggregate_function(Call(name, (LONG,), parameters=parameters))
        assert function.kept == ()
    assert aggregate_function(Call("realised_volatility", (LONG,), BY_TIME)).kept == ()
    assert aggregate_function(Call("corr", (LONG, LONG))).kept != ()


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
