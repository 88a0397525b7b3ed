"""The oracle's windows: those that hold some of a group's event times.

Written from docs/architecture.md and the docstrings, with only `zoneinfo` and whole numbers.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

Windows = Callable[[set[int]], Iterable[tuple[int, int]]]
"""Maps the event times of a group to the windows, (start, end) in ms, that hold some of them."""

HOUR = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS = timedelta(milliseconds=1)
_NEAR_HOURS = 24 * 40


def ms(at: datetime) -> int:
    """Return a time as ms since 1970; UTC if it has no zone."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _ONE_MS


ALWAYS = ms(datetime(1000, 1, 1)), ms(datetime(9000, 1, 1)) + 1


def whole(times: set[int]) -> Iterable[tuple[int, int]]:
    """Return the one window of a whole history."""
    return [ALWAYS]


def sliding(size: int) -> Windows:
    """Return windows that end at each instant that has a tuple."""
    return lambda times: [(at + 1 - size, at + 1) for at in times]


def hopping(size: int, slide: int, *, origin: int = 0) -> Windows:
    """Return windows [origin + k * slide, origin + k * slide + size)."""

    def windows(times: set[int]) -> set[tuple[int, int]]:
        return {(start, start + size) for at in times for start in _starts(at, size, slide, origin)}

    return windows


def _starts(at: int, size: int, slide: int, origin: int) -> range:
    last = at - (at - origin) % slide
    return range(last, at - size, -slide)


def zoned(size: int, slide: int, *, origin: int, clocks: "Clocks") -> Windows:
    """Return the same windows by the clocks of a zone; `origin` is local time.

    A window begins and ends when clocks first show its bounds or have jumped past them. Empty
    windows are dropped; of those that start together only the longest remains.
    """

    def windows(times: set[int]) -> Iterable[tuple[int, int]]:
        longest: dict[int, int] = {}
        for at in times:
            for wall in _starts(clocks.reached(at), size, slide, origin):
                start, end = clocks.first(wall), clocks.first(wall + size)
                assert start <= at < end
                longest[start] = max(longest.get(start, end), end)
        return longest.items()

    return windows


class Clocks:
    """The local time of a zone around some time.

    Args:
        tz: The zone.
        near: The middle of the eighty days that are known, in ms.
    """

    def __init__(self, tz: str, near: int) -> None:
        self.zone = ZoneInfo(tz)
        hours = [near + hour * HOUR for hour in range(-_NEAR_HOURS, _NEAR_HOURS)]
        changes = [
            _bisected(before, after, self.ahead)
            for before, after in pairwise(hours)
            if self.ahead(before) != self.ahead(after)
        ]
        starts = [hours[0], *changes]
        # Intervals with one UTC offset: from, until, offset.
        self.stretches = [
            (start, end, self.ahead(start))
            for start, end in zip(starts, [*changes, hours[-1]], strict=True)
        ]

    def ahead(self, at: int) -> int:
        """Return how far clocks are ahead of UTC at some time."""
        offset = (_EPOCH + timedelta(milliseconds=at)).astimezone(self.zone).utcoffset()
        assert offset is not None
        return offset // _ONE_MS

    def reached(self, at: int) -> int:
        """Return the latest local time that clocks have shown by some time."""
        return max(min(at, end - 1) + ahead for start, end, ahead in self.stretches if start <= at)

    def first(self, wall: int) -> int:
        """Return when clocks first showed a local time, or had jumped past it."""
        return min(
            max(start, wall - ahead) for start, end, ahead in self.stretches if wall - ahead < end
        )


def _bisected(before: int, after: int, value: Callable[[int], int]) -> int:
    """Return the first time with the value that `after` has."""
    times = range(before, after + 1)
    return times[bisect_left(times, True, key=lambda at: value(at) != value(before))]


@lru_cache
def clock_changes(tz: str, year: int) -> tuple[int, ...]:
    """Return when the clocks of a zone change in a year."""
    clocks = Clocks(tz, ms(datetime(year, 4, 1))), Clocks(tz, ms(datetime(year, 10, 15)))
    return tuple(start for both in clocks for start, _, _ in both.stretches[1:])
