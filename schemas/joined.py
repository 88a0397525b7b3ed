"""The byte strings of a batch in one buffer, so that none is copied by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

PAD = bytes(16)  # so that a word may be read across either end of the buffer


@dataclass(frozen=True, eq=False)
class Joined(Sequence[bytes]):
    r"""Byte strings in one buffer.

    Args:
        buffer: All bytes, padded on both sides.
        starts: Where each string starts.
        ends: Where each ends.

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
