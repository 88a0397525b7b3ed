"""Values as tables of the bytes that stand for them in Avro: a row a byte, a column a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from errata.schemas.batch import Bits
from errata.schemas.joined import Ints

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


class Piece(NamedTuple):
    """A part of every record: a table of a column a record, and which of its bytes are written."""

    table: Bytes
    written: Bits


def branch(there: Bits, null_at: int) -> Piece:
    """Return the index in a union of null and a type."""
    index = np.where(there, 2 * (1 - null_at), 2 * null_at)
    return _piece(index.astype(np.uint8)[None], None)


def _piece(table: Bytes, written: Bits | None) -> Piece:
    if written is None:
        return Piece(table, np.ones(table.shape, np.bool_))
    return Piece(table, np.broadcast_to(written, table.shape))


def varint(value: Words, written: Bits | None) -> Piece:
    """Return numbers in groups of 7 bits, lowest first, flagged where another follows."""
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
    """Return lengths and big-endian two's complement.

    As in fastavro a number has the bytes that its absolute value needs with a sign bit: -128 takes
    two, though one would do.
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
    """Return how many bytes hold a number of this size and a sign bit."""
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
