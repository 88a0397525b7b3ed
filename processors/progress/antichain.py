"""Antichains: the minimal elements of a set, none of which is before another (Timely).

A frontier is an antichain: the earliest times that may still appear.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from errata.processors.progress.timestamp import Timestamp

T = TypeVar("T", bound=Timestamp)


class MutableAntichain(Generic[T]):
    """The frontier of counted times: the minimal times with a count above 0.

    A count may be below 0 for a while, if a decrement arrives before its increment; such a time is
    not in the frontier.

    Example:
        >>> from errata.processors.progress.timestamp import Epoch
        >>> counted = MutableAntichain()
        >>> counted.update_iter([(Epoch(3), 1), (Epoch(5), 2)])
        [(3, 1)]
        >>> counted.update_iter([(Epoch(3), -1), (Epoch(5), -1)])
        [(3, -1), (5, 1)]
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self) -> None:
        self._counts: dict[T, int] = {}
        self._frontier: list[T] = []

    @property
    def frontier(self) -> tuple[T, ...]:
        """The minimal times, in their total order."""
        return tuple(self._frontier)

    def update_iter(self, updates: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Change counts, all at once; return how the frontier changes: -1 leaves, 1 enters it.

        Each update scans the frontier. All counted times are scanned only if the frontier may have
        changed.
        """
        counts, stale = self._counts, False
        for time, diff in updates:
            before = counts.get(time, 0)
            after = before + diff
            if after:
                counts[time] = after
            elif before:
                del counts[time]
            if stale or (before > 0) == (after > 0):
                continue
            stale = time in self._frontier if before > 0 else not self._passed(time)
        return self._rebuild() if stale else []

    def __repr__(self) -> str:
        return f"MutableAntichain({self._frontier})"

    def _passed(self, time: T) -> bool:
        """Whether some frontier element is before the time or equal to it."""
        return any(kept.less_equal(time) for kept in self._frontier)

    def _rebuild(self) -> list[tuple[T, int]]:
        """Recompute the frontier; the total order puts each time after all that precede it."""
        previous, self._frontier = self._frontier, []
        for time in sorted(time for time, count in self._counts.items() if count > 0):
            if not self._passed(time):
                self._frontier.append(time)
        removed = [(time, -1) for time in previous if time not in self._frontier]
        return removed + [(time, 1) for time in self._frontier if time not in previous]
