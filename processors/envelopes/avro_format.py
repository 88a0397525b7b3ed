"""Records in Avro behind a schema id, each read by its writer's schema.

A writer may order its fields differently, have more of them, of any shape, and use narrower types.
Debezium's and Connect's names for types are honoured (`processors.envelopes.connect`). Values are
read as the writer wrote them and converted to the physical type of the declared field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import polars as pl

from errata.processors.envelopes.batch import (
    ColumnBuilder,
    Decoded,
    Refusal,
    join_parts,
    no_revisions,
    no_tuples,
)
from errata.processors.envelopes.connect import (
    LOOSE,
    MEANINGS,
    VARIABLE,
    ZONED,
    convert_instants,
    is_instant,
)
from errata.processors.envelopes.texts import parse, rescale
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas import decode, framing
from errata.schemas.decode import Decoder
from errata.schemas.errors import ErrataError
from errata.schemas.fields import MAX_PRECISION, Fields, FieldType
from errata.schemas.layout import Layout, Leaf, Nested
from errata.topics.registry import PROTOBUF, NotAvroError, Registry, UnknownSchemaError


@dataclass
class BySchema:
    """Reads framed records, with one reader per schema id.

    Args:
        registry: Holds the writers' schemas.
        reader: Returns the reader of an Avro schema.
        empty: The result for no records.
        of_protobuf: Returns the reader of a Protobuf schema, from the registry's answer; None: such
            records are refused.
    """

    registry: Registry
    reader: Callable[[Any], Read]
    empty: Decoded
    of_protobuf: Callable[[NotAvroError], Read] | None = None
    readers: dict[int, Read | str] = field(default_factory=dict)

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Return the decoded records, in order, and the refused ones."""
        unframed = framing.unframe(values)
        if unframed.only_id is not None:
            return self._read(unframed.only_id, unframed.bodies)
        refused = [Refusal(row, UNDECODABLE, reason) for row, reason in unframed.rejected]
        parts = [Decoded(self.empty.frame, refused)]
        for schema_id in sorted(set(unframed.schema_ids.tolist()) - {framing.UNFRAMED}):
            rows = np.flatnonzero(unframed.schema_ids == schema_id)
            bodies = [unframed.bodies[row] for row in rows.tolist()]
            parts.append(self._read(schema_id, bodies).with_rows(rows))
        return join_parts(parts)

    def _read(self, schema_id: int, bodies: Sequence[bytes]) -> Decoded:
        read = self._reader(schema_id)
        if not isinstance(read, str):
            return read(bodies)
        refused = [Refusal(row, UNDECODABLE, read) for row in range(len(bodies))]
        return Decoded(self.empty.frame, refused)

    def _reader(self, schema_id: int) -> Read | str:
        if schema_id not in self.readers:
            try:
                make = partial(self.reader, self.registry.schema(schema_id))
            except UnknownSchemaError as error:
                return f"schema id {schema_id}: {error}"  # not cached: it may be registered later
            except NotAvroError as error:
                if error.kind != PROTOBUF or self.of_protobuf is None:
                    return f"schema id {schema_id}: {error}"
                make = partial(self.of_protobuf, error)
            try:
                self.readers[schema_id] = make()
            except ErrataError as error:
                self.readers[schema_id] = f"schema id {schema_id}: {error}"
        return self.readers[schema_id]


class AvroFormat:
    """Reads tuples and revisions of a source in Avro.

    Args:
        fields: The declared fields.
        registry: Holds the writers' schemas.
        identity: The identity fields; a tuple may lack them, as its key has them.
        ops: Codes of the ops of revisions.
        connector: Whether Debezium writes the records: its heartbeats and transaction boundaries
            are skipped.
    """

    def __init__(
        self,
        fields: Fields,
        registry: Registry,
        *,
        identity: Collection[str],
        ops: Mapping[str, int],
        connector: bool = False,
    ) -> None:
        flat = partial(tuple_reader, fields=fields, missing=identity)
        self.tuples = self._by_schema(registry, flat, Decoded(no_tuples(fields), [])).read
        empty = Decoded(no_revisions(fields), [])

        def sided(schema: Any, *, decoder: OpenDecoder = Decoder) -> Read:
            if connector and is_control_schema(schema):
                return control_reader(schema, empty.frame, decoder=decoder)
            return revision_reader(schema, fields, identity=identity, ops=ops, decoder=decoder)

        self.revisions = self._by_schema(registry, sided, empty).read

    def _by_schema(self, registry: Registry, reader: OpenReader, empty: Decoded) -> BySchema:
        return BySchema(registry, reader, empty)


class WriterDecoder(Protocol):
    """Decodes one writer's records into the columns of a layout, as `schemas.decode.Decoder`."""

    layout: Layout

    def decode_each(self, bodies: Sequence[bytes], /) -> decode.Decoded:
        """Return the valid records, and the index and reason of each bad one."""


class OpenDecoder(Protocol):
    """Returns the decoder of a writer's schema."""

    def __call__(self, schema: Any, /, *, wanted: Collection[str]) -> WriterDecoder:
        """Return the decoder; it reads the wanted columns."""


class OpenReader(Protocol):
    """Returns the reader of a writer's records."""

    def __call__(self, schema: Any, /, *, decoder: OpenDecoder = Decoder) -> Read:
        """Return the reader of a schema, or of the columns that it describes for a decoder."""


Convert = Callable[[pl.Series], pl.Series]

_INSTANTS = {"timestamp-millis", "timestamp-micros"}
_LOOSE_TYPES = {
    "string": {"decimal", "date", "uuid", *_INSTANTS},
    "long": _INSTANTS,
    "int": {"date"},
}
"""Types for which a text or whole number stands, if its schema language lacks them."""

_PROMOTED = {  # Avro's promotions that lose nothing
    "long": {"int", "long"},
    "float": {"float"},
    "double": {"int", "float", "double"},
}


def conversion(leaf: Leaf, kind: FieldType) -> Convert | None:
    """Return the conversion of a writer's field to a declared type; None if the types don't match.

    A value that does not fit becomes null.

    Args:
        leaf: The writer's field.
        kind: The declared type.
    """
    meaning = MEANINGS.get(leaf.semantic, leaf.logical)
    if leaf.semantic == LOOSE and kind.kind in _LOOSE_TYPES[leaf.kind]:
        return (lambda values: parse(values, kind)) if leaf.kind == "string" else _as_it_is
    if kind.kind == "decimal":
        return _decimal(leaf, kind)
    if kind.kind.startswith("timestamp-"):
        if leaf.kind == "string" and meaning == ZONED:
            return lambda values: parse(values, kind)
        if leaf.kind == "long" and is_instant(meaning):
            return lambda values: convert_instants(values, meaning, kind)
        return None
    if kind.kind == "date":
        return _as_it_is if leaf.kind == "int" and meaning == "date" else None
    if kind.kind == "uuid":
        return (lambda values: parse(values, kind)) if leaf.kind == "string" else None
    if kind.kind == "string":
        return _symbols(leaf) if leaf.kind == "enum" else _plain(leaf, {"string"})
    if meaning and leaf.kind != "string":
        return None
    if kind.kind in _PROMOTED:
        convert = _plain(leaf, _PROMOTED[kind.kind])
        return convert and (lambda values: values.cast(kind.dtype))
    return _plain(leaf, {kind.kind})


def type_name(leaf: Leaf) -> str:
    """Return a writer's type as text for errors."""
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
        return lambda values: rescale(
            values.struct.field("value"), values.struct.field("scale"), kind
        )
    if leaf.logical != "decimal" or leaf.scale > kind.scale:
        return None
    known = leaf.precision <= MAX_PRECISION
    if known and leaf.precision - leaf.scale > kind.precision - kind.scale:
        return None
    if known and leaf.scale == kind.scale:
        return _as_it_is
    return lambda values: rescale(
        values, pl.Series([leaf.scale]).new_from_index(0, len(values)), kind
    )


SIDES = ("before", "after")

Read = Callable[[Sequence[bytes]], Decoded]
AddColumn = Callable[[ColumnBuilder, pl.DataFrame], None]


class WriterSchemaError(ErrataError):
    """A writer's schema lacks what the source declares."""


def tuple_reader(
    schema: Any,
    fields: Fields,
    *,
    missing: Collection[str] = (),
    decoder: OpenDecoder = Decoder,
) -> Read:
    """Return the reader of one writer's tuples, one column per field.

    Args:
        schema: The writer's schema, or the Avro schema that has its columns.
        fields: The declared fields.
        missing: Fields that may be missing though they are never null.
        decoder: Returns the decoder of its records.

    Raises:
        WriterSchemaError: If a declared field is missing, or of another type.
        UnsupportedSchemaError: If a field can't be read.
    """
    reader = decoder(schema, wanted=set(fields))
    leaves = _leaves(reader.layout)
    adders = [
        _field_adder(name, name, kind, leaves, may_miss=kind.optional or name in missing)
        for name, kind in fields.items()
    ]
    if not leaves:
        raise WriterSchemaError(f"needs some of {', '.join(fields)}, found none of them")
    return lambda bodies: _decoded(reader.decode_each(bodies), adders)


def revision_reader(
    schema: Any,
    fields: Fields,
    *,
    identity: Collection[str],
    ops: Mapping[str, int],
    decoder: OpenDecoder = Decoder,
) -> Read:
    """Return the reader of one writer's revisions: op as a code, and both sides.

    Args:
        schema: The writer's schema, or the Avro schema that has its columns.
        fields: The declared fields.
        identity: The fields that a ``before`` needs.
        ops: Codes of the ops.
        decoder: Returns the decoder of its records.

    Raises:
        WriterSchemaError: If ``op``, ``after`` or a field is missing, or a field has another type.
        UnsupportedSchemaError: If a field can't be read.
    """
    wanted = {f"{side}.{name}" for side in SIDES for name in fields}
    reader = decoder(schema, wanted={"op", *wanted})
    op = _leaves(reader.layout).get("op")
    if op is None or not (op.symbols or op.kind == "string"):
        raise WriterSchemaError("needs a field 'op', an enum or a string, found none")
    sides = {part.name: part for part in reader.layout if isinstance(part, Nested)}
    if "after" not in sides and "message" not in _names(schema):
        raise WriterSchemaError("needs a record field 'after', found none")
    adders = [_presence_adder(side, sides.get(side)) for side in SIDES]
    for side in SIDES:
        leaves = _leaves(sides[side].leaves) if side in sides else {}
        for name, kind in fields.items():
            is_required = side in sides and (side == "after" or name in identity)
            column = f"{side}.{name}"
            adders.append(
                _field_adder(name, column, kind, leaves, may_miss=kind.optional or not is_required)
            )

    codes = pl.Series([ops.get(symbol) for symbol in op.symbols], dtype=pl.UInt8)

    def add_op(builder: ColumnBuilder, frame: pl.DataFrame) -> None:
        ops_read = frame["op"]
        builder.columns["op"] = (
            ops_read.replace_strict(ops, default=None, return_dtype=pl.UInt8)
            if codes.is_empty()
            else codes.gather(ops_read)
        )

    return lambda bodies: _decoded(reader.decode_each(bodies), [add_op, *adders])


def is_control_schema(schema: Any) -> bool:
    """Whether a writer's records are Debezium's heartbeats or transaction boundaries."""
    names = _names(schema)
    return names == {"ts_ms"} or (names >= {"status", "id"} and not names & {"op", *SIDES})


def control_reader(schema: Any, nothing: pl.DataFrame, *, decoder: OpenDecoder = Decoder) -> Read:
    """Return the reader of a connector's own records: it passes over those of the schema.

    Args:
        schema: The connector's schema.
        nothing: A decoded batch of no records.
        decoder: Returns the decoder of its records.
    """
    reader = decoder(schema, wanted=())

    def read(bodies: Sequence[bytes]) -> Decoded:
        decoded = reader.decode_each(bodies)
        refused = [Refusal(row, UNDECODABLE, reason) for row, reason in decoded.bad]
        return Decoded(nothing, refused, passed=len(decoded.good))

    return read


def _names(schema: Any) -> set[str]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    named = fields if isinstance(fields, list) else []
    return {str(field.get("name")) for field in named if isinstance(field, dict)}


def _leaves(layout: Sequence[object]) -> dict[str, Leaf]:
    return {part.name: part for part in layout if isinstance(part, Leaf)}


def _decoded(decoded: decode.Decoded, adders: Sequence[AddColumn]) -> Decoded:
    builder = ColumnBuilder()
    for add in adders:
        add(builder, decoded.frame)
    batch = builder.decoded(decoded.good)
    refused = [Refusal(row, UNDECODABLE, reason) for row, reason in decoded.bad]
    return replace(batch, refused=refused + batch.refused) if refused else batch


def _field_adder(
    name: str, column: str, kind: FieldType, leaves: dict[str, Leaf], *, may_miss: bool
) -> AddColumn:
    """Return the function that adds the column of a declared field."""
    leaf = leaves.get(column)
    if leaf is None:
        if not may_miss:
            place = column.removesuffix(name).strip(".")
            raise WriterSchemaError(f"missing field {name!r}" + (f" in {place!r}" if place else ""))
        return lambda builder, frame: builder.add_constant(column, None, kind.dtype, frame.height)
    convert = conversion(leaf, kind)
    if convert is None:
        raise WriterSchemaError(f"field {name!r} needs {kind.required}, found {type_name(leaf)}")

    stands_for_another = leaf.semantic == LOOSE and leaf.kind == "string" != kind.kind

    def add(builder: ColumnBuilder, frame: pl.DataFrame) -> None:
        original = frame[column]
        if stands_for_another:  # an absent text is empty
            original = original.replace("", None)
        values = convert(original)
        shown = (
            original.struct.field("value") if isinstance(original.dtype, pl.Struct) else original
        )
        builder.columns[column] = builder.checked(name, values, original=shown, kind=kind)

    return add


def _presence_adder(side: str, part: Nested | None) -> AddColumn:
    """Return the function that adds the column ``has_<side>``."""
    column = f"has_{side}"
    if part is None or part.null_at is None:
        return lambda builder, frame: builder.add_constant(
            column, part is not None, pl.Boolean, frame.height
        )

    def add(builder: ColumnBuilder, frame: pl.DataFrame) -> None:
        builder.columns[column] = frame[side]

    return add
