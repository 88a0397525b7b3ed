"""Tuples and expressions in a Spark session, and where our values and types differ from its own."""

import math
import struct
from decimal import Context, Decimal

import polars as pl

from errata.processors.expressions.expression import Expression
from errata.schemas.fields import Fields, FieldType

_WIDE = Context(prec=60)
_TYPES = {
    "long": "bigint",
    "bytes": "binary",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "uuid": "string",
}
_READ_AS = {
    "timestamp": "timestamp_micros(`{0}`)",
    "date": "date_from_unix_date(`{0}`)",
}
_SHOWN_AS = {"timestamp": "unix_micros({0})", "date": "unix_date({0})"}


def in_spark(spark, tuples: pl.DataFrame, fields: Fields):
    """Return the same tuples in Spark, in the same order."""
    stored, read = [], []
    values = []
    for name, field in fields.items():
        kind = spark_type(field)
        column = seen(tuples[name].to_list(), field)
        if field.kind == "bytes":
            column = [None if v is None else bytearray(v) for v in column]
        values.append(column)
        stored.append(
            f"`{name}` {'bigint' if kind == 'timestamp' else 'int' if kind == 'date' else kind}"
        )
        read.append(_READ_AS.get(kind, "`{0}`").format(name) + f" as `{name}`")
    frame = spark.createDataFrame(list(zip(*values, strict=True)), ", ".join(stored))
    return frame.selectExpr(*read).coalesce(1).cache()


def evaluated(table, texts):
    """Return Spark's type and values of each text over a table of `in_spark`.

    For a text at which Spark stops the type says why, and there are no values.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return _evaluated(table, texts)
    except (Py4JError, PySparkException) as error:
        if len(texts) == 1:
            return [(f"stops: {error}"[:300], [])]
        half = len(texts) // 2
        return evaluated(table, texts[:half]) + evaluated(table, texts[half:])


def _evaluated(table, texts):
    theirs = table.selectExpr(*(f"{text} as c{i}" for i, text in enumerate(texts)))
    kinds = [field.dataType.simpleString() for field in theirs.schema.fields]
    shown = [_SHOWN_AS.get(kind, "{0}").format(f"c{i}") for i, kind in enumerate(kinds)]
    columns = zip(*theirs.selectExpr(*shown).collect(), strict=True)
    return list(zip(kinds, columns, strict=True))


def difference(
    expression: Expression, tuples: pl.DataFrame, kind: str, expected, *, near: bool = False
) -> str | None:
    """Return the first difference between an expression and Spark's, None if there is none.

    Args:
        expression: Ours.
        tuples: What both are evaluated on.
        kind: Spark's type.
        expected: Spark's values.
        near: Whether the last bit of a double, or the 16th digit of a decimal, may differ.
    """
    if spark_type(expression.type) != kind:
        return f"type {expression.type}, Spark {kind}"
    floor = expression.type.kind == "timestamp-millis"
    got = seen(expression.evaluate(tuples).to_list(), expression.type)
    for row, (mine, spark_value) in enumerate(zip(got, expected, strict=True)):
        value = bytes(spark_value) if isinstance(spark_value, bytearray) else spark_value
        value = value // 1000 * 1000 if floor and value is not None else value
        if not same(mine, value, near=near):
            inputs = {c: tuples[c][row] for c in sorted(expression.columns)}
            return f"{mine!r}, Spark {value!r} of {inputs}"
    return None


def spark_type(field: FieldType) -> str:
    if field.kind == "decimal":
        return f"decimal({field.precision},{field.scale})"
    return _TYPES.get(field.kind, field.kind)


def seen(values, field: FieldType):
    """Return values as Spark shows them: decimals as such, timestamps in microseconds."""
    if field.kind == "decimal":
        return [None if v is None else Decimal(v).scaleb(-field.scale, _WIDE) for v in values]
    if field.kind == "timestamp-millis":
        return [None if v is None else v * 1000 for v in values]
    return values


def same(mine, theirs, *, near: bool) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        if math.isnan(mine) or math.isnan(theirs):
            return math.isnan(mine) and math.isnan(theirs)
        if near:
            # Each is within one unit of the last place of the exact value.
            return mine == theirs or abs(mine - theirs) <= 2 * math.ulp(theirs)
        return struct.pack("d", mine) == struct.pack("d", theirs)
    if near and isinstance(mine, Decimal) and isinstance(theirs, Decimal):
        return abs(mine - theirs) <= abs(theirs) * Decimal("1e-15")
    return type(mine) is type(theirs) and mine == theirs
