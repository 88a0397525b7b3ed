"""Decodes Avro records into columns, one field of all records at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from errata.schemas import by_column, few
from errata.schemas.batch import Batch, Ints, pass_over
from errata.schemas.errors import ErrataError
from errata.schemas.few import Few
from errata.schemas.layout import Leaf, Nested, Skipped, UnsupportedSchemaError, columns, layout_of

Read = Callable[[Batch], list[pl.Series]]


class UndecodableError(ErrataError):
    """A record does not match its schema; `index` is its place in the batch, `reason` the fault."""

    def __init__(self, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(
            f"record {index} of the batch can't be decoded: {reason}; "
            "decode_each returns the others; write this one to the dead letters"
        )


class Decoded(NamedTuple):
    """A decoded batch in which some records may be bad.

    Args:
        frame: A row for each good record, in order.
        good: The good records' indexes in the batch, ascending.
        bad: Index and reason of each of the others, ascending.
    """

    frame: pl.DataFrame
    good: Ints
    bad: list[tuple[int, str]]

    def require_all(self) -> pl.DataFrame:
        """Return the frame if every record is good.

        Raises:
            UndecodableError: If a record is bad; it names the first.
        """
        if self.bad:
            raise UndecodableError(*self.bad[0])
        return self.frame


class Decoder:
    r"""Decodes records of one writer's schema into columns of physical types.

    A field is a column of its name. A field inside a record is ``outer.field``, null where the
    record is null; ``outer`` itself, Boolean, says where a nullable record is present. An enum is
    the index of its symbol.

    A record is refused if fastavro refuses it or bytes are left over. Where fastavro is laxer than
    Avro, so that two readers might see different values, it is refused too: varints of more than 64
    bits; an int of more than 32; a negative index of a union or enum; a boolean that is neither 0
    nor 1; a decimal of more digits than declared, or of more than 16 bytes; more than 1 MB.

    Args:
        schema: The writer's schema, as parsed JSON.
        wanted: The columns to read; others are skipped, whatever their type. None for all.

    Raises:
        UnsupportedSchemaError: If it is not a flat record (`schemas.layout`), or has no fields.

    Example:
        >>> schema = {"type": "record", "name": "T", "fields": [{"name": "n", "type": "long"}]}
        >>> Decoder(schema).decode([b"\x02", b"\x04"])["n"].to_list()
        [1, 2]
        >>> Decoder(schema).decode_each([b"\x02", b""]).bad
        [(1, "field 'n': ends before its value does")]
    """

    def __init__(self, schema: object, *, wanted: Collection[str] | None = None) -> None:
        self.layout = layout_of(schema, wanted=wanted)
        self.columns = columns(self.layout)
        if not self.columns and wanted is None:
            raise UnsupportedSchemaError("", "needs a field to decode")
        self._reads = [_reader(field) for field in self.layout]
        self._few = Few.of(self.layout)

    def decode(self, bodies: Sequence[bytes]) -> pl.DataFrame:
        """Return a row for each record.

        Raises:
            UndecodableError: If a record is bad; it names the first.
        """
        return self.decode_each(bodies).require_all()

    def decode_each(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the valid records, and the index and reason of each bad one."""
        if not bodies:
            return Decoded(pl.DataFrame(schema=self.columns), np.empty(0, np.int64), [])
        if len(bodies) <= few.RECORDS and self._few is not None:
            found = self._few.decode(bodies)
            if found is not None:
                return Decoded(found, np.arange(len(bodies)), [])
        batch = Batch.of(bodies)
        series = [column for read in self._reads for column in read(batch)]
        batch.refuse(batch.at < batch.ends, "bytes are left over after the last field")
        frame = pl.DataFrame(series)
        if len(batch.reasons) == 1:
            return Decoded(frame, np.arange(len(batch)), [])
        good, bad = np.flatnonzero(batch.fault == 0), np.flatnonzero(batch.fault)
        reasons = map(batch.reasons.__getitem__, batch.fault[bad].tolist())
        kept = frame[good] if series else frame  # without columns there are no rows
        return Decoded(kept, good, list(zip(bad.tolist(), reasons, strict=True)))


def _reader(field: Leaf | Nested | Skipped) -> Read:
    """Return the function that reads a field of all records of a batch."""
    if isinstance(field, Skipped):
        return partial(_skip, field)
    if isinstance(field, Leaf):
        return _optional(partial(_read_leaf, field), field)
    leaves = [_reader(leaf) for leaf in field.leaves]

    def read(batch: Batch) -> list[pl.Series]:
        return [column for leaf in leaves for column in leaf(batch)]

    return _optional(read, field)


def _skip(field: Skipped, batch: Batch) -> list[pl.Series]:
    pass_over(field.shape, batch, field.name)
    return []


def _read_leaf(leaf: Leaf, batch: Batch) -> list[pl.Series]:
    return [_READ[leaf.coding](batch, leaf).alias(leaf.name)]


def _bound(batch: Batch, leaf: Leaf, value: Ints | pl.Series) -> None:
    if leaf.bounds is None:
        return
    low, high = leaf.bounds
    if isinstance(value, pl.Series):
        least, most = (pl.Series([bound], dtype=value.dtype) for bound in leaf.bounds)
        outside = ((value < least) | (value > most)).to_numpy()
    else:
        outside = (value < low) | (value > high)
    batch.refuse(outside, f"field {leaf.name!r}: not between {low} and {high}")


def _optional(read: Read, field: Leaf | Nested) -> Read:
    """Return the function that reads a union of null and a type; `read` reads the type."""
    null_at, shown = field.null_at, isinstance(field, Nested)
    if null_at is None:
        return read

    def read_union(batch: Batch) -> list[pl.Series]:
        index = batch.long(field.name)
        batch.refuse((index < 0) | (index > 1), f"field {field.name!r}: no such union branch")
        present = index != null_at
        rows = np.flatnonzero(present)
        if len(rows) == len(batch):
            series = read(batch)
        else:
            part = batch.part(rows)
            series = read(part)
            batch.join(rows, part)
            series = by_column.spread(series, present)
        return [pl.Series(field.name, present), *series] if shown else series

    return read_union


def _read_null(batch: Batch, leaf: Leaf) -> pl.Series:
    return pl.Series([None], dtype=pl.Null).new_from_index(0, len(batch))


def _read_boolean(batch: Batch, leaf: Leaf) -> pl.Series:
    value = batch.buffer[batch.advance(1, leaf.name)]
    batch.refuse(value > 1, f"field {leaf.name!r}: a boolean is neither 0 nor 1")
    return pl.Series(value == 1)


def _read_whole(batch: Batch, leaf: Leaf) -> pl.Series:
    value = batch.long(leaf.name)
    _bound(batch, leaf, value)
    return pl.Series(value.astype(_WIDTH[leaf.coding], copy=False))


def _read_float(batch: Batch, leaf: Leaf) -> pl.Series:
    word = batch.words("<u8")[batch.advance(4, leaf.name)]
    return pl.Series(word.astype(np.uint32).view(np.float32))


def _read_double(batch: Batch, leaf: Leaf) -> pl.Series:
    return pl.Series(batch.words("<f8")[batch.advance(8, leaf.name)])


def _slices(batch: Batch, leaf: Leaf) -> pa.LargeBinaryArray:
    """Return length-prefixed bytes, copied out of the buffer in order."""
    starts, lengths = batch.span(leaf.name)
    if not len(batch):
        return pl.Series([], dtype=pl.Binary).to_arrow()
    bounds = np.column_stack([starts, starts + lengths])  # every second piece is a gap
    pieces = [None, pa.py_buffer(bounds), pa.py_buffer(batch.buffer)]
    array = pa.Array.from_buffers(pa.large_binary(), bounds.size - 1, pieces)
    return array.take(pl.Series(np.arange(0, bounds.size, 2)).to_arrow())


def _read_bytes(batch: Batch, leaf: Leaf) -> pl.Series:
    return pl.Series(_slices(batch, leaf))


def _read_string(batch: Batch, leaf: Leaf) -> pl.Series:
    array = _slices(batch, leaf)
    try:
        text = array.cast(pa.large_string())
    except pa.ArrowInvalid:  # the error reports that one is not UTF-8, not which
        _, offsets, data = array.buffers()
        bad = malformed(
            np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int64)[: len(batch) + 1]
        )
        batch.refuse(bad, f"field {leaf.name!r}: a string is not UTF-8")
        text = pa.compute.if_else(pl.Series(bad).to_arrow(), b"", array).cast(pa.large_string())
    return pl.Series(text)


def _read_decimal(batch: Batch, leaf: Leaf) -> pl.Series:
    if leaf.kind == "fixed":
        starts = batch.advance(leaf.size, leaf.name)
        lengths = np.where(batch.fault == 0, leaf.size, 0)
    else:
        starts, lengths = batch.span(leaf.name)
    value = _big_endian(batch, starts, lengths, leaf.name)
    _bound(batch, leaf, value)
    return pl.Series(value).cast(pl.Int128)


def _read_variable_decimal(batch: Batch, leaf: Leaf) -> pl.Series:
    scale = _read_whole(batch, Leaf(leaf.name, "int"))
    value = _big_endian(batch, *batch.span(leaf.name), leaf.name)
    return pl.DataFrame({"scale": scale, "value": pl.Series(value).cast(pl.Int128)}).to_struct()


def unscaled(values: Sequence[bytes]) -> tuple[pl.Series, list[int]]:
    r"""Return big-endian two's complements as Int128, and which have more than 16 bytes.

    Example:
        >>> unscaled([b"\xff\x80", b""])[0].to_list()
        [-128, 0]
    """
    batch = Batch.of(values)
    numbers = pl.Series(_big_endian(batch, batch.at, batch.ends - batch.at, "")).cast(pl.Int128)
    return numbers, np.flatnonzero(batch.fault).tolist()


def _big_endian(batch: Batch, starts: Ints, lengths: Ints, field: str) -> Ints | pl.Series:
    """Return signed numbers, wide ones as 128 bits."""
    wide = lengths > 16
    batch.refuse(wide, f"field {field!r}: a decimal of more than 16 bytes")
    lengths = np.where(wide, 0, lengths)
    ends = starts + lengths
    words = batch.words(">i8")
    low = np.where(lengths > 0, _sign_extended(words[ends - 8], np.minimum(lengths, 8)), 0)
    if (lengths <= 8).all():
        return low
    high = low >> 63
    rows = np.flatnonzero(lengths > 8)
    high[rows] = _sign_extended(words[ends[rows] - 16], lengths[rows] - 8)
    return _int128(low, high)


def _sign_extended(word: npt.NDArray[np.int64], byte_count: Ints) -> Ints:
    """Return the lowest bytes of each word, at most 8, as signed numbers."""
    shift = 64 - 8 * np.maximum(byte_count, 1)
    signed: Ints = (word.astype(np.int64) << shift) >> shift
    return signed


def _int128(low: Ints, high: Ints) -> pl.Series:
    limbs = pa.py_buffer(np.column_stack([low, high]))
    decimals = pa.Array.from_buffers(pa.decimal128(38, 0), len(low), [None, limbs])
    return pl.Series(decimals).to_physical()


_WIDTH = {"int": np.int32, "long": np.int64, "enum": np.uint8}

_READ: dict[str, Callable[[Batch, Leaf], pl.Series]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_whole,
    "long": _read_whole,
    "enum": _read_whole,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
    "decimal": _read_decimal,
    "variable-decimal": _read_variable_decimal,
}


_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def malformed(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    r"""Return which strings are not well-formed UTF-8 (Unicode 15, table 3-7).

    Args:
        data: Bytes of the strings, one after the other.
        offsets: Start of each string in `data`, and the end of the last one.

    Example:
        >>> malformed(np.frombuffer(b"a\xc3\xa9\xc3", np.uint8), np.array([0, 3, 4])).tolist()
        [False, True]
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    ahead = sum((data >= first).astype(np.int8) for first in (0xC2, 0xE0, 0xF0))  # must follow
    continues = (data & 0xC0) == 0x80
    claimed = np.zeros(len(data), np.bool_)
    bad = (data == 0xC0) | (data == 0xC1) | (data > 0xF4)
    for k in (1, 2, 3):
        lead = np.flatnonzero(ahead >= k)
        at = np.minimum(lead + k, len(data) - 1)
        follows = (lead + k == at) & continues[at] & (owner[at] == owner[lead])
        bad[lead[~follows]] = True
        claimed[at[follows]] = True
    for first, (low, high) in _SECOND.items():
        lead = np.flatnonzero(data[:-1] == first)
        bad[lead] |= (data[lead + 1] < low) | (data[lead + 1] > high)
    bad |= continues & ~claimed
    is_malformed = np.zeros(len(offsets) - 1, np.bool_)
    is_malformed[owner[bad]] = True
    return is_malformed
