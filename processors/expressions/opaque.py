"""Python functions as expressions: they are opaque, without lineage inside, and slower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from errata.processors.expressions.errors import ExpressionError, UserFunctionError
from errata.processors.expressions.expression import Expression
from errata.processors.expressions.part import Part
from errata.processors.expressions.plain_values import held, plain
from errata.schemas.fields import Fields, FieldType


@dataclass(frozen=True)
class Opaque:
    """A Python function that is called for every tuple, for `map` and `where`.

    It gets and returns values as in `plain_values`. It must be a function of its arguments alone:
    it is called again for the same tuple, also in another process. If all of its fields are
    optional, it must accept None in all of them. Tuples for which it raises, or returns a value of
    another type, are left out (docs/networks.md).

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
                hint="name them behind the type, as in python(f, 'long', 'size')",
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
        there = pl.repeat(True, tuples.height, dtype=pl.Boolean, eager=True)
        for name in needed:
            there &= tuples[name].is_not_null()
        columns = [plain(tuples[name], field) for name, field in types.items()]
        found: list[str | int | float | bytes | None] = []
        failures: dict[int, str] = {}
        for row, (is_there, *values) in enumerate(zip(there.to_list(), *columns, strict=True)):
            try:
                found.append(held(self.function(*values), kind) if is_there else None)
            except Exception as error:  # noqa: BLE001 - whatever a user's function may raise
                found.append(None)
                given = dict(zip(types, values, strict=True))
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}; given {given}"
                failures[row] = str(UserFunctionError(self.text, "call", reason))
        return pl.Series(found, dtype=kind.dtype), failures


@dataclass(frozen=True)
class Call(Expression):
    """A Python function over the fields of an arc.

    Args:
        opaque: The function.
        types: The fields that are its arguments.
    """

    opaque: Opaque
    types: Fields

    def judge(self, tuples: pl.DataFrame) -> tuple[pl.Series, Mapping[int, str]]:
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
