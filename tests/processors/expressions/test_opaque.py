"""Python functions in the place of expressions."""

import datetime
import math
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import errata
from errata.processors.boxes.map import Map
from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.opaque import Opaque, python
from errata.schemas.arc import Arc
from errata.schemas.fields import PHYSICAL, FieldType, FieldTypeError, physical
from errata.schemas.revisions import between

FIELDS = {
    name: FieldType.parse(kind)
    for name, kind in {
        "id": "string",
        "price": "decimal(38,2)",
        "size": "long?",
        "at": "timestamp-millis",
        "day": "date?",
        "raw": "bytes?",
        "ratio": "float?",
        "who": "uuid?",
        "is_buy": "boolean?",
    }.items()
}
ID = uuid.UUID(int=7)
ROWS = pl.DataFrame(
    [
        ("a", -1050, 3, 1_500, 0, b"\x00", 0.5, str(ID), True),
        ("b", 10**38 - 1, None, -1, None, None, None, None, None),
    ],
    schema=physical(FIELDS),
    orient="row",
)


def same(value: Any) -> Any:
    return value


def returned(kind: str, value: Any) -> Any:
    return python(lambda _: value, kind, "id").bound(FIELDS).evaluate(ROWS[:1])[0]


def judged(kind: str, value: Any) -> tuple[pl.Series, Mapping[int, str]]:
    return python(lambda _: value, kind, "id").bound(FIELDS).evaluate_with_failures(ROWS[:1])


def test_a_function_gets_plain_values() -> None:
    seen: list[Any] = []
    python(lambda *values: seen.append(values), "long?", *FIELDS).bound(FIELDS).evaluate(ROWS)
    day = datetime.date(1970, 1, 1)
    assert seen == [
        ("a", Decimal("-10.50"), 3, 1_500, day, b"\x00", 0.5, str(ID), True),
        ("b", Decimal("9" * 36 + ".99"), None, -1, None, None, None, None, None),
    ]


@pytest.mark.parametrize(
    "kind",
    [*PHYSICAL, "decimal(38,2)"],
)
def test_what_a_function_returns_has_the_declared_type(kind: str) -> None:
    values = {"string": "x", "boolean": True, "bytes": b"x", "uuid": ID}
    values |= {"date": datetime.date(1969, 12, 31), "decimal(38,2)": Decimal("1.005")}
    expression = python(lambda _: values.get(kind, 3), kind, "id").bound(FIELDS)
    column = expression.evaluate(ROWS)
    held = {"uuid": str(ID), "date": -1, "decimal(38,2)": 101}.get(kind, values.get(kind, 3))
    assert column.to_list() == [held, held]
    assert column.dtype == expression.type.dtype
    assert expression.type == FieldType.parse(kind)


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        ("decimal(4,2)", Decimal("-1.005"), -101),
        ("decimal(38,0)", 10**38 - 1, 10**38 - 1),
        ("long", -(2**63), -(2**63)),
        ("int", 2**31 - 1, 2**31 - 1),
        ("double", 3, 3.0),
        ("uuid", str(ID).upper(), str(ID)),
        ("long?", None, None),
    ],
)
def test_a_value_is_held_as_its_type_does(kind: str, value: Any, held: Any) -> None:
    assert returned(kind, value) == held


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("long", None, "returned None, but its type is long; declare long?"),
        ("long", True, "returned True, a bool; needs a long"),
        ("long", 1.0, "a float; needs a long"),
        ("long", 2**63, "more than a long holds"),
        ("int", -(2**31) - 1, "more than a int holds"),
        ("string", 3, "a int; needs a string"),
        ("string", "\ud800", "UnicodeEncodeError"),
        ("boolean", 1, "needs a boolean"),
        ("double", "1", "needs a double"),
        ("date", datetime.datetime(2020, 1, 1), "a datetime; needs a date"),
        ("decimal(4,2)", Decimal("99.995"), "more than a decimal"),
        ("decimal(4,2)", 1.5, "a float; needs a decimal"),
        ("decimal(4,2)", Decimal("nan"), "ValueError"),
        ("decimal(4,2)", Decimal("inf"), "InvalidOperation"),
        ("uuid", "me", "badly formed"),
        ("bytes", "x", "needs a bytes"),
    ],
)
def test_a_value_of_another_type_is_an_error_and_no_stop_of_another_kind(
    kind: str, value: Any, text: str
) -> None:
    values, failures = judged(kind, value)
    assert values.to_list() == [None]
    assert re.search(text, failures[0])


def test_a_function_that_raises_is_told_with_its_name_and_the_values() -> None:
    def inverse(size: int | None, name: str) -> float:
        return 1 / (size or 0)

    expression = python(inverse, "double", "size", "id").bound(FIELDS)
    values, failures = expression.evaluate_with_failures(ROWS)
    assert "inverse, call: ZeroDivisionError: division by zero" in failures[1]
    assert "{'size': None, 'id': 'b'}" in failures[1]
    assert values.is_null().to_list() == [row in failures for row in range(ROWS.height)]
    assert list(failures) == [1]


def test_an_expression_has_a_name_a_type_and_its_columns() -> None:
    expression = python(same, "string", "id").bound(FIELDS)
    assert expression.text == f"python:{__name__}.same"
    assert expression.columns == {"id"}
    assert python(math.sqrt, "double", "ratio").text == "python:math.sqrt"
    assert expression.evaluate(ROWS[:0]).dtype == pl.String


@pytest.mark.parametrize(
    ("fields", "text"),
    [((), "found none; name them"), (("idd",), "needs fields among id, price.* found 'idd'")],
)
def test_a_function_of_no_field_or_an_unknown_one_is_refused(
    fields: tuple[str, ...], text: str
) -> None:
    with pytest.raises(ExpressionError, match=text):
        python(same, "long", *fields).bound(FIELDS)


def test_a_type_that_is_none_is_refused() -> None:
    with pytest.raises(FieldTypeError):
        python(same, "number", "id").bound(FIELDS)


def test_the_absent_side_of_a_revision_is_not_shown_to_the_function() -> None:
    seen: list[str] = []

    def lengthened(text: str, size: int | None) -> int:
        seen.append(text)
        return len(text)

    expression = python(lengthened, "long", "id", "size").bound(FIELDS)
    below = Arc("below", {**FIELDS, "long": FieldType("long")}, ("id",), "at", ())
    box = Map(below, "above", {"long": expression}, tuple(FIELDS))
    absent, there = ROWS.clear(2), pl.Series([True, True])
    told = box.revise(between(absent, ~there, ROWS, there)).revisions
    assert told["after.long"].to_list() == [1, 1]
    assert seen == ["a", "b"]


def test_the_front_door_has_it() -> None:
    assert errata.python(same, "string", "id") == Opaque(same, "string", ("id",))
