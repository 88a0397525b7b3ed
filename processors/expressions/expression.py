"""Expressions over the fields of an arc, as used by `where`, `map` and aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from errata.processors.expressions import rules
from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.lower import Lowering
from errata.processors.expressions.parse import parse
from errata.processors.expressions.part import Part
from errata.schemas.fields import Fields, FieldType

_EVENT_TIME_HINTS = {
    "int": "convert it with timestamp_seconds(x) or timestamp_millis(x)",
    "long": "convert it with timestamp_millis(x), timestamp_seconds(x) or timestamp_micros(x)",
    "string": "convert it with to_timestamp(x)",
}


@dataclass(frozen=True)
class Expression:
    """A scalar expression, checked and typed.

    Args:
        text: The text that the user wrote.
        type: Type of its values; optional if they can be null.
        columns: The fields that it reads.
    """

    text: str
    type: FieldType
    columns: frozenset[str]
    _part: Part

    @property
    def is_field(self) -> bool:
        """Whether it is a field by itself, as it is named."""
        return self.columns == {self.text}

    def evaluate(self, tuples: pl.DataFrame) -> pl.Series:
        """Return its values in the physical type, one for each tuple.

        A tuple for which it has no value (an overflow, a division by zero, a failed cast) gets
        null; no error is raised.
        """
        values = self._part.run(tuples)
        if len(values) != tuples.height:  # one value for all tuples
            values = values.new_from_index(0, tuples.height)
        return values.alias(self.text)

    def evaluate_with_failures(self, tuples: pl.DataFrame) -> tuple[pl.Series, Mapping[int, str]]:
        """Return its values, and by row why a user's function failed; SQL never fails."""
        return self.evaluate(tuples), {}


def compile_expression(text: str, fields: Fields, *, needs: str | None = None) -> Expression:
    """Check, type and lower an SQL scalar expression in Spark's dialect.

    Values are those of Spark 4 with ``try_`` functions: a failing row is null.

    Args:
        text: The expression.
        fields: Types of the fields that it may read, by name; case counts.
        needs: The kind that it must have, such as ``"boolean"`` for `where`; None: any kind.

    Raises:
        ExpressionError: If it is not allowed, a field is unknown, or types don't fit.

    Example:
        >>> cents = FieldType.parse("decimal(18,2)")
        >>> millions = compile_expression("notional / 1000000", {"notional": cents})
        >>> str(millions.type), sorted(millions.columns)
        ('decimal(26,10)', ['notional'])
        >>> tuples = pl.DataFrame({"notional": [1234567890]}, schema={"notional": pl.Int128})
        >>> millions.evaluate(tuples).to_list()
        [123456789000]
    """
    return lowered(text, Lowering(text, fields).part(parse(text)), needs=needs)


def compile_event_time(text: str, fields: Fields) -> Expression:
    """Check, type and lower an expression for an event time, as a timestamp-millis.

    Microseconds are rounded down, a date becomes its midnight in UTC.

    Args:
        text: A field's name or an expression.
        fields: Types of the fields that it may read.

    Raises:
        ExpressionError: As for `compile_expression`, or if it is not a date or timestamp.

    Example:
        >>> noon = compile_event_time("seen", {"seen": FieldType("timestamp-micros")})
        >>> noon.evaluate(pl.DataFrame({"seen": [-1, 1999]})).to_list()
        [-1, 1]
    """
    part = _field_named(text, fields) or Lowering(text, fields).part(parse(text))
    kind = part.type.kind
    if kind not in rules.TEMPORAL:
        raise ExpressionError(
            text,
            part.position,
            need="a timestamp or date for the event time",
            found=str(part.type.required),
            hint=_EVENT_TIME_HINTS.get(kind, ""),
        )
    return lowered(text, part.cast(rules.TIMESTAMP))


def _field_named(text: str, fields: Fields) -> Part | None:
    """Return the field with exactly this name, which need not be a name in SQL."""
    if text not in fields:
        return None
    return Part(fields[text], frozenset((text,)), lambda tuples: tuples[text])


def lowered(text: str, part: Part, *, needs: str | None = None) -> Expression:
    """Return the expression of a lowered part."""
    kind = part.type
    if kind == rules.VOID and needs == "boolean":
        kind, part = rules.BOOLEAN.nullable, part.cast(rules.BOOLEAN)
    if kind.kind == "void":
        raise ExpressionError(
            text, part.position, need="a type", found="null", hint="cast(null as bigint)"
        )
    if needs is not None and kind.kind != needs:
        raise ExpressionError(text, part.position, need=f"a {needs}", found=str(kind.required))
    return Expression(text, kind, part.columns, part)
