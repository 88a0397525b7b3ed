"""Records in Protobuf behind a schema id and message indexes, each read by its writer's schema.

Compiled code parses messages; a column collects one attribute of all messages. A message is read as
if it were the Avro record that has its columns (`protobuf_schema.avro_schema`), so that fields are
found, checked and converted as those of Avro are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import polars as pl

from errata.processors.envelopes.avro_format import (
    AvroFormat,
    BySchema,
    OpenReader,
    Read,
    WriterSchemaError,
)
from errata.processors.envelopes.batch import (
    Decoded,
    Refusal,
    decoded_each,
    join_parts,
)
from errata.processors.envelopes.protobuf_schema import (
    BYTES_DECIMAL,
    DATE,
    TEXT_DECIMAL,
    TIMESTAMP,
    WRAPPERS,
    avro_schema,
    compiled,
    messages,
)
from errata.processors.envelopes.texts import rescale
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas import decode
from errata.schemas.batch import Joined
from errata.schemas.decode import unscaled
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.schemas.layout import Leaf, Nested, layout_of
from errata.topics.registry import NotAvroError, Registry


class ProtobufFormat(AvroFormat):
    """Reads tuples and revisions of a source in Protobuf; the arguments are `AvroFormat`'s."""

    def _by_schema(self, registry: Registry, reader: OpenReader, empty: Decoded) -> BySchema:
        return BySchema(registry, _refused, empty, partial(by_message, reader=reader, empty=empty))


def _refused(schema: object) -> Read:
    raise WriterSchemaError(
        "it is a schema of Avro, but the source's format is protobuf; declare avro, or write the "
        "topic in Protobuf"
    )


def by_message(schema: NotAvroError, *, reader: OpenReader, empty: Decoded) -> Read:
    r"""Return the reader of all messages of a Protobuf file.

    Message indexes precede a message: how many they are, and the index of a message of the file, of
    a message within that, and so on, as zigzag varints. One zero byte stands for the first message.

    Args:
        schema: The registry's answer that a schema is Protobuf, with its text.
        reader: Returns the reader of one message, from the Avro schema of its columns.
        empty: The result for no records.

    Raises:
        ProtobufSchemaError: If the schema can't be compiled.
        ErrataError: If the first message can't be read and no other could be meant.
    """
    choices = list(messages(compiled(schema.text, schema.imports)))
    readers: dict[tuple[int, ...], Read | str] = {}
    if len(choices) == 1:  # its reason counts for all records
        ((path, message),) = choices
        readers[path] = _open(message, reader)

    def read(bodies: Sequence[bytes]) -> Decoded:
        column = Joined.of(bodies).series()
        left = np.ones(len(column), np.bool_)
        parts = [empty]
        for path, message in choices:
            for prefix in _prefixes(path):
                rows = np.flatnonzero(column.bin.starts_with(prefix).to_numpy() & left)
                if not len(rows):
                    continue
                left[rows] = False
                if path not in readers:
                    readers[path] = _reader(message, reader)
                found, inside = readers[path], column[rows].bin.slice(len(prefix)).to_list()
                if isinstance(found, str):
                    refused = [Refusal(row, UNDECODABLE, found) for row in range(len(rows))]
                    parts.append(Decoded(empty.frame, refused).with_rows(rows))
                else:
                    parts.append(found(inside).with_rows(rows))
            if not left.any():
                break
        reason = "the message indexes name no message of its Protobuf schema"
        others = [Refusal(row, UNDECODABLE, reason) for row in np.flatnonzero(left).tolist()]
        return join_parts([*parts, Decoded(empty.frame, others)])

    return read


def _open(message: Any, reader: OpenReader) -> Read:
    return reader(avro_schema(message), decoder=partial(MessageDecoder, message))


def _reader(message: Any, reader: OpenReader) -> Read | str:
    try:
        return _open(message, reader)
    except ErrataError as error:
        return f"message {message.full_name}: {error}"


def _prefixes(path: Sequence[int]) -> list[bytes]:
    """Return the message indexes of a message: the usual form, and the short one of the first."""
    usual = b"".join(_varint(2 * number) for number in (len(path), *path))
    return [b"\0", usual] if tuple(path) == (0,) else [usual]


def _varint(number: int) -> bytes:
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


class MessageDecoder:
    """Decodes messages of one type into columns of physical types, as `schemas.decode` does Avro.

    Args:
        message: The message's descriptor.
        schema: The Avro schema of its columns.
        wanted: Names of the columns to read.

    Attributes:
        layout: The columns.

    Raises:
        UnsupportedSchemaError: If no column can hold a wanted field.
    """

    def __init__(self, message: Any, schema: Any, *, wanted: Collection[str]) -> None:
        self.layout = layout_of(schema, wanted=wanted)
        factory = import_module("google.protobuf.message_factory")
        self._parse = factory.GetMessageClass(message).FromString
        self._errors = (import_module("google.protobuf.message").DecodeError,)
        self._reads: list[_Read] = []
        for part in self.layout:
            field = message.fields_by_name[part.name]
            if isinstance(part, Leaf):
                self._reads.append(_Column(part, field).read)
            elif isinstance(part, Nested):
                inside = field.message_type.fields_by_name
                columns = [
                    _Column(leaf, inside[leaf.name.removeprefix(f"{part.name}.")])
                    for leaf in part.leaves
                    if isinstance(leaf, Leaf)
                ]
                self._reads.append(partial(_read_nested, part.name, columns))

    def decode_each(self, bodies: Sequence[bytes]) -> decode.Decoded:
        """Return the valid messages, and the index and reason of each bad one."""
        need = "not the Protobuf message of its schema"
        found, rows, refused = decoded_each(
            self._parse, list(bodies), errors=self._errors, need=need
        )
        faults: dict[int, str] = {}
        frame = pl.DataFrame([column for read in self._reads for column in read(found, faults)])
        bad = [(refusal.row, refusal.detail) for refusal in refused]
        if faults:
            bad += [(int(rows[place]), reason) for place, reason in faults.items()]
            good = np.ones(len(rows), np.bool_)
            good[list(faults)] = False
            frame, rows = frame.filter(pl.Series(good)), rows[good]
        return decode.Decoded(frame, rows, sorted(bad))


_Read = Callable[[Sequence[Any], dict[int, str]], list[pl.Series]]
_YEARS_S = -62_135_596_800, 253_402_300_799
_MOST = pl.Series([2**63 - 1], dtype=pl.UInt64)


def _read_nested(
    name: str, columns: Sequence[_Column], found: Sequence[Any], faults: dict[int, str]
) -> list[pl.Series]:
    """Return whether the message in a field is present, and its columns; null where it is not."""
    present = _has(found, name)
    inside = list(map(attrgetter(name), found))
    parts = [part for column in columns for part in column.read(inside, faults)]
    return [present.alias(name), *(part.zip_with(present, part.clear(1)) for part in parts)]


def _has(found: Sequence[Any], name: str) -> pl.Series:
    has = map(methodcaller("HasField", name), found)
    return pl.Series(np.fromiter(has, np.bool_, len(found)))


class _Column:
    """Reads the column of one field.

    Args:
        leaf: The column.
        field: The field's descriptor.
    """

    def __init__(self, leaf: Leaf, field: Any) -> None:
        self.leaf, self.field = leaf, field
        kind = "" if field.message_type is None else field.message_type.full_name
        if kind in WRAPPERS | {TEXT_DECIMAL}:
            self.path, self.values = f"{field.name}.value", self._plain
            self.field = field.message_type.fields_by_name["value"]
        else:
            reads = {TIMESTAMP: self._instants, DATE: self._dates, BYTES_DECIMAL: self._decimals}
            self.path, self.values = field.name, reads.get(kind, self._plain)
        self.name, self.has_presence = field.name, field.has_presence

    def read(self, found: Sequence[Any], faults: dict[int, str]) -> list[pl.Series]:
        """Return the column; null where the field is absent. Notes a fault for each bad value."""
        values, bad = self.values(found)
        if self.has_presence:
            present = _has(found, self.name)
            values, bad = values.zip_with(present, values.clear(1)), bad & present
        for place in bad.arg_true().to_list():
            faults.setdefault(place, f"field {self.leaf.name!r}: {self._need()}")
        return [values.alias(self.leaf.name)]

    def _need(self) -> str:
        field = self.field
        if field.message_type is not None:
            return f"not a valid {field.message_type.full_name}"
        if field.type == field.TYPE_ENUM:
            return f"a number that enum {field.enum_type.full_name} does not have"
        return "not UTF-8" if field.type == field.TYPE_STRING else "a number above 2^63 - 1"

    def _plain(self, found: Sequence[Any]) -> tuple[pl.Series, pl.Series]:
        field, dtype = self.field, self.leaf.dtype
        values = list(map(attrgetter(self.path), found))
        if field.type == field.TYPE_ENUM:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            numbers = pl.Series(values, dtype=pl.Int64)
            texts = numbers.replace_strict(names, default=None, return_dtype=pl.String)
            return texts, texts.is_null()
        if field.cpp_type == field.CPPTYPE_UINT64:
            wide = pl.Series(values, dtype=pl.UInt64)
            return wide.cast(pl.Int64, strict=False), wide > _MOST
        if field.type == field.TYPE_STRING and set(map(type, values)) - {str}:
            # protobuf gives bytes where a text of proto2 is not UTF-8
            bad = pl.Series([not isinstance(value, str) for value in values], dtype=pl.Boolean)
            readable = ["" if isinstance(value, bytes) else value for value in values]
            return pl.Series(readable, dtype=pl.String), bad
        column = pl.Series(values, dtype=dtype)
        return column, column.is_null()

    def _instants(self, found: Sequence[Any]) -> tuple[pl.Series, pl.Series]:
        """Return instants in microseconds, truncated."""
        seconds, nanos = (self._numbers(found, name) for name in ("seconds", "nanos"))
        valid = seconds.is_between(*_YEARS_S) & nanos.is_between(0, 999_999_999)
        seconds = seconds.zip_with(valid, seconds.clear(1))
        return seconds * 1_000_000 + nanos // 1000, ~valid

    def _dates(self, found: Sequence[Any]) -> tuple[pl.Series, pl.Series]:
        """Return days since 1970; a date without a day or month is bad."""
        parts = pl.DataFrame({n: self._numbers(found, n) for n in ("year", "month", "day")})
        texts = parts.select(
            pl.concat_str(
                *(
                    pl.col(n).cast(pl.String).str.zfill(4 if n == "year" else 2)
                    for n in parts.columns
                ),
                separator="-",
            )
        ).to_series()
        days = texts.str.to_date("%Y-%m-%d", strict=False).to_physical().cast(pl.Int32)
        valid = days.is_not_null() & parts["year"].is_between(1, 9999)
        return days.zip_with(valid, days.clear(1)), ~valid

    def _decimals(self, found: Sequence[Any]) -> tuple[pl.Series, pl.Series]:
        """Return unscaled integers: of the column's scale, or with the scale of each."""
        numbers, wide = unscaled(list(map(attrgetter(f"{self.path}.value"), found)))
        scales = self._numbers(found, "scale")
        bad = pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(found))
        if wide:
            numbers, bad = numbers.scatter(wide, None), bad.scatter(wide, True)
        if self.leaf.logical == "decimal":
            kind = FieldType("decimal", self.leaf.precision, self.leaf.scale)
            numbers = rescale(numbers, scales, kind)
            return numbers, numbers.is_null()
        parts = pl.DataFrame({"scale": scales.cast(pl.Int32), "value": numbers})
        return parts.to_struct(), bad

    def _numbers(self, found: Sequence[Any], name: str) -> pl.Series:
        """Return the numbers in a field of the message in the field."""
        numbers = map(attrgetter(f"{self.path}.{name}"), found)
        return pl.Series(np.fromiter(numbers, np.int64, len(found)))
