"""Plain Python values, as users' functions get and return them.

A decimal is a `decimal.Decimal`, a date a `datetime.date`, a timestamp an int of its unit since
1970, a uuid text, null None. A return value has the declared type, or is None if that is optional;
a decimal is rounded half up to its scale.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import polars as pl

from errata.schemas.fields import MAX_PRECISION, FieldType

_EPOCH = datetime.date(1970, 1, 1)
_EXACT = decimal.Context(prec=2 * MAX_PRECISION, traps=[decimal.InvalidOperation])
_BITS = {"int": 32, "long": 64, "timestamp-millis": 64, "timestamp-micros": 64}


def plain(column: pl.Series, kind: FieldType) -> list[Any]:
    """Return a column's values as plain Python values."""
    if kind.kind == "date":
        return column.cast(pl.Date).to_list()
    if kind.kind == "decimal":
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        return [v if v is None else _EXACT.multiply(v, unit) for v in column.to_list()]
    return column.to_list()


def held(value: Any, kind: FieldType) -> Any:
    """Return a plain value in the physical form of a column of a type.

    Raises:
        TypeError: If it has another type.
        ValueError: If it is not a value of the type.
    """
    if value is None:
        if not kind.optional:
            raise TypeError(f"returned None, but its type is {kind}; declare {kind.nullable}")
        return None
    is_number = isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)
    match kind.kind, value:
        case "decimal", decimal.Decimal() | int() if is_number:
            unit = decimal.Decimal(1).scaleb(-kind.scale)
            exact = decimal.Decimal(value)
            rounded = exact.quantize(unit, rounding=decimal.ROUND_HALF_UP, context=_EXACT)
            return _within(int(rounded.scaleb(kind.scale, _EXACT)), 10**kind.precision, kind)
        case "date", datetime.date() if not isinstance(value, datetime.datetime):
            return (value - _EPOCH).days
        case "int" | "long" | "timestamp-millis" | "timestamp-micros", int() if is_number:
            return _within(value, 2 ** (_BITS[kind.kind] - 1), kind)
        case "float" | "double", float() | int() if is_number:
            return float(value)
        case "uuid", str() | uuid.UUID():
            return str(uuid.UUID(str(value)))
        case "string", str():
            return value.encode().decode()  # half a surrogate pair is not text
        case ("boolean", bool()) | ("bytes", bytes()):
            return value
    raise TypeError(f"returned {value!r}, a {type(value).__name__}; needs a {kind.required}")


def _within(number: int, bound: int, kind: FieldType) -> int:
    least = -bound if kind.kind in _BITS else 1 - bound
    if not least <= number < bound:
        raise ValueError(f"returned more than a {kind.required} holds")
    return number
