"""A field as an Avro writer wrote it, in the physical type of a declared one."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from errata.processors.envelopes.meanings import MEANINGS, VARIABLE, ZONED, instant, is_instant
from errata.processors.envelopes.texts import parsed, rescaled
from errata.schemas.fields import MAX_PRECISION, FieldType
from errata.schemas.layout import Leaf

Convert = Callable[[pl.Series], pl.Series]

_PROMOTED = {  # as Avro promotes, where nothing is lost
    "long": {"int", "long"},
    "float": {"float"},
    "double": {"int", "float", "double"},
}


def conversion(leaf: Leaf, kind: FieldType) -> Convert | None:
    """Return what makes a declared field of a writer's; None if it is of another type.

    A value that does not fit becomes null.

    Args:
        leaf: The writer's field.
        kind: The declared type.
    """
    meaning = MEANINGS.get(leaf.semantic, leaf.logical)
    if kind.kind == "decimal":
        return _decimal(leaf, kind)
    if kind.kind.startswith("timestamp-"):
        if leaf.kind == "string" and meaning == ZONED:
            return lambda values: parsed(values, kind)
        if leaf.kind == "long" and is_instant(meaning):
            return lambda values: instant(values, meaning, kind)
        return None
    if kind.kind == "date":
        return _as_it_is if leaf.kind == "int" and meaning == "date" else None
    if kind.kind == "uuid":
        return (lambda values: parsed(values, kind)) if leaf.kind == "string" else None
    if kind.kind == "string":
        return _symbols(leaf) if leaf.kind == "enum" else _plain(leaf, {"string"})
    if meaning and leaf.kind != "string":
        return None
    if kind.kind in _PROMOTED:
        convert = _plain(leaf, _PROMOTED[kind.kind])
        return convert and (lambda values: values.cast(kind.dtype))
    return _plain(leaf, {kind.kind})


def described(leaf: Leaf) -> str:
    """Return a writer's type as an error names it."""
    digits = f"({leaf.precision},{leaf.scale})" if leaf.logical == "decimal" else ""
    return (leaf.logical or leaf.kind) + digits + (f" ({leaf.semantic})" if leaf.semantic else "")


def _as_it_is(values: pl.Series) -> pl.Series:
    return values


def _plain(leaf: Leaf, kinds: set[str]) -> Convert | None:
    return _as_it_is if leaf.kind in kinds else None


def _symbols(leaf: Leaf) -> Convert:
    symbols = pl.Series(leaf.symbols, dtype=pl.String)
    return symbols.gather


def _decimal(leaf: Leaf, kind: FieldType) -> Convert | None:
    if leaf.kind == VARIABLE:
        return lambda values: rescaled(
            values.struct.field("value"), values.struct.field("scale"), kind
        )
    if leaf.logical != "decimal" or leaf.scale > kind.scale:
        return None
    known = leaf.precision <= MAX_PRECISION
    if known and leaf.precision - leaf.scale > kind.precision - kind.scale:
        return None
    if known and leaf.scale == kind.scale:
        return _as_it_is
    return lambda values: rescaled(
        values, pl.Series([leaf.scale]).new_from_index(0, len(values)), kind
    )
