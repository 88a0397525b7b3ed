"""Aligns several parts to one type in which they can be compared or chosen from."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from errata.processors.expressions import casts, literals, rules
from errata.processors.expressions.columns import Kernel
from errata.processors.expressions.part import Part, constant
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType


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


def read(part: Part, kind: FieldType) -> Part | None:
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
    read_parts = tuple(read(part, kind) or part for part in parts)
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
