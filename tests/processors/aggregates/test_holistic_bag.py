"""Bags: whole contents as states, in order and as the content alone makes them."""

import io
import math
from fractions import Fraction

import polars as pl
import pytest

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.functions import aggregate_function
from errata.processors.aggregates.holistic import (
    COUNTS,
    VALUES,
    Mode,
    Percentile,
)
from errata.schemas.fields import FieldType
from tests.processors.aggregates.reference import BY_TIME, columns, entered

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
