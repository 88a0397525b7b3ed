"""Python functions as expressions: they are opaque, without lineage inside, and slower.

Users' functions get and return plain values: a decimal is a `decimal.Decimal`, a date a
`datetime.date`, a timestamp an int of its unit since 1970, a uuid text, null None. A return value
has the declared type, or is None if that is optional; a decimal is rounded half up to its scale.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from errata.processors.expressions.errors import ExpressionError, UserFunctionError
from errata.processors.expressions.expression import Expression
from errata.processors.expressions.part import Part
from errata.schemas.fields import MAX_PRECISION, Fields, FieldType

_EPOCH = datetime.date(1970, 1, 1)
_EXACT = decimal.Context(prec=2 * MAX_PRECISION, traps=[decimal.InvalidOperation])
_BITS = {"int": 32, "long": 64, "timestamp-millis": 64, "timestamp-micros": 64}


def to_plain(column: pl.Series, kind: FieldType) -> list[Any]:
    """Return a column's values as plain Python values."""
    if kind.kind == "date":
        return column.cast(pl.Date).to_list()
    if kind.kind == "decimal":
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        return [v if v is None else _EXACT.multiply(v, unit) for v in column.to_list()]
    return column.to_list()


def to_physical(value: Any, kind: FieldType) -> Any:
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


@dataclass(frozen=True)
class Opaque:
    """A Python function that is called for every tuple, for `map` and `where`.

    It gets and returns plain values. It must be a function of its arguments alone: it is called
    again for the same tuple, also in another process. If all of its fields are optional, it must
    accept None in all of them. Tuples for which it raises, or returns a value of another type, are
    left out (docs/networks.md).

    Args:
        function: The function.
        returns: Type of its return value.
        arguments: The fields that are its arguments, at least one.
    """

    function: Callable[..., Any]
    returns: str
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        """Its name in plans and messages."""
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"python:{getattr(self.function, '__module__', None) or '__main__'}.{name}"

    def bound(self, fields: Fields) -> Expression:
        """Return it as an expression over these fields.

        Raises:
            ExpressionError: If it has no field, or an unknown one.
            FieldTypeError: If `returns` is not a type.
        """
        unknown = [name for name in self.arguments if name not in fields]
        if unknown or not self.arguments:
            raise ExpressionError(
                self.text,
                0,
                need=f"fields among {', '.join(fields)}",
                found=", ".join(map(repr, unknown)) or "none",
                hint="name them after the type, as in python(f, 'long', 'size')",
            )
        kind = FieldType.parse(self.returns)
        types = {name: fields[name] for name in self.arguments}

        columns = frozenset(types)
        part = Part(kind, columns, lambda tuples: self.called(tuples, types, kind)[0])
        return Call(self.text, kind, columns, part, self, types)

    def called(
        self, tuples: pl.DataFrame, types: Fields, kind: FieldType
    ) -> tuple[pl.Series, Mapping[int, str]]:
        """Return the function's value for each tuple, and by row why it failed.

        Null in a field that is never null means that the tuple is the absent side of a revision.
        The function is not called for it, and its value is null. If the function fails for a tuple,
        the value is null too.

        Args:
            tuples: The tuples.
            types: Types of its arguments.
            kind: Type of its return value.
        """
        needed = [name for name, field in types.items() if not field.optional]
        is_called = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
        for name in needed:
            is_called &= tuples[name].is_not_null()
        columns = [to_plain(tuples[name], field) for name, field in types.items()]
        results: list[str | int | float | bytes | None] = []
        failures: dict[int, str] = {}
        for row, (call, *values) in enumerate(zip(is_called.to_list(), *columns, strict=True)):
            try:
                results.append(to_physical(self.function(*values), kind) if call else None)
            except Exception as error:  # noqa: BLE001 - whatever a user's function may raise
                results.append(None)
                arguments = dict(zip(types, values, strict=True))
                reason = (
                    f"{type(error).__name__}: {' '.join(str(error).split())}; arguments {arguments}"
                )
                failures[row] = str(UserFunctionError(self.text, "call", reason))
        return pl.Series(results, dtype=kind.dtype), failures


@dataclass(frozen=True)
class Call(Expression):
    """A Python function over the fields of an arc.

    Args:
        opaque: The function.
        types: The fields that are its arguments.
    """

    opaque: Opaque
    types: Fields

    def evaluate_with_failures(self, tuples: pl.DataFrame) -> tuple[pl.Series, Mapping[int, str]]:
        """Return its values, null if it failed, and by row why it failed."""
        return self.opaque.called(tuples, self.types, self.type)


def python(function: Callable[..., Any], returns: str, *fields: str) -> Opaque:
    """Use a Python function in place of an expression, in `map` and `where`.

    It is slower than an expression, since it is called once per tuple, and opaque: there is no
    lineage from its fields to its result.

    Args:
        function: Called with the values of the fields; see `Opaque`.
        returns: Type of its return value, such as ``"long"`` or ``"decimal(18,2)?"``.
        fields: The fields that are its arguments.

    Example:
        >>> shout = python(lambda text: text.upper() + "!", "string", "text")
        >>> expression = shout.bound({"text": FieldType("string")})
        >>> expression.evaluate(pl.DataFrame({"text": ["cut", "bust"]})).to_list()
        ['CUT!', 'BUST!']
    """
    return Opaque(function, returns, fields)
