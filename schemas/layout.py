"""The layout of a flat record that the codec walks; `schemas.resolver` builds it from a schema."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from errata.schemas.errors import ErrataError
from errata.schemas.fields import MAX_PRECISION
from errata.schemas.shapes import Shape

Dtype = type[pl.DataType] | pl.DataType

DTYPES: dict[str, Dtype] = {
    "null": pl.Null,
    "boolean": pl.Boolean,
    "int": pl.Int32,
    "long": pl.Int64,
    "float": pl.Float32,
    "double": pl.Float64,
    "string": pl.String,
    "bytes": pl.Binary,
    "enum": pl.UInt8,
    "decimal": pl.Int128,
    "variable-decimal": pl.Struct({"scale": pl.Int32, "value": pl.Int128}),
}

_MS_FIRST, _MS_LAST = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999

BOUNDS = {  # fastavro could not read back times outside
    ("int", ""): (-(2**31), 2**31 - 1),
    ("long", "timestamp-millis"): (_MS_FIRST, _MS_LAST),
    ("long", "timestamp-micros"): (_MS_FIRST * 1000, _MS_LAST * 1000 + 999),
    ("int", "date"): (_MS_FIRST // 86_400_000, _MS_LAST // 86_400_000),
}


class UnsupportedSchemaError(ErrataError):
    """An Avro schema is malformed, or is too nested to be encoded by column."""

    def __init__(self, place: str, need: str) -> None:
        self.place = place
        super().__init__(
            f"Avro schema, {place or 'top'}: {need}; Errata reads flat records, "
            "whose fields may be null and may be records of such fields"
        )


@dataclass(frozen=True)
class Leaf:
    """A field that holds one value.

    Args:
        name: Column name: ``field``, or ``outer.field`` inside a record.
        kind: Avro's primitive type, ``enum``, ``fixed``, or ``variable-decimal``: Debezium's record
            of a scale and an unscaled value.
        logical: Avro's logical type where it is one that is understood, else "".
        precision: Digits of a decimal; more than 38 where Connect does not know how many.
        scale: Digits after the point of a decimal.
        size: Bytes of a fixed.
        symbols: Symbols of an enum; the column holds their indexes.
        null_at: Index of null in the field's union; None if the field is never null.
        semantic: What Kafka Connect calls the value (``connect.name``), "" if nothing.
    """

    name: str
    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    null_at: int | None = None
    semantic: str = ""

    @property
    def coding(self) -> str:
        """The encoding of a value: its primitive type, ``enum`` or ``decimal``."""
        return "decimal" if self.logical == "decimal" else self.kind

    @property
    def dtype(self) -> Dtype:
        """Physical polars type of the column."""
        return DTYPES[self.coding]

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest number allowed; None for 64-bit numbers and for non-numbers."""
        if self.coding == "decimal":
            most = 10 ** min(self.precision, MAX_PRECISION) - 1
            return -most, most
        if self.coding == "enum":
            return 0, len(self.symbols) - 1
        return BOUNDS.get((self.kind, self.logical))


@dataclass(frozen=True)
class Nested:
    """A field that holds a record of leaves.

    If it is nullable, a Boolean column of its own name says where it is present: a null record
    differs from one whose fields are all null.
    """

    name: str
    leaves: tuple[Leaf | Skipped, ...]
    null_at: int | None = None


@dataclass(frozen=True)
class Skipped:
    """A field that the reader does not want, and the shape to skip."""

    name: str
    shape: Shape


Layout = tuple[Leaf | Nested | Skipped, ...]


def columns(layout: Layout) -> dict[str, Dtype]:
    """Return the polars schema of a layout's records."""
    schema: dict[str, Dtype] = {}
    for field in layout:
        if isinstance(field, Leaf):
            schema[field.name] = field.dtype
        elif isinstance(field, Nested):
            if field.null_at is not None:
                schema[field.name] = pl.Boolean
            leaves = (leaf for leaf in field.leaves if isinstance(leaf, Leaf))
            schema |= {leaf.name: leaf.dtype for leaf in leaves}
    return schema
