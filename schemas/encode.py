"""Encodes columns as Avro records, one field of all records at a time.

Values become tables of bytes: one row for each byte of the encoding, one column for each value.
Numbers become Arrow by way of polars: pyarrow would import pandas for it, which takes a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from errata.schemas import by_column, few
from errata.schemas.batch import MAX_RECORD_BYTES, Bits, Ints
from errata.schemas.errors import ErrataError
from errata.schemas.few import Few
from errata.schemas.layout import Leaf, Nested, Skipped, columns, layout_of

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


class Piece(NamedTuple):
    """A part of every record: a table, one column a record, and which of its bytes are written."""

    table: Bytes
    written: Bits


def branch(present: Bits, null_at: int) -> Piece:
    """Return the index into a union of null and a type."""
    index = np.where(present, 2 * (1 - null_at), 2 * null_at)
    return _piece(index.astype(np.uint8)[None], None)


def _piece(table: Bytes, written: Bits | None) -> Piece:
    if written is None:
        return Piece(table, np.ones(table.shape, np.bool_))
    return Piece(table, np.broadcast_to(written, table.shape))


def varint(value: Words, written: Bits | None) -> Piece:
    """Return numbers in groups of 7 bits, lowest first, with a flag where another group follows."""
    width = max(1, (int(value.max()).bit_length() + 6) // 7)
    if width == 1:
        return _piece(value.astype(np.uint8)[None], written)
    rest = value >> np.arange(0, 7 * width, 7, dtype=np.uint64)[:, None]
    used = rest != 0
    used[0] = True
    table = rest.astype(np.uint8) & np.uint8(0x7F)
    table[:-1] |= used[1:].view(np.uint8) << np.uint8(7)
    return Piece(table, used if written is None else used & written)


def _boolean(value: npt.NDArray[Any], written: Bits | None) -> Iterator[Piece]:
    yield _piece(value[None], written)


def _whole(value: npt.NDArray[Any], written: Bits | None) -> Iterator[Piece]:
    signed = value.astype(np.int64, copy=False)
    yield varint(((signed << 1) ^ (signed >> 63)).view(np.uint64), written)


def _float(value: npt.NDArray[Any], written: Bits | None) -> Iterator[Piece]:
    little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    yield _piece(little.view(np.uint8).reshape(len(value), -1).T, written)


def _decimal(value: npt.NDArray[Any], written: Bits | None) -> Iterator[Piece]:
    """Return lengths and big-endian two's complements.

    As in fastavro a number takes the bytes that its absolute value needs with a sign bit: -128
    takes two, though one would be enough.
    """
    low, high = (value, value >> 63) if value.ndim == 1 else (value[:, 0], value[:, 1])
    negative = high < 0
    size = np.where(negative, -low, low).view(np.uint64)
    upper = np.where(negative, ~high + (low == 0), high).view(np.uint64)
    lengths = np.where(upper > 0, 8 + _signed_bytes(upper), _signed_bytes(size))
    width = int(lengths.max())
    digits = np.column_stack([high, low]).astype(">i8").view(np.uint8).reshape(len(low), 16)
    kept = np.arange(width)[:, None] >= width - lengths
    yield _piece((2 * lengths).astype(np.uint8)[None], written)
    yield Piece(digits[:, 16 - width :].T, kept if written is None else kept & written)


def _signed_bytes(size: Words) -> Ints:
    """Return how many bytes hold a number of this magnitude and a sign bit."""
    byte_count = np.ones(len(size), np.int64)
    for bits in range(7, int(size.max()).bit_length(), 8):
        byte_count += size >= np.uint64(1 << bits)
    return byte_count


FIXED: dict[str, Callable[[npt.NDArray[Any], Bits | None], Iterator[Piece]]] = {
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "enum": _whole,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
}


class UnencodableError(ErrataError):
    """A row has a value that its schema does not allow; the field is "" if it is the whole row."""

    def __init__(self, index: int, field: str, reason: str) -> None:
        self.index, self.field, self.reason = index, field, reason
        place = f"field {field!r}: " if field else ""
        super().__init__(f"row {index} can't be encoded: {place}{reason}")


Part: TypeAlias = Piece | pa.Array | bytes
"""What is written of each record: bytes by column, one value each, or the same for all."""


class Encoder:
    r"""Encodes frames as records of one schema, byte for byte as fastavro writes them.

    Columns are those that `schemas.decode.Decoder` returns for the schema, in any order; others are
    ignored. A column may also be passed as one value for the whole batch, which is encoded once.

    Args:
        schema: The schema, as parsed JSON.

    Raises:
        UnsupportedSchemaError: If it is not a flat record (`schemas.layout`).

    Example:
        >>> from errata.schemas.avro import tuple_schema
        >>> from errata.schemas.fields import FieldType
        >>> encoder = Encoder(tuple_schema("T", {"n": FieldType.parse("long")}))
        >>> encoder.encode(pl.DataFrame({"n": [1, -2]}))
        [b'\x02', b'\x03']
    """

    def __init__(self, schema: object) -> None:
        self.layout = layout_of(schema)
        self.columns = columns(self.layout)
        self._few = Few.of(self.layout)

    def encode(
        self, frame: pl.DataFrame, head: bytes = b"", /, **constants: str | int | float | bool
    ) -> list[bytes]:
        """Return a record for each row of the frame; see `series`."""
        return self.series(frame, head, constants).to_list()

    def series(
        self,
        frame: pl.DataFrame,
        head: bytes = b"",
        constants: Mapping[str, str | int | float | bool] = MappingProxyType({}),
        encoded: Mapping[str, pl.Series] = MappingProxyType({}),
    ) -> pl.Series:
        """Return a record for each row of the frame, as a series of bytes.

        Args:
            frame: The rows; fields of an absent nested record are ignored.
            head: Bytes to put before each record.
            constants: Values of top-level fields for all rows, instead of columns.
            encoded: By name of a nested record: its encoded bytes, instead of columns for its
                fields; those of an absent one are ignored.

        Raises:
            UnencodableError: If a value is null, too large or has too many digits for its field, or
                a record takes more than 1 MB; it names the first such row of the first such
                field.
        """
        if not len(frame):
            return pl.Series(dtype=pl.Binary)
        if len(frame) <= few.RECORDS and self._few is not None:
            records = self._few.encode(frame, head, constants)
            if records is not None:
                return pl.Series(records, dtype=pl.Binary)
        parts: list[Part] = [head]
        for field in self.layout:
            if field.name in constants:
                one = pl.DataFrame({field.name: [constants[field.name]]})
                parts.append(_joined(list(_field(field, one)), 1)[0].as_py())
            elif field.name in encoded and isinstance(field, Nested):
                parts += _nested(field, frame, encoded[field.name])
            else:
                parts += _field(field, frame)
        joined = _joined(parts, len(frame))
        long = np.flatnonzero(np.diff(_offsets(joined)) > MAX_RECORD_BYTES + len(head))
        if len(long):
            raise UnencodableError(int(long[0]), "", f"takes more than {MAX_RECORD_BYTES} bytes")
        return pl.Series(joined)


def _field(field: Leaf | Nested | Skipped, frame: pl.DataFrame) -> Iterator[Part]:
    """Encode a field of all rows, as consecutive parts."""
    if isinstance(field, Leaf):
        yield from _leaf(field, frame[field.name])
    elif isinstance(field, Nested):
        yield from _nested(field, frame)


def _nested(field: Nested, frame: pl.DataFrame, encoded: pl.Series | None = None) -> Iterator[Part]:
    """Encode a nested record; of `encoded` ones only the union's index is missing."""
    present = by_column.constant(True, frame.height, pl.Boolean)
    if field.null_at is not None:
        present = frame[field.name]
        present = present.fill_null(False) if present.null_count() else present
        yield branch(present.to_numpy(), field.null_at)
    if encoded is not None:
        nothing = pl.Series([b""], dtype=pl.Binary)
        yield encoded.zip_with(present, nothing).to_arrow().cast(pa.large_binary())
    elif present.all():
        for leaf in field.leaves:
            yield from _field(leaf, frame)
    elif present.any():
        yield _where(present, field, frame)


def _where(present: pl.Series, field: Nested, frame: pl.DataFrame) -> pa.LargeBinaryArray:
    """Encode a nested record in the rows that have it; it takes no bytes in the others."""
    rows = by_column.kept(by_column.pick(frame, [leaf.name for leaf in field.leaves]), present)
    try:
        encoded = _joined([p for leaf in field.leaves for p in _field(leaf, rows)], rows.height)
    except UnencodableError as error:
        index = int(present.arg_true()[error.index])
        raise UnencodableError(index, error.field, error.reason) from None
    lengths = np.zeros(frame.height, np.int64)
    lengths[present.to_numpy()] = np.diff(_offsets(encoded))
    return _binary(lengths, encoded.buffers()[2])


def _leaf(leaf: Leaf, original: pl.Series) -> Iterator[Part]:
    """Encode a leaf of all rows."""
    column = original if original.dtype == leaf.dtype else original.cast(leaf.dtype, strict=False)
    if column.null_count() > original.null_count():
        bad = (column.is_null() & original.is_not_null()).to_numpy()
        _refuse(leaf, bad, original, f"does not fit {leaf.dtype}")
    if leaf.coding == "decimal":
        column = _narrowed(leaf, column)
    array = column.rechunk().to_arrow()
    written = column.is_not_null().to_numpy() if array.null_count else None
    if leaf.null_at is not None:
        yield branch(np.ones(len(array), np.bool_) if written is None else written, leaf.null_at)
    elif written is not None and leaf.kind != "null":
        _refuse(leaf, ~written, original, "is null, but the field is required")
    if leaf.coding in ("string", "bytes"):
        yield from _text(array.cast(pa.large_binary()), written)
    elif leaf.coding != "null":
        value = _values(array)
        if written is not None:  # the value under a null is arbitrary
            value = np.where(written if value.ndim == 1 else written[:, None], value, 0)
        if leaf.bounds is not None and value.ndim == 1:
            low, high = leaf.bounds
            outside = (value < low) | (value > high)
            outside = outside if written is None else outside & written
            _refuse(leaf, outside, original, f"is not between {low} and {high}")
        yield from FIXED[leaf.coding](value, written)


def _narrowed(leaf: Leaf, column: pl.Series) -> pl.Series:
    """Return 128-bit integers as 64-bit ones if all fit, else as decimals within the bounds."""
    narrow = column.cast(pl.Int64, strict=False)
    if narrow.null_count() == column.null_count():
        return narrow
    low, high = (pl.Series([bound], dtype=pl.Int128) for bound in leaf.bounds or ())
    outside = ((column < low) | (column > high)).fill_null(False).to_numpy()
    _refuse(leaf, outside, column, f"is not between {low[0]} and {high[0]}")
    return column.cast(pl.Decimal(38, 0), strict=False)


def _refuse(leaf: Leaf, bad: Bits, values: pl.Series, reason: str) -> None:
    if bad.any():
        index = int(bad.argmax())
        raise UnencodableError(index, leaf.name, f"{values[index]!r} {reason}")


def _values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an arrow array; decimals as their low and high 64 bits."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    wide = pa.types.is_decimal(array.type)
    dtype = np.dtype(np.int64) if wide else np.dtype(array.type.to_pandas_dtype())
    limbs = 2 if wide else 1
    value = np.frombuffer(array.buffers()[1], dtype)
    value = value[array.offset * limbs : (array.offset + len(array)) * limbs]
    return value.reshape(-1, 2) if wide else value


def _text(array: pa.LargeBinaryArray, written: Bits | None) -> Iterator[Part]:
    if written is not None:
        array = pc.if_else(pl.Series(written).to_arrow(), array, _scalar(b""))
    yield varint(np.diff(_offsets(array)).astype(np.uint64) << np.uint64(1), written)
    yield array


def _offsets(array: pa.LargeBinaryArray) -> Ints:
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return offsets[array.offset : array.offset + len(array) + 1]


def _compact(run: list[Piece]) -> pa.LargeBinaryArray:
    """Return the written bytes of adjacent pieces as one value a row."""
    written = np.vstack([piece.written for piece in run])
    data = np.vstack([piece.table for piece in run]).T[written.T]
    return _binary(np.count_nonzero(written, axis=0), pa.py_buffer(data))


def _binary(lengths: Ints, data: pa.Buffer) -> pa.LargeBinaryArray:
    """Return values of these lengths, which are stored contiguously."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _scalar(value: bytes) -> pa.Scalar:
    return pl.Series([value], dtype=pl.Binary).to_arrow()[0]


def _joined(parts: list[Part], height: int) -> pa.LargeBinaryArray:
    """Join the parts of each record."""
    columns: list[pa.Array | pa.Scalar] = []
    for kind, group in groupby(parts, key=type):
        adjacent: list[Any] = list(group)
        if kind is Piece:
            adjacent = [_compact(adjacent)]
        elif kind is bytes:
            adjacent = [_scalar(b"".join(adjacent))]
        columns += adjacent
    if len(columns) == 1 and isinstance(columns[0], pa.Array):
        return columns[0]
    joined = pc.binary_join_element_wise(*columns, _scalar(b""))
    if isinstance(joined, pa.Scalar):  # there are only constants, or no fields
        return pl.Series([joined.as_py()] * height, dtype=pl.Binary).to_arrow()
    return joined
