"""A part of an expression, ready to run: its type, its lineage and its function on columns.

`align` brings several parts to one type in which they can be compared or chosen from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.expressions import casts, literals, rules
from errata.processors.expressions.columns import Kernel
from errata.schemas.errors import ErrataError
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


@dataclass(frozen=True)
class Alignment:
    """How parts are brought to one type.

    Args:
        type: The common type, not optional unless it is ``void``.
        casts: The cast of each part's values to it.
        optional: Whether each part can be null in it.
    """

    type: FieldType
    casts: tuple[Kernel, ...]
    optional: tuple[bool, ...]


class MisalignedError(ErrataError):
    """Some parts have no type in common; the compiler adds the position in the text."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        super().__init__("no common type of " + ", ".join(str(part.type) for part in parts))


def reading(part: Part, kind: FieldType) -> Part | None:
    """Parse a string literal as a date, timestamp or uuid; return None if it is none."""
    if not isinstance(part.literal, str):
        return None
    value = literals.read(part.literal, kind)
    return value and constant(*value, position=part.position)


def readings(*parts: Part) -> tuple[Part, ...]:
    """Return the parts, with string literals next to a date, timestamp or uuid parsed as one.

    Raises:
        MisalignedError: If a literal can't be parsed.
    """
    kinds = {part.type.kind for part in parts}
    if not kinds & {*rules.TEMPORAL, "uuid"}:
        return parts
    kind = rules.TIMESTAMP if kinds & set(rules.INSTANTS) else rules.DATE
    kind = kind if kinds & set(rules.TEMPORAL) else rules.UUID
    read_parts = tuple(reading(part, kind) or part for part in parts)
    if any(isinstance(p.literal, str) and p.type.kind == "string" for p in read_parts):
        raise MisalignedError(parts)
    return read_parts


def align(*parts: Part, literal_digits: bool = False) -> Alignment:
    """Return how the parts are brought to one type.

    Args:
        parts: The parts to align, after `readings`.
        literal_digits: Whether an integer literal next to a decimal counts with its own digits (in
            comparisons) instead of those of its width (in choices and IN), as in Spark.

    Raises:
        MisalignedError: If there is no common type.
    """
    decimal = literal_digits and any(part.type.kind == "decimal" for part in parts)
    counted = [part.counted if decimal and part.is_whole_literal else part.type for part in parts]
    target: FieldType | None = rules.VOID
    for kind in counted:
        target = target and rules.common(target, kind)
    if target is None:
        raise MisalignedError(parts)
    target = target if target == rules.VOID else target.required
    return Alignment(
        target,
        tuple(_kernel(part, target) for part in parts),
        tuple(kind.optional or rules.cast_can_fail(kind, target) for kind in counted),
    )


def _kernel(part: Part, target: FieldType) -> Kernel:
    kernel = casts.cast(part.type, target)
    if part.columns:
        return kernel
    value = kernel(part.run(pl.DataFrame()))  # once, not for every batch
    return lambda _: value
