"""Finds the strings of a batch that are not UTF-8, all at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def malformed(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    r"""Return which strings are not well-formed UTF-8 (Unicode 15, table 3-7).

    Args:
        data: Bytes of the strings, one after the other.
        offsets: Where each begins and, last, where the last one ends.

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
    found = np.zeros(len(offsets) - 1, np.bool_)
    found[owner[bad]] = True
    return found
