"""The layout of a flat record: an Avro schema, its names resolved, as the codec walks it.

Only what can be coded column by column is accepted: leaves, leaves that may be null, and records
of those one level deep. So there is no recursion, and a hostile schema costs nothing (DESIGN 10).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from schemas.errors import ErrataError
from schemas.fields import MAX_PRECISION

MAX_FIELDS = 1000
MAX_SYMBOLS = 255

DTYPES: dict[str, type[pl.DataType]] = {
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
}

_MS_FIRST, _MS_LAST = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999

BOUNDS = {  # times outside could not be read back by fastavro
    ("int", ""): (-(2**31), 2**31 - 1),
    ("long", "timestamp-millis"): (_MS_FIRST, _MS_LAST),
    ("long", "timestamp-micros"): (_MS_FIRST * 1000, _MS_LAST * 1000 + 999),
    ("int", "date"): (_MS_FIRST // 86_400_000, _MS_LAST // 86_400_000),
}

_PRIMITIVES = DTYPES.keys() - {"enum", "decimal"}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class UnsupportedSchemaError(ErrataError):
    """An Avro schema is malformed, or is not flat enough to be coded by column."""

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
        kind: Avro's primitive type, or ``enum``.
        logical: Avro's logical type where it is one that is understood, else "".
        precision: Digits of a decimal.
        scale: Digits after the point of a decimal.
        symbols: Symbols of an enum; the column holds their indexes.
        null_at: Index of null in the field's union; None if the field is never null.
    """

    name: str
    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    null_at: int | None = None

    @property
    def coding(self) -> str:
        """How a value is written: its primitive type, ``enum`` or ``decimal``."""
        return "decimal" if self.logical == "decimal" else self.kind

    @property
    def dtype(self) -> type[pl.DataType]:
        """Physical polars type of the column."""
        return DTYPES[self.coding]

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest number allowed; None for those of 64 bits and what is no number."""
        if self.coding == "decimal":
            return 1 - 10**self.precision, 10**self.precision - 1
        if self.coding == "enum":
            return 0, len(self.symbols) - 1
        return BOUNDS.get((self.kind, self.logical))


@dataclass(frozen=True)
class Nested:
    """A field that holds a record of leaves.

    Where it may be null, a Boolean column of its own name says whether it is there: a null record
    is not the same as one whose fields are all null.
    """

    name: str
    leaves: tuple[Leaf, ...]
    null_at: int | None = None


Layout = tuple[Leaf | Nested, ...]


def columns(layout: Layout) -> dict[str, type[pl.DataType]]:
    """Return the polars schema of a layout's records."""
    schema: dict[str, type[pl.DataType]] = {}
    for field in layout:
        if isinstance(field, Leaf):
            schema[field.name] = field.dtype
            continue
        if field.null_at is not None:
            schema[field.name] = pl.Boolean
        schema |= {leaf.name: leaf.dtype for leaf in field.leaves}
    return schema


def layout_of(schema: object) -> Layout:
    """Resolve a parsed Avro schema (JSON, as dicts and lists) into a layout.

    Raises:
        UnsupportedSchemaError: If it is malformed; has arrays, maps, fixed or unions of more than
            null and one type; nests records deeper than one level; has more than 1,000 fields.

    Example:
        >>> layout_of({"type": "record", "name": "T", "fields": [{"name": "n", "type": "long"}]})
        (Leaf(name='n', kind='long', logical='', precision=0, scale=0, symbols=(), null_at=None),)
    """
    return _Resolver().top(schema)


class _Resolver:
    """Remembers the named types met so far, and counts fields."""

    def __init__(self) -> None:
        self.named: dict[str, tuple[dict[str, Any], str]] = {}
        self.field_count = 0

    def top(self, schema: object) -> Layout:
        declared, space = self._declared(schema, "", "")
        if declared["type"] != "record":
            raise UnsupportedSchemaError("", f"needs a record, found {declared['type']!r}")
        return tuple(self._fields(declared, space))

    def _fields(self, record: dict[str, Any], space: str) -> Iterator[Leaf | Nested]:
        for name, schema in self._members(record, ""):
            plain, null_at = _without_null(schema, name)
            declared, inner = self._declared(plain, space, name)
            if declared["type"] == "record":
                leaves = tuple(self._nested(declared, inner, name))
                yield Nested(name, leaves, null_at)
            else:
                yield self._leaf(declared, name, null_at)

    def _nested(self, record: dict[str, Any], space: str, outer: str) -> Iterator[Leaf]:
        for name, schema in self._members(record, outer):
            place = f"{outer}.{name}"
            plain, null_at = _without_null(schema, place)
            declared, _ = self._declared(plain, space, place)
            if declared["type"] == "record":
                raise UnsupportedSchemaError(place, "records nest deeper than one level")
            yield self._leaf(declared, place, null_at)

    def _members(self, record: dict[str, Any], place: str) -> Iterator[tuple[str, object]]:
        fields, seen = record.get("fields"), set()
        if not isinstance(fields, list):
            raise UnsupportedSchemaError(place, "a record needs a list of fields")
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in field:
                raise UnsupportedSchemaError(place, "a field needs a type and a plain name")
            if name in seen:
                raise UnsupportedSchemaError(place, f"two fields are named {name!r}")
            seen.add(name)
            self.field_count += 1
            if self.field_count > MAX_FIELDS:
                raise UnsupportedSchemaError(place, f"more than {MAX_FIELDS} fields")
            yield name, field["type"]

    def _leaf(self, declared: dict[str, Any], name: str, null_at: int | None) -> Leaf:
        kind, logical = declared["type"], str(declared.get("logicalType", ""))
        if kind == "enum":
            return Leaf(name, kind, symbols=_symbols(declared, name), null_at=null_at)
        if kind == "null" and null_at is not None:
            raise UnsupportedSchemaError(name, "a union needs null and one other type")
        if kind == "bytes" and logical == "decimal":
            precision, scale = _digits(declared, name)
            return Leaf(name, kind, "decimal", precision, scale, null_at=null_at)
        return Leaf(name, kind, logical if (kind, logical) in BOUNDS else "", null_at=null_at)

    def _declared(self, schema: object, space: str, place: str) -> tuple[dict[str, Any], str]:
        """Return a type as a dict, with the namespace in which its own fields are read."""
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return {"type": schema}, space
            full = schema if "." in schema or not space else f"{space}.{schema}"
            if full not in self.named:
                raise UnsupportedSchemaError(place, f"type {schema[:200]!r} is not known here")
            return self.named[full]
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
            raise UnsupportedSchemaError(place, "needs one type, or a union of null and one type")
        if schema["type"] not in ("record", "enum"):
            if schema["type"] in _PRIMITIVES:
                return schema, space
            return self._declared(schema["type"], space, place)
        name, outer = schema.get("name"), schema.get("namespace", space)
        if (
            not isinstance(name, str)
            or not _FULL_NAME.fullmatch(name)
            or not isinstance(outer, str)
        ):
            raise UnsupportedSchemaError(place, f"{schema['type']} needs a name")
        full = name if "." in name or not outer else f"{outer}.{name}"
        if full in self.named and self.named[full][0] is not schema:
            raise UnsupportedSchemaError(place, f"type {full!r} is declared twice")
        self.named[full] = schema, full.rpartition(".")[0]
        return self.named[full]


def _without_null(schema: object, place: str) -> tuple[object, int | None]:
    if not isinstance(schema, list):
        return schema, None
    if len(schema) != 2 or schema.count("null") != 1:
        raise UnsupportedSchemaError(place, "a union needs null and one other type")
    null_at = schema.index("null")
    return schema[1 - null_at], null_at


def _symbols(declared: dict[str, Any], place: str) -> tuple[str, ...]:
    symbols = declared.get("symbols")
    valid = isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)
    if not valid or not 1 <= len(set(symbols or ())) == len(symbols or ()) <= MAX_SYMBOLS:
        raise UnsupportedSchemaError(place, f"an enum needs 1 to {MAX_SYMBOLS} different symbols")
    return tuple(symbols or ())


def _digits(declared: dict[str, Any], place: str) -> tuple[int, int]:
    precision, scale = declared.get("precision"), declared.get("scale", 0)
    whole = type(precision) is int and type(scale) is int
    if not whole or not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:  # type: ignore[operator]
        raise UnsupportedSchemaError(
            place, f"a decimal needs a precision of 1 to {MAX_PRECISION} and a scale of 0 to that"
        )
    return precision, scale  # type: ignore[return-value]
