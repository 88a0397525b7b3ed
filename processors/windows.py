"""Windows by event time: which of them hold a tuple, and how long their spans are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from schemas.errors import ErrataError

EVENT_TIME_BOUND_MS = 2**53
"""Event times lie within plus or minus this: room for window arithmetic in 64 bits, and a double
or a JSON number holds every one of them."""

UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "y": 365 * 86_400_000,
}

_DURATION = re.compile(rf"\s*([0-9]{{1,16}})\s*({'|'.join(UNITS_MS)})\s*")
_Time = TypeVar("_Time", int, pl.Series, pl.Expr)


class DurationError(ErrataError):
    """A length of time can't be read."""

    def __init__(self, value: object, *, what: str) -> None:
        self.value = value
        self.what = what
        super().__init__(
            f"{what} is {value!r}: needs a whole number and a unit of {', '.join(UNITS_MS)}, as in "
            f"'30m' (a y is 365 d), or an int of ms, from 0 to {EVENT_TIME_BOUND_MS} ms"
        )


class WindowSpecError(ErrataError):
    """Windows of this size and slide would lose tuples."""

    def __init__(self, size_ms: int, slide_ms: int) -> None:
        self.size_ms = size_ms
        self.slide_ms = slide_ms
        super().__init__(
            f"windows of {size_ms} ms every {slide_ms} ms: needs 0 < every <= size <= "
            f"{EVENT_TIME_BOUND_MS} ms, else tuples between two windows are lost"
        )


class EventTimeError(ErrataError):
    """An event time is null or outside the bound; ingest refuses such tuples."""


def duration_ms(value: str | int, *, what: str) -> int:
    """Return a length of time in ms, from 0 to `EVENT_TIME_BOUND_MS`.

    Args:
        value: A number with its unit (``"500ms"``, ``"30s"``, ``"30m"``, ``"1h"``, ``"1d"``,
            ``"10y"``), or an int of ms.
        what: What the duration is for; begins the error's text.

    Raises:
        DurationError: If it can't be read or is out of bounds.

    Example:
        >>> duration_ms("30m", what="lateness")
        1800000
    """
    length = -1
    if isinstance(value, int) and not isinstance(value, bool):
        length = value
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        length = int(match[1]) * UNITS_MS[match[2]]
    if not 0 <= length <= EVENT_TIME_BOUND_MS:
        raise DurationError(value, what=what)
    return length


@dataclass(frozen=True)
class Hopping:
    """Half-open windows of one size that start at multiples of one slide, also before 1970.

    Args:
        size_ms: Window length in ms.
        slide_ms: Distance between window starts in ms, in (0, size_ms]. Tumbling windows have a
            slide of their size.

    Raises:
        WindowSpecError: If the slide is outside (0, size_ms]: tuples would be lost.

    Example:
        The 2:00 price of Borealis figure 1 touches 1:40-2:09 and 2:00-2:29:

        >>> windows, minute = hopping("30m", every="20m"), 60_000
        >>> _, starts = windows.touched(pl.Series([120 * minute]))
        >>> [(start // minute, windows.end(start) // minute) for start in starts]
        [(100, 130), (120, 150)]
    """

    size_ms: int
    slide_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.size_ms <= EVENT_TIME_BOUND_MS:
            raise WindowSpecError(self.size_ms, self.slide_ms)

    @property
    def extent_ms(self) -> int:
        """How much event time a result depends on, in ms; radii add these up."""
        return self.size_ms

    def end(self, start: _Time) -> _Time:
        """Return the exclusive end of windows from their start, in ms."""
        return start + self.size_ms

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
        if event_times.has_nulls():
            raise EventTimeError(
                f"windows need an event time for each tuple, but {event_times.null_count()} of "
                f"{len(event_times)} are null; refuse such tuples at ingest"
            )
        times = event_times.to_numpy()
        if len(times) and not -EVENT_TIME_BOUND_MS <= times.min() <= times.max() <= (
            EVENT_TIME_BOUND_MS
        ):
            raise EventTimeError(
                f"event times go from {times.min()} to {times.max()} ms, but windows need them "
                f"within +-{EVENT_TIME_BOUND_MS} ms; is their unit ms?"
            )
        newest = (event_times // self.slide_ms).to_numpy()
        every, more = divmod(self.size_ms, self.slide_ms)
        # A tuple is in one window more during the first `more` ms of each slide.
        counts = every + (times - newest * self.slide_ms < more)
        rows = np.repeat(np.arange(len(times), dtype=np.uint32), counts)
        later = np.repeat(np.cumsum(counts), counts) - np.arange(1, len(rows) + 1)
        starts = (np.repeat(newest, counts) - later) * self.slide_ms
        return pl.Series("row", rows), pl.Series("window_start", starts)


Window = Hopping


def hopping(size: str | int, *, every: str | int) -> Hopping:
    """Return windows of a size that start every so often.

    Example:
        >>> hopping("30m", every="20m")
        Hopping(size_ms=1800000, slide_ms=1200000)
    """
    return Hopping(
        duration_ms(size, what="window size"), duration_ms(every, what="window slide (every)")
    )


def tumbling(size: str | int) -> Hopping:
    """Return windows of a size, each starting where the one before it ends.

    Example:
        >>> tumbling("1d")
        Hopping(size_ms=86400000, slide_ms=86400000)
    """
    return hopping(size, every=size)
