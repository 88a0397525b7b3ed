"""Bringing several parts to the one type in which they can be compared or chosen from."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from processors.expressions import casts, literals, rules
from processors.expressions.part import Part
from schemas.errors import ErrataError
from schemas.fields import FieldType


@dataclass(frozen=True)
class Alignment:
    """How parts come to one type.

    Args:
        type: The common type, not optional unless it is ``void``.
        casts: What brings each part's values to it.
        optional: Whether each part can be null in it.
    """

    type: FieldType
    casts: tuple[casts.Kernel, ...]
    optional: tuple[bool, ...]


class MisalignedError(ErrataError):
    """Some parts have no type in common; the compiler says so with the place in the text."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        super().__init__("no common type of " + ", ".join(str(part.type) for part in parts))


def align(*parts: Part, literal_digits: bool = False) -> Alignment:
    """Return how the parts come to one type.

    Args:
        parts: What to align. A string literal beside a timestamp is read as one.
        literal_digits: Whether an integer literal beside a decimal counts with its own digits (in
            comparisons) rather than those of its width (in choices and IN), as in Spark.

    Raises:
        MisalignedError: If there is none.
    """
    kinds = {part.type.kind for part in parts}
    counted = [_counted(part, kinds, literal_digits=literal_digits) for part in parts]
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


def _kernel(part: Part, target: FieldType) -> casts.Kernel:
    at = _moment_ms(part) if target.kind == "timestamp-millis" else None
    if at is None:
        return casts.cast(part.type, target)
    moment = pl.Series([at], dtype=pl.Int64)
    return lambda _: moment


def _moment_ms(part: Part) -> int | None:
    return literals.timestamp_ms(part.literal) if isinstance(part.literal, str) else None


def _counted(part: Part, kinds: set[str], *, literal_digits: bool) -> FieldType:
    if "timestamp-millis" in kinds and _moment_ms(part) is not None:
        return rules.TIMESTAMP
    if literal_digits and part.is_whole_literal and "decimal" in kinds:
        return part.counted
    return part.type
