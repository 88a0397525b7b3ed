"""Slabs: stretches of event time whose windows have their states in one place of Spark's store.

A batch reads and writes whole places. With a slab for every few windows it touches those that its
tuples are in, however long the history of the others is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from errata.processors.windows.time_windows import FOREVER_MS, History, Hopping, Sliding

WINDOWS = 32
"""About how many windows, one after the other, a slab has."""
EXTENTS = 4
"""How many windows' length a slab has at least, where windows overlap."""


@dataclass(frozen=True)
class Slab(Hopping):
    """Hopping windows that start within a slab; others hold no tuple.

    Args:
        from_ms: Where the slab begins.
        to_ms: Where it ends, exclusive.
    """

    from_ms: int = -FOREVER_MS
    to_ms: int = FOREVER_MS

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return every pair of a tuple and a window of the slab that holds it."""
        rows, starts = super().touched(event_times)
        own = (starts >= self.from_ms) & (starts < self.to_ms)
        return rows.filter(own), starts.filter(own)


@dataclass(frozen=True)
class Slabs:
    """The slabs that a box's windows are divided into, by where they start.

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
        """Whether there is one slab only."""
        return isinstance(self.window, History)

    @property
    def length_ms(self) -> int:
        """How much event time a slab has."""
        if isinstance(self.window, Hopping):
            return max(WINDOWS * self.window.slide_ms, EXTENTS * self.window.extent_ms)
        return WINDOWS * self.window.extent_ms

    def bounds(self, slab: int) -> tuple[int, int]:
        """Return the first start of a window that is in a slab, and the first that is not."""
        if self.is_one:
            return -FOREVER_MS, FOREVER_MS
        return slab * self.length_ms, (slab + 1) * self.length_ms

    def of(self, start_ms: int) -> int:
        """Return the slab of the windows that start at an instant."""
        return 0 if self.is_one else start_ms // self.length_ms

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return every pair of a tuple's row and a slab with windows that may hold it."""
        times = event_times.to_numpy()
        if self.is_one:
            rows = np.arange(len(times), dtype=np.uint32)
            return pl.Series(rows), pl.Series(np.zeros(len(times), dtype=np.int64))
        first = (times - self.window.extent_ms + 1) // self.length_ms
        counts = times // self.length_ms - first + 1
        rows = np.repeat(np.arange(len(times), dtype=np.uint32), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return pl.Series(rows), pl.Series(np.repeat(first, counts) + np.arange(len(rows)) - before)

    def closing(self, after_ms: int, upto_ms: int, held: tuple[int, int]) -> range:
        """Return the slabs that may have windows which end in (after, upto].

        Args:
            after_ms: An event time.
            upto_ms: A later one.
            held: The first and the last slab that have windows at all.
        """
        if self.is_one or upto_ms <= after_ms:
            return range(held[0], held[1] + (upto_ms > after_ms))
        first = max(held[0], self.of(after_ms - self.window.extent_ms))
        return range(first, min(held[1], self.of(upto_ms)) + 1)

    def within(self, slab: int) -> Hopping | Sliding | History:
        """Return the windows of one slab; of sliding ones all that the tuples end."""
        if not isinstance(self.window, Hopping):
            return self.window
        window, (from_ms, to_ms) = self.window, self.bounds(slab)
        return Slab(window.size_ms, window.slide_ms, window.origin_ms, window.tz, from_ms, to_ms)
