"""The encoded records of a batch in one buffer, each with a cursor; all cursors advance together.

A fault is marked on its record, whose cursor is then parked at the record's end: reading continues
for all records, within the buffer, and the values of a record with a fault are meaningless.

Values that no column needs are skipped in all records at once. Arrays and maps have to be walked
item by item, the k-th item of all records together. The expansion of a few bytes is bounded: a
record may have at most 10,000 such items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, overload

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Ints = npt.NDArray[np.int64]

PAD = bytes(16)  # so that a word may be read across either end of the buffer


@dataclass(frozen=True, eq=False)
class Joined(Sequence[bytes]):
    r"""Byte strings in one buffer.

    Args:
        buffer: All bytes, padded on both sides.
        starts: Position of each string's first byte.
        ends: Position after each string's last byte.

    Example:
        >>> list(Joined.of([b"abc", b"x"]).after(1))
        [b'bc', b'']
    """

    buffer: npt.NDArray[np.uint8]
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Joined:
        """Return the strings joined; already joined ones are returned unchanged."""
        if isinstance(values, Joined):
            return values
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        ends = np.cumsum(lengths) + len(PAD)
        buffer = np.frombuffer(b"".join([PAD, *values, PAD]), np.uint8)
        return cls(buffer, ends - lengths, ends)

    def after(self, count: int) -> Joined:
        """Return each string without its first bytes."""
        return replace(self, starts=np.minimum(self.starts + count, self.ends))

    def series(self) -> pl.Series:
        r"""Return the strings as a column.

        Example:
            >>> Joined.of([b"abc", b"x", b""]).after(1).series().to_list()
            [b'bc', b'', b'']
        """
        if not len(self):
            return pl.Series([], dtype=pl.Binary)
        offsets = np.stack([self.starts, self.ends], axis=1).ravel()  # every other one is a gap
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
        return cast(pl.Series, pl.from_arrow(pieces)).gather_every(2)

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Joined: ...
    def __getitem__(self, index: int | slice) -> bytes | Joined:
        """Return one string, or a slice."""
        if isinstance(index, slice):
            return replace(self, starts=self.starts[index], ends=self.ends[index])
        return self.buffer[self.starts[index] : self.ends[index]].tobytes()


def words(buffer: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[np.uint64]:
    """Return a view of a buffer as words of 8 bytes, one starting at each byte."""
    return np.ndarray((len(buffer) - 7,), dtype, buffer.data, strides=(1,))


Bits = npt.NDArray[np.bool_]

MAX_RECORD_BYTES = 1 << 20

_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_STOPS = np.uint64(0x8080808080808080)
_FOLDS = (  # pairs of 7, 14 and 28 bits: those that stay, those that move down, by how much
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)


@dataclass
class Batch:
    """The cursors of some records.

    Args:
        buffer: Bytes of all records, padded on both sides.
        at: Position of each record's next byte in the buffer.
        ends: Position after each record's last byte.
        fault: Per record the index in `reasons` of its first fault; 0 if it has none.
        reasons: Texts of the faults; shared with parts of the batch.
        items: How many items of arrays and maps have been skipped in each record.
    """

    buffer: npt.NDArray[np.uint8]
    at: Ints
    ends: Ints
    fault: Ints
    reasons: list[str]
    items: Ints

    @classmethod
    def of(cls, bodies: Sequence[bytes]) -> Batch:
        """Join records; those over `MAX_RECORD_BYTES` start with a fault."""
        joined = Joined.of(bodies)
        faults, items = np.zeros((2, len(joined)), np.int64)
        batch = cls(joined.buffer, joined.starts, joined.ends, faults, [""], items)
        lengths = joined.ends - joined.starts
        batch.refuse(lengths > MAX_RECORD_BYTES, f"more than {MAX_RECORD_BYTES} bytes")
        return batch

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.at)

    def part(self, rows: Ints) -> Batch:
        """Return a batch of some of the records; `join` merges it back."""
        at, ends, fault = self.at[rows], self.ends[rows], self.fault[rows]
        return Batch(self.buffer, at, ends, fault, self.reasons, self.items[rows])

    def join(self, rows: Ints, part: Batch) -> None:
        """Merge back the cursors and faults of a part."""
        self.at[rows], self.fault[rows], self.items[rows] = part.at, part.fault, part.items

    def refuse(self, bad: Bits, reason: str) -> None:
        """Mark a fault on these records and park them; an earlier fault is kept."""
        if bad.any():
            self.fault[bad & (self.fault == 0)] = len(self.reasons)
            self.reasons.append(reason)
            self.at[bad] = self.ends[bad]

    def advance(self, lengths: Ints | int, field: str) -> Ints:
        """Move past a value of known length; return its start."""
        start = self.at
        self.at = start + lengths
        self.refuse(self.at > self.ends, f"field {field!r}: ends before its value does")
        return start

    def long(self, field: str) -> Ints:
        """Read a zigzag varint of up to 10 bytes.

        Padded varints are accepted, as by other readers; one that is longer, or has bits above the
        64th, is a fault (fastavro wraps it).
        """
        first = self.buffer[self.at]
        if (first < 0x80).all():
            self.advance(1, field)
            value = first.astype(np.uint64)
        else:
            value, lengths, wide = self._varint()
            self.refuse(wide, f"field {field!r}: varint of more than 64 bits")
            self.advance(np.where(wide, 0, lengths), field)
        return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)

    def _varint(self) -> tuple[npt.NDArray[np.uint64], Ints, Bits]:
        """Return values, lengths in bytes, and which are too long; reads 8 bytes at once."""
        word = self.words("<u8")[self.at]
        stop = ~word & _STOPS
        within = (stop & -stop) - np.uint64(1)  # the bits before the first byte without a flag
        value = word & within & _SEVENS
        for stay, move, by in _FOLDS:
            value = (value & stay) | ((value & move) >> by)
        lengths = (np.bitwise_count(within).astype(np.int64) + 1) >> 3
        wide = np.zeros(len(self), np.bool_)
        rows = np.flatnonzero(stop == 0)
        if len(rows):
            ninth, tenth = self.buffer[self.at[rows] + 8], self.buffer[self.at[rows] + 9]
            ten = ninth >= 0x80
            tenth = np.where(ten, tenth, 0)
            value[rows] |= (ninth & np.uint8(0x7F)).astype(np.uint64) << np.uint64(56)
            value[rows] |= (tenth & np.uint8(1)).astype(np.uint64) << np.uint64(63)
            lengths[rows] = 9 + ten
            wide[rows] = tenth > 1
        return value, lengths, wide

    def words(self, dtype: str) -> npt.NDArray[np.uint64]:
        """Return a view of the buffer as words, one starting at each byte."""
        return words(self.buffer, dtype)

    def span(self, field: str) -> tuple[Ints, Ints]:
        """Read a length and move past as many bytes; return the starts and the lengths."""
        lengths = self.long(field)
        self.refuse(lengths < 0, f"field {field!r}: negative length")
        left = self.ends - self.at
        self.refuse(lengths > left, f"field {field!r}: length past the end of the record")
        if len(self.reasons) > 1:
            lengths = np.where(self.fault == 0, lengths, 0)
        return self.advance(lengths, field), lengths


MAX_ITEMS = 10_000

ITEMS_OF = {"array": "items", "map": "values"}
"""The attribute in which a schema gives the item type of an array or map."""

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


@dataclass(frozen=True)
class Shape:
    """The wire format of a value to skip.

    Args:
        kind: A primitive type, ``enum``, ``fixed``, ``record``, ``union``, or ``items`` for arrays
            and maps.
        parts: Fields of a record, branches of a union, the one item of items.
        size: Bytes of a fixed.
    """

    kind: str
    parts: tuple[Shape, ...] = ()
    size: int = 0

    @property
    def width(self) -> int | None:
        """Bytes that every such value takes; None if the size varies."""
        if self.kind != "record":
            return self.size if self.kind == "fixed" else _WIDTHS.get(self.kind)
        widths = [part.width for part in self.parts]
        return None if None in widths else sum(width for width in widths if width)


def pass_over(shape: Shape, batch: Batch, field: str) -> None:
    """Move the cursors of a batch past a value of this shape.

    Args:
        shape: The shape of the value.
        batch: The records; one without such a value is marked with a fault.
        field: Name of the field, for the fault.
    """
    width = shape.width
    if width is not None:
        batch.advance(width, field)
    elif shape.kind in ("string", "bytes"):
        batch.span(field)
    elif shape.kind == "record":
        for part in shape.parts:
            pass_over(part, batch, field)
    elif shape.kind == "union":
        _union(shape, batch, field)
    elif shape.kind == "items":
        _blocks(shape.parts[0], batch, field)
    else:
        batch.long(field)


def _union(shape: Shape, batch: Batch, field: str) -> None:
    index = batch.long(field)
    bad = (index < 0) | (index >= len(shape.parts))
    batch.refuse(bad, f"field {field!r}: no such union branch")
    for number, branch in enumerate(shape.parts):
        _in(np.flatnonzero(index == number), branch, batch, field)


def _in(rows: Ints, shape: Shape, batch: Batch, field: str) -> None:
    """Skip a value in some of the records only."""
    if len(rows):
        part = batch.part(rows)
        pass_over(shape, part, field)
        batch.join(rows, part)


def _blocks(item: Shape, batch: Batch, field: str) -> None:
    """Skip blocks of items, up to the empty one; the block's size follows a negative count.

    The size is not believed: who skips by it might end elsewhere than who reads the items.
    """
    rows = np.arange(len(batch))
    while len(rows):
        block = batch.part(rows)
        count = block.long(field)
        count = np.where((block.fault == 0) & (count > -MAX_ITEMS), count, MAX_ITEMS + 1)
        block.items += np.minimum(np.abs(count), MAX_ITEMS + 1)
        block.refuse(block.items > MAX_ITEMS, f"field {field!r}: more than {MAX_ITEMS} items")
        count = np.where(block.fault == 0, count, 0)
        sized, sizes = np.flatnonzero(count < 0), np.zeros(len(block), np.int64)
        if len(sized):
            part = block.part(sized)
            sizes[sized] = part.long(field)
            block.join(sized, part)
        starts = block.at.copy()
        _items(item, block, np.abs(count), field)
        wrong = (count < 0) & (block.at - starts != sizes)
        block.refuse(wrong, f"field {field!r}: a block of another size than its items")
        batch.join(rows, block)
        rows = rows[(count != 0) & (block.fault == 0)]


def _items(item: Shape, block: Batch, left: Ints, field: str) -> None:
    """Skip the given number of remaining items in each record."""
    if item.width is not None:
        block.advance(left * item.width, field)
        return
    while left.any():
        _in(np.flatnonzero(left), item, block, field)
        left = np.where(block.fault == 0, np.maximum(left - 1, 0), 0)
