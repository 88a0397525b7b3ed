"""What gives the event time of a source."""

import polars as pl
import pytest

from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import compile_event_time
from errata.schemas.fields import FieldType, physical
from tests.processors.expressions.test_expression import FIELDS, JULY, ROW


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "at": [JULY, -1],
        "mi": [JULY, -1],
        "day": [JULY, -86_400_000],
        "event-time": [JULY, 7],
        "at + interval 1 second": [JULY + 1000, 999],
        "timestamp_seconds(i)": [7000, 7000],
        "coalesce(mi, day)": [JULY, -1],
    }.items(),
)
def test_an_event_time_is_a_timestamp_in_milliseconds_rounded_down(text, expected):
    fields = FIELDS | {"event-time": FieldType("timestamp-millis", optional=True)}
    first = ROW | {"event-time": JULY}
    then = ROW | {"at": -1, "mi": -1, "day": -1, "event-time": 7}
    tuples = pl.DataFrame([first, then], schema=physical(fields), orient="row")
    expression = compile_event_time(text, fields)
    assert expression.type.kind == "timestamp-millis"
    assert expression.evaluate(tuples).to_list() == expected
    assert expression.columns <= set(fields)


@pytest.mark.parametrize(
    ("text", "hint"),
    {"l": "timestamp_millis(x)", "s": "to_timestamp(x)", "null": "found void"}.items(),
)
def test_an_event_time_that_is_no_time_is_refused_with_the_way_to_make_one(text, hint):
    with pytest.raises(ExpressionError, match=hint.replace("(", r"\(").replace(")", r"\)")):
        compile_event_time(text, FIELDS)
