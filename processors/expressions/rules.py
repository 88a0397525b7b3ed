"""The types of expressions, by Spark's rules.

In addition to the kinds of fields there is ``void``, the type of a bare NULL. Decimal rules are
those of Spark's ``DecimalPrecision`` with loss of precision allowed (its default). The others are
those of its ANSI mode, the default of Spark 4: a float next to anything but a float counts as a
double.
"""

from __future__ import annotations

import polars as pl

from errata.schemas.fields import MAX_PRECISION, PHYSICAL, FieldType

VOID = FieldType("void", optional=True)
INT = FieldType("int")
LONG = FieldType("long")
FLOAT = FieldType("float")
DOUBLE = FieldType("double")
BOOLEAN = FieldType("boolean")
STRING = FieldType("string")
BYTES = FieldType("bytes")
UUID = FieldType("uuid")
DATE = FieldType("date")
TIMESTAMP = FieldType("timestamp-millis")
MICROS = FieldType("timestamp-micros")

WHOLE = ("int", "long")
NUMERIC = (*WHOLE, "decimal", "float", "double")
INSTANTS = ("timestamp-millis", "timestamp-micros")
TEMPORAL = ("date", *INSTANTS)
TEXT = ("string", "uuid")
LEAST_SCALE = 6
"""Digits after the point that a division or a capped precision keeps if possible."""
_DIGITS = {"int": 10, "long": 20}
_DIGITS_HELD = {"int": 10, "long": 19, "boolean": 1}

_CASTS: dict[str, tuple[str, ...]] = {
    "void": tuple(PHYSICAL),
    "int": (*NUMERIC, "boolean", "string", "timestamp-millis"),
    "long": (*NUMERIC, "boolean", "string", "timestamp-millis"),
    "float": (*NUMERIC, "boolean"),
    "double": (*NUMERIC, "boolean"),
    "decimal": (*NUMERIC, "boolean", "string"),
    "boolean": (*NUMERIC, "boolean", "string"),
    "string": (*NUMERIC, "boolean", "string", "bytes", *TEMPORAL),
    "bytes": ("bytes", "string"),
    "uuid": TEXT,
    "date": (*TEMPORAL, "string"),
    "timestamp-millis": (*TEMPORAL, *NUMERIC, "string"),
    "timestamp-micros": (*TEMPORAL, *NUMERIC, "string"),
}
_CAN_FAIL = {
    ("string", "boolean"),
    ("bytes", "string"),  # bytes that are not UTF-8
    ("date", "timestamp-micros"),  # beyond the year 294246
    ("timestamp-millis", "timestamp-micros"),
}
"""Casts, other than between numbers, that have no counterpart for some value."""


def physical(kind: FieldType) -> type[pl.DataType]:
    """Return the polars type that holds values of an expression's type."""
    return pl.Null if kind.kind == "void" else PHYSICAL[kind.kind]


def decimal_of(kind: FieldType, *, digits: int | None = None) -> FieldType:
    """Return the decimal that represents an integer: with its literal's digits or its width's.

    Example:
        >>> str(decimal_of(LONG)), str(decimal_of(INT, digits=7))
        ('decimal(20,0)', 'decimal(7,0)')
    """
    if kind.kind == "decimal":
        return kind
    return FieldType("decimal", digits or _DIGITS[kind.kind], 0, kind.optional)


def common(left: FieldType, right: FieldType) -> FieldType | None:
    """Return the type in which two values can share a column or be compared, None if none.

    Beyond 38 digits a decimal keeps those before the point.

    Example:
        >>> str(common(FieldType("decimal", 18, 8), INT)), str(common(FLOAT, INT))
        ('decimal(18,8)', 'double')
    """
    optional = left.optional or right.optional
    if "void" in (left.kind, right.kind):
        return (right if left.kind == "void" else left).nullable
    if left.kind == right.kind != "decimal":
        return FieldType(left.kind, optional=optional)
    kinds = {left.kind, right.kind}
    for order in (TEMPORAL, ("uuid", "string")):
        if kinds <= set(order):
            return FieldType(max(kinds, key=order.index), optional=optional)
    if not kinds <= set(NUMERIC):
        return None
    if kinds & {"float", "double"}:
        return FieldType("double", optional=optional)
    if "decimal" not in kinds:
        return FieldType("long", optional=optional)
    left, right = decimal_of(left), decimal_of(right)
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    over = max(0, precision - MAX_PRECISION)
    return FieldType("decimal", precision - over, max(0, scale - over), optional)


def arithmetic(
    operator: str, left: FieldType, right: FieldType, *, divisor_is_not_zero: bool = False
) -> FieldType | None:
    """Return the type of ``left operator right``, optional if it can be null, None if none.

    Args:
        operator: One of ``+ - * / % div``.
        left: Type of the left operand; for an integer next to a decimal, that of `decimal_of`.
        right: Type of the right operand, likewise.
        divisor_is_not_zero: Whether the right operand is known to differ from 0.

    Example:
        >>> str(arithmetic("/", FieldType("decimal", 18, 2), FieldType("decimal", 7, 0)))
        'decimal(26,10)?'
    """
    kinds = {left.kind, right.kind}
    if not kinds <= set(NUMERIC):
        return None
    zero = operator in ("/", "%", "div") and not divisor_is_not_zero
    optional = left.optional or right.optional or zero
    real = kinds & {"float", "double"}
    if operator == "div":
        return None if real else FieldType("long", optional=True)
    if kinds == {"float"} and operator != "/":
        return FieldType("float", optional=optional)
    if real or (operator == "/" and "decimal" not in kinds):
        return FieldType("double", optional=optional)
    if "decimal" not in kinds:
        kind = "long" if "long" in kinds else "int"
        return FieldType(kind, optional=optional or operator != "%")
    return _decimal(operator, decimal_of(left), decimal_of(right), optional)


def _decimal(operator: str, left: FieldType, right: FieldType, optional: bool) -> FieldType:
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    scale = max(s1, s2)
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif operator == "/":
        scale = max(LEAST_SCALE, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    elif operator == "%":
        precision = min(p1 - s1, p2 - s2) + scale
    else:
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision <= MAX_PRECISION:
        return FieldType("decimal", max(precision, 1), scale, optional)
    whole = precision - scale
    scale = max(MAX_PRECISION - whole, min(scale, LEAST_SCALE))
    return FieldType("decimal", MAX_PRECISION, scale, optional=True)


def can_cast(source: FieldType, target: FieldType) -> bool:
    """Return whether a cast between the two is supported."""
    return target.kind in _CASTS[source.kind]


def cast_can_fail(source: FieldType, target: FieldType) -> bool:
    """Return whether a value of one type may have no counterpart in the other."""
    if source.kind == target.kind != "decimal":
        return False
    if source.kind == "void" or (source.kind, target.kind) in _CAN_FAIL:
        return True
    if source.kind == "string":
        return target.kind not in ("string", "bytes")
    if target.kind == "decimal":
        if source.kind in ("float", "double", *INSTANTS):
            return True
        held = _DIGITS_HELD.get(source.kind, source.precision - source.scale)
        carries = source.scale > target.scale  # 99.99 rounded to tenths needs one digit more
        return target.precision - target.scale < held + carries
    if target.kind == "long":
        return source.kind in ("float", "double") or (
            source.kind == "decimal" and source.precision - source.scale > 18
        )
    if target.kind == "timestamp-millis":
        return source.kind == "long"
    return target.kind == "int" and source.kind != "boolean"
