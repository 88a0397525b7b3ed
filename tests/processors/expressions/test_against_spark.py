"""Every form and function against a Spark 4.0 session, value by value and type by type.

A case is our text and Spark's: its default (ANSI) mode stops where we give null, so operators that
can fail stand there in their `try_` form. Values are compared exactly, floats bit for bit, but for
exp, power and logarithms: the last bits of those belong to the C library and to Java.
"""

import math
import struct
from decimal import Context, Decimal

import polars as pl
import pytest

from processors.expressions.expression import compile_expression
from processors.expressions.functions import FUNCTIONS
from processors.expressions.vocabulary import ENTRIES
from schemas.fields import physical
from tests.processors.expressions.spark_cases import ALIASES, FAMILIES
from tests.processors.expressions.spark_rows import FIELDS, ROWS, rows

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

_WIDE = Context(prec=60)
_SPARK_TYPES = {
    "long": "bigint",
    "bytes": "binary",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
}
_READ_AS = {
    "timestamp": "timestamp_micros(`{0}`)",
    "date": "date_from_unix_date(`{0}`)",
}
_SHOWN_AS = {"timestamp": "unix_micros({0})", "date": "unix_date({0})"}
_NEAR = ("exp", "power", "ln", "log10", "log2")


@pytest.fixture(scope="module")
def tuples():
    return pl.DataFrame(rows(), schema=physical(FIELDS))


@pytest.fixture(scope="module")
def table(spark, tuples):
    """The same tuples in Spark."""
    stored, read = [], []
    values = {}
    for name, field in FIELDS.items():
        kind = spark_type(field)
        column = tuples[name].to_list()
        if field.kind == "timestamp-millis":
            column = [None if v is None else v * 1000 for v in column]
        if field.kind == "decimal":
            column = [None if v is None else Decimal(v).scaleb(-field.scale, _WIDE) for v in column]
        if field.kind == "bytes":
            column = [None if v is None else bytearray(v) for v in column]
        values[name] = column
        stored.append(
            f"`{name}` {'bigint' if kind == 'timestamp' else 'int' if kind == 'date' else kind}"
        )
        read.append(_READ_AS.get(kind, "`{0}`").format(name) + f" as `{name}`")
    frame = spark.createDataFrame(list(zip(*values.values(), strict=True)), ", ".join(stored))
    return frame.selectExpr(*read).coalesce(1).cache()


def spark_type(field):
    if field.kind == "decimal":
        return f"decimal({field.precision},{field.scale})"
    return _SPARK_TYPES.get(field.kind, field.kind)


def test_every_function_and_form_is_compared():
    texts = [ours for cases in FAMILIES.values() for ours, _ in cases()]
    words = " ".join(texts).lower()
    assert [name for name in FUNCTIONS if f"{name}(" not in words and name not in ALIASES] == []
    forms = {"field", "literal", "bytes", "boolean", "parentheses", "escape"}
    assert [e.name for e in ENTRIES if e.name not in forms and e.name.split()[0] not in words] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_oracle_values_and_types_are_those_of_spark(family, table, tuples):
    cases = list(dict.fromkeys(FAMILIES[family]()))
    theirs = table.selectExpr(*(f"{spark} as c{i}" for i, (_, spark) in enumerate(cases)))
    kinds = [field.dataType.simpleString() for field in theirs.schema.fields]
    shown = [_SHOWN_AS.get(kind, "{0}").format(f"c{i}") for i, kind in enumerate(kinds)]
    columns = list(zip(*theirs.selectExpr(*shown).collect(), strict=True))
    wrong = []
    for (text, spark_text), kind, expected in zip(cases, kinds, columns, strict=True):
        expression = compile_expression(text, FIELDS)
        if spark_type(expression.type) != kind:
            wrong.append(f"{text}: type {expression.type}, Spark {kind}")
            continue
        got = seen(expression.evaluate(tuples).to_list(), expression.type)
        if len(got) == 1:
            got *= ROWS
        near = text.startswith(_NEAR)
        floor = expression.type.kind == "timestamp-millis"
        for row, (mine, spark_value) in enumerate(zip(got, expected, strict=True)):
            value = bytes(spark_value) if isinstance(spark_value, bytearray) else spark_value
            value = value // 1000 * 1000 if floor and value is not None else value
            if not same(mine, value, near=near):
                inputs = {c: tuples[c][row] for c in expression.columns}
                wrong.append(f"{text} [{spark_text}]: {mine!r}, Spark {value!r} of {inputs}")
                break
    assert wrong == [], f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)


def seen(values, field):
    if field.kind == "decimal":
        return [None if v is None else Decimal(v).scaleb(-field.scale, _WIDE) for v in values]
    if field.kind == "timestamp-millis":
        return [None if v is None else v * 1000 for v in values]
    return values


def same(mine, theirs, *, near):
    if isinstance(mine, float) and isinstance(theirs, float):
        if math.isnan(mine) or math.isnan(theirs):
            return math.isnan(mine) and math.isnan(theirs)
        if near:
            return mine == theirs or abs(mine - theirs) <= math.ulp(theirs)
        return struct.pack("d", mine) == struct.pack("d", theirs)
    return type(mine) is type(theirs) and mine == theirs
