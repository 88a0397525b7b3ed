"""A part of an expression, ready to run: its type, its lineage and its function on columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.expressions import casts, rules
from errata.processors.expressions.columns import Kernel
from errata.schemas.fields import FieldType


@dataclass(frozen=True)
class Part:
    """A sub-expression.

    Args:
        type: Its type by `rules`; optional if it can be null.
        columns: The fields that it reads.
        run: Returns its values for a frame of tuples. Without columns that is one value, whatever
            the frame's height: polars broadcasts it to longer columns.
        literal: The value of a literal number (unscaled) or string, otherwise None.
        position: Its start in the text.
    """

    type: FieldType
    columns: frozenset[str]
    run: Callable[[pl.DataFrame], pl.Series]
    literal: int | str | None = None
    position: int = 0

    @property
    def is_whole_literal(self) -> bool:
        """Whether it is an integer literal: next to decimals its own digits count."""
        return self.type.kind in rules.WHOLE and isinstance(self.literal, int)

    def cast(self, target: FieldType) -> Part:
        """Return it in another type, null if a value has no counterpart there."""
        kernel = casts.cast(self.type, target)
        optional = self.type.optional or rules.cast_can_fail(self.type, target)
        return replace(apply(kernel, replace(target, optional=optional), self), literal=None)

    def as_decimal(self) -> Part:
        """Return an integer as the decimal that represents it; its values don't change."""
        kind = self.counted
        cast = self.cast(kind)
        return replace(cast, type=replace(kind, optional=self.type.optional), literal=self.literal)

    @property
    def counted(self) -> FieldType:
        """Its type next to a decimal: an integer as a decimal, a literal's with its own digits."""
        if self.type.kind not in rules.WHOLE:
            return self.type
        digits = len(str(abs(self.literal))) if isinstance(self.literal, int) else None
        return rules.decimal_of(self.type, digits=digits)


def constant(value: object, kind: FieldType, *, position: int = 0) -> Part:
    """Return a part with one constant value."""
    column = pl.Series([value], dtype=rules.physical(kind))
    literal = value if isinstance(value, int | str) and not isinstance(value, bool) else None
    return Part(kind, frozenset(), lambda _: column, literal, position)


def apply(kernel: Kernel, kind: FieldType, *parts: Part) -> Part:
    """Return a part that runs a function on the values of others; constants are folded.

    A function of single values returns a single value.
    """
    runs = [part.run for part in parts]
    columns = frozenset[str]().union(*(part.columns for part in parts))
    position = min((part.position for part in parts), default=0)
    if not columns:
        value = kernel(*(run(pl.DataFrame()) for run in runs))
        return Part(kind, columns, lambda _: value, None, position)
    return Part(kind, columns, lambda frame: kernel(*(run(frame) for run in runs)), None, position)
