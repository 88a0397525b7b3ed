"""The layout of a flat record that the codec walks, and its resolution from an Avro schema.

Only types that can be encoded by column are accepted: leaves, nullable leaves, and records of those
one level deep. Fields that a reader does not want may have any shape, and are skipped
(`schemas.batch`). So there is no recursion, and a malicious schema costs nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from errata.schemas.batch import ITEMS_OF, MAX_RECORD_BYTES, Shape
from errata.schemas.errors import ErrataError
from errata.schemas.fields import MAX_PRECISION

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
            f"schema, {place or 'top'}: {need}; Errata reads flat records, "
            "whose fields may be null and may be records of such fields"
        )


@dataclass(frozen=True)
class Leaf:
    """A field that holds one value.

    Args:
        name: Column name: ``field``, or ``outer.field`` inside a record.
        kind: Avro's primitive type, ``enum``, ``fixed``, or ``variable-decimal``: Debezium's record
            of a scale and an unscaled value.
        logical: Avro's logical type if Errata supports it, else "".
        precision: Digits of a decimal; more than 38 if Connect does not know the number.
        scale: Digits after the point of a decimal.
        size: Bytes of a fixed.
        symbols: Symbols of an enum; the column holds their indexes.
        null_at: Index of null in the field's union; None if the field is never null.
        semantic: Kafka Connect's name of the type (``connect.name``), "" if there is none.
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


MAX_FIELDS = 1000
MAX_SYMBOLS = 255
MAX_DEPTH = 16

CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"

_PRIMITIVES = DTYPES.keys() - {"enum", "decimal", "variable-decimal"}
_UNDERSTOOD = BOUNDS.keys() | {("string", "uuid")}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def layout_of(schema: object, *, wanted: Collection[str] | None = None) -> Layout:
    """Resolve a parsed Avro schema (JSON, as dicts and lists) into a layout.

    Args:
        schema: The schema.
        wanted: Columns to read; all others are skipped, whatever their type. None for all.

    Raises:
        UnsupportedSchemaError: If the schema is malformed or has more than 1,000 fields; if a
            column to read is an array, a map, a fixed, a union of more than null and one type, or
            deeper than one level; or if a skipped field nests deeper than 16 levels.

    Example:
        >>> array = {"type": "array", "items": "long"}
        >>> fields = [{"name": "n", "type": "long"}, {"name": "more", "type": array}]
        >>> kept, _ = layout_of({"type": "record", "name": "T", "fields": fields}, wanted={"n"})
        >>> kept.name, kept.kind
        ('n', 'long')
    """
    return _Resolver(wanted).top(schema)


class _Resolver:
    """Holds the named types met so far, and counts fields."""

    def __init__(self, wanted: Collection[str] | None) -> None:
        self.named: dict[str, tuple[dict[str, Any], str]] = {}
        self.field_count = 0
        self.wanted = None if wanted is None else frozenset(wanted)
        self.outer = {name.partition(".")[0] for name in wanted or () if "." in name}

    def _is_wanted(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted

    def top(self, schema: object) -> Layout:
        declared, space = self._declared(schema, "", "")
        if declared["type"] != "record":
            raise UnsupportedSchemaError("", f"needs a record, found {declared['type']!r}")
        return tuple(self._fields(declared, space))

    def _fields(self, record: dict[str, Any], space: str) -> Iterator[Leaf | Nested | Skipped]:
        for name, schema in self._members(record, ""):
            if not self._is_wanted(name) and name not in self.outer:
                yield Skipped(name, self._shape(schema, space, name, 0))
                continue
            plain, null_at = _without_null(schema, name)
            declared, inner = self._declared(plain, space, name)
            if declared["type"] == "record" and not _is_variable_decimal(declared):
                leaves = tuple(self._nested(declared, inner, name))
                yield Nested(name, leaves, null_at)
            else:
                yield self._leaf(declared, name, null_at)

    def _nested(self, record: dict[str, Any], space: str, outer: str) -> Iterator[Leaf | Skipped]:
        for name, schema in self._members(record, outer):
            place = f"{outer}.{name}"
            if not self._is_wanted(place):
                yield Skipped(place, self._shape(schema, space, place, 1))
                continue
            plain, null_at = _without_null(schema, place)
            declared, _ = self._declared(plain, space, place)
            if declared["type"] == "record" and not _is_variable_decimal(declared):
                raise UnsupportedSchemaError(place, "records nest deeper than one level")
            yield self._leaf(declared, place, null_at)

    def _shape(self, schema: object, space: str, place: str, depth: int) -> Shape:
        """Return the shape to skip for an unwanted value."""
        if depth > MAX_DEPTH:
            need = f"nests deeper than {MAX_DEPTH} levels, or in itself"
            raise UnsupportedSchemaError(place, need)
        if isinstance(schema, list):
            branches = (self._shape(branch, space, place, depth + 1) for branch in schema)
            return Shape("union", tuple(branches))
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and kind in ("array", "map"):
            items = self._shape(schema.get(ITEMS_OF[kind]), space, place, depth + 1)
            if kind == "map":
                items = Shape("record", (Shape("string"), items))
            return Shape("items", (items,))
        declared, inner = self._declared(schema, space, place)
        if declared["type"] == "record":
            fields = self._members(declared, place)
            return Shape(
                "record", tuple(self._shape(of, inner, place, depth + 1) for _, of in fields)
            )
        if declared["type"] == "fixed":
            return Shape("fixed", size=_size(declared, place))
        return Shape(declared["type"])

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
        semantic = str(declared.get("connect.name", ""))
        if kind == "record":
            return Leaf(name, "variable-decimal", null_at=null_at, semantic=VARIABLE_DECIMAL)
        if kind == "enum":
            return Leaf(name, kind, symbols=_symbols(declared, name), null_at=null_at)
        if kind == "null" and null_at is not None:
            raise UnsupportedSchemaError(name, "a union needs null and one other type")
        if kind in ("bytes", "fixed") and logical == "decimal":
            precision, scale = _digits(declared, name)
            size = _size(declared, name) if kind == "fixed" else 0
            return Leaf(name, kind, "decimal", precision, scale, size, null_at=null_at)
        if kind == "fixed":
            raise UnsupportedSchemaError(name, "a 'fixed' is read only if it is a decimal")
        logical = logical if (kind, logical) in _UNDERSTOOD else ""
        return Leaf(name, kind, logical, null_at=null_at, semantic=semantic)

    def _declared(self, schema: object, space: str, place: str) -> tuple[dict[str, Any], str]:
        """Return a type as a dict, with the namespace for its own fields."""
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return {"type": schema}, space
            full = schema if "." in schema or not space else f"{space}.{schema}"
            if full not in self.named:
                raise UnsupportedSchemaError(place, f"type {schema[:200]!r} is not known here")
            return self.named[full]
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
            raise UnsupportedSchemaError(place, "needs one type, or a union of null and one type")
        if schema["type"] not in ("record", "enum", "fixed"):
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
    most = math.inf if declared.get("connect.name") == CONNECT_DECIMAL else MAX_PRECISION
    if not whole or not 1 <= precision <= most or not 0 <= scale <= precision:  # type: ignore[operator]
        raise UnsupportedSchemaError(
            place, f"a decimal needs a precision of 1 to {MAX_PRECISION} and a scale of 0 to that"
        )
    return precision, scale  # type: ignore[return-value]


def _size(declared: dict[str, Any], place: str) -> int:
    size = declared.get("size")
    if type(size) is not int or not 0 <= size <= MAX_RECORD_BYTES:
        raise UnsupportedSchemaError(place, f"a fixed needs a size of 0 to {MAX_RECORD_BYTES}")
    return size


def _is_variable_decimal(declared: dict[str, Any]) -> bool:
    """Whether a record is Debezium's record of a scale and an unscaled value."""
    if declared.get("connect.name") != VARIABLE_DECIMAL:
        return False
    fields = declared.get("fields")
    named = fields if isinstance(fields, list) else []
    types = [(f.get("name"), f.get("type")) for f in named if isinstance(f, dict)]
    return types == [("scale", "int"), ("value", "bytes")]
