"""Slabs: ranges of event time in which a job keeps the windows of an aggregate apart.

A batch touches only the slabs of its tuples, however long the history of the others is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from errata.processors.windows.time_windows import FOREVER_MS, History, Hopping, Sliding

WINDOWS = 32
"""Approximate number of consecutive windows in a slab."""
EXTENTS = 4
"""Smallest length of a slab in window lengths, if windows overlap."""


@dataclass(frozen=True)
class Slabs:
    """The slabs into which a box's windows are divided, by window start.

    Args:
        window: The windows.

    Example:
        >>> slabs = Slabs(Hopping(60_000, 60_000))
        >>> slabs.length_ms, slabs.bounds(2)
        (1920000, (3840000, 5760000))
        >>> rows, numbers = slabs.touched(pl.Series([0, 1_920_000]))
        >>> rows.to_list(), numbers.to_list()
        ([0, 0, 1, 1], [-1, 0, 0, 1])
    """

    window: Hopping | Sliding | History

    @property
    def is_one(self) -> bool:
        """Whether there is only one slab."""
        return isinstance(self.window, History)

    @property
    def length_ms(self) -> int:
        """The length of a slab in event time."""
        if isinstance(self.window, Hopping):
            return max(WINDOWS * self.window.slide_ms, EXTENTS * self.window.extent_ms)
        return WINDOWS * self.window.extent_ms

    def bounds(self, slab: int) -> tuple[int, int]:
        """Return the first window start in a slab, and the first one after it."""
        if self.is_one:
            return -FOREVER_MS, FOREVER_MS
        return slab * self.length_ms, (slab + 1) * self.length_ms

    def of(self, starts: pl.Series) -> pl.Series:
        """Return the slabs of the windows that start at some instants."""
        return starts * 0 if self.is_one else starts // self.length_ms

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return every pair of a tuple's row and a slab whose windows may hold it."""
        times = event_times.to_numpy()
        if self.is_one:
            rows = np.arange(len(times), dtype=np.uint32)
            return pl.Series(rows), pl.Series(np.zeros(len(times), dtype=np.int64))
        first = (times - self.window.extent_ms + 1) // self.length_ms
        counts = times // self.length_ms - first + 1
        rows = np.repeat(np.arange(len(times), dtype=np.uint32), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return pl.Series(rows), pl.Series(np.repeat(first, counts) + np.arange(len(rows)) - before)

    def behind(self, slab: int) -> range:
        """Return the slabs whose states the windows of a slab are computed from.

        A sliding window is merged from instants, the first of which may be in the slab before.
        """
        return range(slab - isinstance(self.window, Sliding), slab + 1)

    def may_close(self, slab: int, after_ms: int, upto_ms: int) -> bool:
        """Whether a slab may have windows that end in (after, upto]."""
        first, end = self.bounds(slab)
        return upto_ms > after_ms and (
            self.is_one or (first <= upto_ms and end + self.window.extent_ms > after_ms)
        )

    def is_past(self, slab: int, until_ms: int) -> bool:
        """Whether no tuple at an event time later than `until_ms` is in a window of a slab.

        Nor, for sliding windows, in one that is computed from the slab's states.
        """
        _, end = self.bounds(slab)
        return not self.is_one and end + 2 * self.window.extent_ms <= until_ms
