"""The encoded records of a batch in one buffer, each with a cursor; all cursors advance together.

A fault is marked on its record, whose cursor is then parked at the record's end: reading continues
for all records, within the buffer, and the values of a record with a fault are meaningless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from errata.schemas.joined import Ints, Joined, words

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
        at: Where each record is read next.
        ends: Where each record ends.
        fault: Per record the index in `reasons` of its first fault; 0 if it has none.
        reasons: What the faults are; shared with parts of the batch.
        items: How many items of arrays and maps have been passed over in each record.
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
