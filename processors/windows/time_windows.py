"""Windows by event time: which of them hold a tuple, and which event times they span.

A window is identified by its start, in ms UTC, and holds the event times from its start to its end,
exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.windows.event_times import EVENT_TIME_BOUND_MS as EVENT_TIME_BOUND_MS
from errata.processors.windows.event_times import DurationError as DurationError
from errata.processors.windows.event_times import EventTimeError as EventTimeError
from errata.processors.windows.event_times import Times, checked
from errata.processors.windows.event_times import WindowSpecError as WindowSpecError
from errata.processors.windows.event_times import duration_ms as duration_ms
from errata.processors.windows.row_windows import HoppingRows, RowWindow, SlidingRows
from errata.processors.windows.wall_time import Zone, zone

FOREVER_MS = 2**62
"""Later than every event time; as an extent, longer than all of event time."""

HISTORY_START_MS, HISTORY_END_MS = -30_610_224_000_000, 221_845_392_000_001
"""The years 1000 to 8999, which hold all event times of sources: the window of all tuples."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Hopping:
    """Half-open windows of one size that start at regular intervals, also before 1970.

    Without a zone they start at ``origin_ms`` plus multiples of ``slide_ms``. With a zone the same
    holds in its local time: a window begins and ends when clocks first show its bounds or have
    jumped past them, so a day may have 23 or 25 hours. A window that would be empty does not exist;
    of windows that start at the same instant only the longest exists.

    Args:
        size_ms: Window length in ms, in the zone's local time.
        slide_ms: Distance between window starts in ms, in (0, size_ms]. For tumbling windows it
            equals the size.
        origin_ms: The start of one window: ms since 1970, in UTC or the zone's local time.
        tz: IANA name of the zone.

    Raises:
        WindowSpecError: If the slide is outside (0, size_ms]: tuples would be lost.
        TimeZoneError: If there is no such zone.

    Example:
        The 2:00 price of Borealis figure 1 touches 1:40-2:09 and 2:00-2:29:

        >>> windows, minute = hopping("30m", every="20m"), 60_000
        >>> _, starts = windows.touched(pl.Series([120 * minute]))
        >>> list(zip(starts // minute, windows.ends(starts) // minute))
        [(100, 130), (120, 150)]
    """

    size_ms: int
    slide_ms: int
    origin_ms: int = 0
    tz: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.size_ms <= EVENT_TIME_BOUND_MS:
            raise WindowSpecError(
                f"windows of {self.size_ms} ms every {self.slide_ms} ms: needs 0 < every <= size "
                f"<= {EVENT_TIME_BOUND_MS} ms, else tuples between two windows are lost"
            )
        if self.tz is not None:
            zone(self.tz)

    @property
    def _zone(self) -> Zone | None:
        return None if self.tz is None else zone(self.tz)

    @property
    def extent_ms(self) -> int:
        """The most event time that a result depends on, in ms; radii add these up."""
        return self.size_ms + (self._zone.spread_ms if self._zone else 0)

    def ends(self, starts: pl.Series) -> pl.Series:
        """Return the exclusive ends of windows from their starts, in ms."""
        zone_clocks = self._zone
        if zone_clocks is None:
            return starts + self.size_ms
        return pl.Series(
            zone_clocks.instants(self._grid(zone_clocks.walls(starts.to_numpy())) + self.size_ms)
        )

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return every pair of a tuple and a window that holds it, by tuple, oldest window first.

        Args:
            event_times: In ms, Int64, never null, within `EVENT_TIME_BOUND_MS`.

        Returns:
            ``row``, the tuple's index in `event_times` (UInt32), and ``window_start`` in ms
            (Int64), of the same length.

        Raises:
            EventTimeError: If an event time is null or out of bounds.
        """
        times, zone_clocks = checked(event_times), self._zone
        if zone_clocks is not None:
            times = zone_clocks.reached(times)
        rows, starts = self._until(*self._newest(times))
        if zone_clocks is not None:
            walls, starts = starts, zone_clocks.instants(starts)
            exists = self._grid(zone_clocks.walls(starts)) == walls
            rows, starts = rows[exists], starts[exists]
        return pl.Series("row", rows), pl.Series("window_start", starts)

    @property
    def overlap(self) -> int:
        """In how many windows each tuple is, at least; without a zone."""
        return self.size_ms // self.slide_ms

    def panes(self, event_times: pl.Series) -> pl.Series:
        """Return the start of the pane that holds each tuple, in ms; without a zone.

        A *pane* is the longest time whose tuples are all in the same windows: a slide, or one of
        the two parts in which the ends of windows divide it. So each window consists of panes
        (*paired windows* of Krishnamurthy, Wu and Franklin, "On-the-fly sharing for streamed
        aggregation", SIGMOD 2006).

        Args:
            event_times: As for `touched`.

        Raises:
            EventTimeError: If an event time is null or out of bounds.

        Example:
            Windows of 30 every 20 end in the middle of a slide:

            >>> hopping(30, every=20).panes(pl.Series([5, 10, 25])).to_list()
            [0, 10, 20]
        """
        times = checked(event_times)
        newest, remainder = self._grid(times), self.size_ms % self.slide_ms
        is_second = (remainder > 0) & (times - newest >= remainder)
        return pl.Series("pane", newest + remainder * is_second)

    def of_panes(
        self, starts: pl.Series, is_first: npt.NDArray[np.bool_]
    ) -> tuple[pl.Series, pl.Series]:
        """Return each window that holds one of some panes once.

        Args:
            starts: The starts of panes, by group and in time order.
            is_first: Whether each pane is the first of its group.

        Returns:
            The index of a pane in the window (UInt32), and ``window_start`` in ms (Int64).

        Example:
            >>> rows, starts = hopping(30, every=10).of_panes(pl.Series([0, 20]), np.array([1, 0]))
            >>> rows.to_list(), starts.to_list()
            ([0, 0, 0, 1, 1], [-20, -10, 0, 10, 20])
        """
        newest, counts = self._newest(starts.to_numpy())
        later = np.diff(newest, prepend=newest[:1]) // self.slide_ms  # than the pane before
        counts = np.where(is_first, counts, np.minimum(counts, later))
        rows, window_starts = self._until(newest, counts)
        return pl.Series("row", rows), pl.Series("window_start", window_starts)

    def _newest(self, times: Times) -> tuple[Times, Times]:
        """Return the start of the newest window that may hold each time, and how many do."""
        newest, (full, remainder) = self._grid(times), divmod(self.size_ms, self.slide_ms)
        # A tuple is in one more window during the first `remainder` ms of each slide.
        return newest, full + (times - newest < remainder)

    def _until(self, newest: Times, counts: Times) -> tuple[npt.NDArray[np.uint32], Times]:
        """Return the row and the start of each of so many windows up to some, oldest first."""
        rows = np.repeat(np.arange(len(newest), dtype=np.uint32), counts)
        slides_back = np.repeat(np.cumsum(counts), counts) - np.arange(1, len(rows) + 1)
        return rows, np.repeat(newest, counts) - slides_back * self.slide_ms

    def _grid(self, times: Times) -> Times:
        """Return the last possible start at or before some times."""
        return times - (times - self.origin_ms) % self.slide_ms

    def describe(self) -> dict[str, Any]:
        """Return the definition of the windows as plain data."""
        definition: dict[str, Any] = {"size_ms": self.size_ms, "slide_ms": self.slide_ms}
        if self.origin_ms:
            definition["origin_ms"] = self.origin_ms
        if self.tz is not None:
            definition["tz"] = self.tz
        return definition


@dataclass(frozen=True)
class Sliding:
    """For each instant at which a group has a tuple, the window of a fixed size that ends with it.

    The window of event time t is [t + 1 - size, t + 1): SQL's ``RANGE BETWEEN size PRECEDING AND
    CURRENT ROW``, the last ms of the size excluded, and EEP's sliding window.

    Args:
        size_ms: Window length in ms.

    Raises:
        WindowSpecError: If it is not positive.
    """

    size_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.size_ms <= EVENT_TIME_BOUND_MS:
            raise WindowSpecError(
                f"sliding windows of {self.size_ms} ms: needs a size from 1 to "
                f"{EVENT_TIME_BOUND_MS} ms"
            )

    @property
    def extent_ms(self) -> int:
        """How much event time a result depends on, in ms; radii add these up."""
        return self.size_ms

    def ends(self, starts: pl.Series) -> pl.Series:
        """Return the exclusive ends of windows from their starts, in ms."""
        return starts + self.size_ms

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return for every tuple the window that ends with it, as `Hopping.touched` does."""
        starts = checked(event_times) + (1 - self.size_ms)
        return _one_each(starts)

    def describe(self) -> dict[str, Any]:
        """Return the definition of the windows as plain data."""
        return {"sliding_ms": self.size_ms}


@dataclass(frozen=True)
class History:
    """One window that holds all tuples; it closes when the sources end."""

    @property
    def extent_ms(self) -> int:
        """Unbounded: `FOREVER_MS`."""
        return FOREVER_MS

    def ends(self, starts: pl.Series) -> pl.Series:
        """Return the end of all event times, once for each start."""
        return pl.Series([HISTORY_END_MS], dtype=pl.Int64).new_from_index(0, len(starts))

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the one window for every tuple, as `Hopping.touched` does."""
        return _one_each(np.full(len(checked(event_times)), HISTORY_START_MS))

    def describe(self) -> dict[str, Any]:
        """Return the definition of the window as plain data."""
        return {"window": None}


Window = Hopping | Sliding
AnyWindow = Window | RowWindow


def _one_each(starts: Times) -> tuple[pl.Series, pl.Series]:
    rows = np.arange(len(starts), dtype=np.uint32)
    return pl.Series("row", rows), pl.Series("window_start", starts)


@overload
def hopping(
    size: str | int,
    *,
    every: str | int,
    origin: str | int | None = None,
    tz: str | None = None,
) -> Hopping: ...
@overload
def hopping(*, rows: int, every: int) -> HoppingRows: ...
def hopping(
    size: str | int | None = None,
    *,
    every: str | int,
    rows: int | None = None,
    origin: str | int | None = None,
    tz: str | None = None,
) -> Hopping | HoppingRows:
    """Return windows of a duration, or of a number of tuples, that start at regular intervals.

    Args:
        size: Window length, as ``"30m"`` or in ms.
        every: Distance between window starts, at most the size; in tuples if `rows` is given.
        rows: Tuples in a window, instead of a size, an origin and a zone.
        origin: The start of one of the windows: ms since 1970 UTC, or ISO-8601 text. Text without
            an offset is local time in `tz`, or UTC without `tz`. The default is 1970-01-01.
        tz: IANA name of a zone: windows start and end in its local time.

    Raises:
        DurationError: If a duration can't be parsed.
        WindowSpecError: If tuples would be lost, or the origin can't be parsed.
        TimeZoneError: If there is no such zone.

    Example:
        >>> hopping("30m", every="20m", origin="2026-07-15T00:10")
        Hopping(size_ms=1800000, slide_ms=1200000, origin_ms=600000, tz=None)
        >>> hopping(rows=100, every=20)
        HoppingRows(rows=100, every=20)
    """
    if rows is not None:
        return HoppingRows(_only_rows(rows, size, origin, tz), every)  # type: ignore[arg-type]  # HoppingRows refuses it
    slide_ms = duration_ms(every, what="window slide (every)")
    windows = Hopping(duration_ms(_required_size(size), what="window size"), slide_ms, tz=tz)
    if origin is None:
        return windows
    return replace(windows, origin_ms=_origin_in_ms(origin, tz) % slide_ms)


@overload
def tumbling(
    size: str | int, *, origin: str | int | None = None, tz: str | None = None
) -> Hopping: ...
@overload
def tumbling(*, rows: int) -> HoppingRows: ...
def tumbling(
    size: str | int | None = None,
    *,
    rows: int | None = None,
    origin: str | int | None = None,
    tz: str | None = None,
) -> Hopping | HoppingRows:
    """Return windows of a size, each starting at the end of the previous one; see `hopping`.

    Example:
        >>> tumbling("1d", tz="America/New_York")
        Hopping(size_ms=86400000, slide_ms=86400000, origin_ms=0, tz='America/New_York')
        >>> tumbling(rows=100)
        HoppingRows(rows=100, every=100)
    """
    if rows is not None:
        return HoppingRows(_only_rows(rows, size, origin, tz), rows)
    return hopping(_required_size(size), every=_required_size(size), origin=origin, tz=tz)


@overload
def sliding(size: str | int) -> Sliding: ...
@overload
def sliding(*, rows: int) -> SlidingRows: ...
def sliding(size: str | int | None = None, *, rows: int | None = None) -> Sliding | SlidingRows:
    """Return, for each instant at which a group has a tuple, the window of a size that ends there.

    With `rows`: for each tuple of a group, the window of that many tuples that ends with it.

    Example:
        >>> sliding("1000s"), sliding(rows=20)
        (Sliding(size_ms=1000000), SlidingRows(rows=20))
    """
    if rows is not None:
        return SlidingRows(_only_rows(rows, size))
    return Sliding(duration_ms(_required_size(size), what="window size"))


def _origin_in_ms(origin: object, tz: str | None) -> int:
    """Return an origin in ms since 1970, in UTC or in a zone's local time."""
    instant = origin if isinstance(origin, int) and not isinstance(origin, bool) else None
    if isinstance(origin, str):
        try:
            at = datetime.fromisoformat(origin)
        except ValueError:
            at = None
        if at is not None:
            since = at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH
            instant, rest = divmod(since, timedelta(milliseconds=1))
            if rest:
                instant = None
            elif at.tzinfo is None:
                return instant
    if instant is None or abs(instant) > EVENT_TIME_BOUND_MS:
        raise WindowSpecError(
            f"window origin {origin!r}: needs ms since 1970 (an int within +-{EVENT_TIME_BOUND_MS})"
            " or ISO-8601 text in whole ms, such as '2026-07-15T09:30' or '2026-07-15T09:30Z'"
        )
    return instant if tz is None else int(zone(tz).walls(np.array([instant]))[0])


def _only_rows(rows: int, *others: object) -> int:
    """Return the size of a counting window; refuses arguments that only time windows have."""
    if any(other is not None for other in others):
        raise WindowSpecError(
            f"windows of {rows!r} tuples: need no size, origin or zone, but one is given; omit it"
        )
    return rows


def _required_size(size: str | int | None) -> str | int:
    """Return the size of a window; refuses None."""
    if size is None:
        raise WindowSpecError('windows: need a size, such as "30m", or rows=; found neither')
    return size
