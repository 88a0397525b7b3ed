"""Python functions as expressions: opaque, so without lineage inside, and slower."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from processors.aggregates.user_function import UserFunctionError
from processors.expressions.errors import ExpressionError
from processors.expressions.expression import Expression
from processors.expressions.part import Part
from schemas.fields import MAX_PRECISION, Fields, FieldType

_EPOCH = datetime.date(1970, 1, 1)
_EXACT = decimal.Context(prec=2 * MAX_PRECISION, traps=[decimal.InvalidOperation])
_BITS = {"int": 32, "long": 64, "timestamp-millis": 64, "timestamp-micros": 64}


@dataclass(frozen=True)
class Opaque:
    """A Python function that is called for every tuple, for `map` and `where`.

    It gets plain values: a decimal as `decimal.Decimal`, a date as `datetime.date`, a timestamp as
    int of its unit since 1970, a uuid as text, null as None. It returns one of the declared type,
    or None if that is optional; a decimal is rounded half up to its scale. It must be a function of
    its arguments alone: it is called again for the same tuple, also in another process. Given
    optional fields alone it must stand None in all of them.

    Args:
        function: The function.
        returns: Type of what it returns.
        arguments: The fields that it is given, at least one.
    """

    function: Callable[..., Any]
    returns: str
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        """What it is called in plans and messages."""
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"python:{getattr(self.function, '__module__', None) or '__main__'}.{name}"

    def bound(self, fields: Fields) -> Expression:
        """Return it as an expression over these fields.

        Raises:
            ExpressionError: If it is given no field, or an unknown one.
            FieldTypeError: If what it returns is no type.
        """
        unknown = [name for name in self.arguments if name not in fields]
        if unknown or not self.arguments:
            raise ExpressionError(
                self.text,
                0,
                need=f"fields among {', '.join(fields)}",
                found=", ".join(map(repr, unknown)) or "none",
                hint="name them behind the type, as in python(f, 'long', 'size')",
            )
        kind = FieldType.parse(self.returns)
        types = {name: fields[name] for name in self.arguments}

        def run(tuples: pl.DataFrame) -> pl.Series:
            return pl.Series(list(self._called(tuples, types, kind)), dtype=kind.dtype)

        return Expression(self.text, kind, frozenset(types), Part(kind, frozenset(types), run))

    def _called(
        self, tuples: pl.DataFrame, types: Fields, kind: FieldType
    ) -> Iterator[str | int | float | bytes | None]:
        """Yield what the function returns for each tuple, as it is held in a column.

        Null in a field that is never null means that there is no tuple: the absent side of a
        revision. Such a one gets null and is not shown to the function.
        """
        needed = [name for name, field in types.items() if not field.optional]
        there = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
        for name in needed:
            there &= tuples[name].is_not_null()
        columns = [_plain(tuples[name], field) for name, field in types.items()]
        for row, (is_there, *values) in enumerate(zip(there.to_list(), *columns, strict=True)):
            if not is_there:
                yield None
                continue
            try:
                yield _held(self.function(*values), kind)
            except Exception as error:
                given = dict(zip(types, values, strict=True))
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}; given {given}"
                raise UserFunctionError(self.text, "call", reason, row=row) from error


def python(function: Callable[..., Any], returns: str, *fields: str) -> Opaque:
    """Use a Python function where an expression goes, in `map` and `where`.

    It is slower than an expression, once a tuple, and opaque: nothing is known of what it does with
    its fields.

    Args:
        function: Called with the values of the fields; see `Opaque`.
        returns: Type of what it returns, ``"long"`` or ``"decimal(18,2)?"``.
        fields: What it is given.

    Example:
        >>> shout = python(lambda text: text.upper() + "!", "string", "text")
        >>> expression = shout.bound({"text": FieldType("string")})
        >>> expression.evaluate(pl.DataFrame({"text": ["cut", "bust"]})).to_list()
        ['CUT!', 'BUST!']
    """
    return Opaque(function, returns, fields)


def _plain(column: pl.Series, kind: FieldType) -> list[Any]:
    """Return a column's values as Python knows them."""
    if kind.kind == "date":
        return column.cast(pl.Date).to_list()
    if kind.kind == "decimal":
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        return [v if v is None else _EXACT.multiply(v, unit) for v in column.to_list()]
    return column.to_list()


def _held(value: Any, kind: FieldType) -> Any:
    """Return a value as a column of a type holds it.

    Raises:
        TypeError: If it is of another type.
        ValueError: If the type has no such value.
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
            return value.encode().decode()  # half a surrogate pair is no text
        case ("boolean", bool()) | ("bytes", bytes()):
            return value
    raise TypeError(f"returned {value!r}, a {type(value).__name__}; needs a {kind.required}")


def _within(number: int, bound: int, kind: FieldType) -> int:
    least = -bound if kind.kind in _BITS else 1 - bound
    if not least <= number < bound:
        raise ValueError(f"returned more than a {kind.required} holds")
    return number
