"""Event times and durations: the bounds that window arithmetic needs, and how users write them."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.schemas.errors import ErrataError

Times = npt.NDArray[np.int64]

EVENT_TIME_BOUND_MS = 2**53
"""Event times are within plus or minus this: window arithmetic fits into 64 bits, and a double or a
JSON number holds each of them exactly."""


class EventTimeError(ErrataError):
    """An event time is null or out of bounds; ingest refuses such tuples."""


class WindowSpecError(ErrataError):
    """A window specification is invalid, or tuples would be lost between windows."""


def checked(event_times: pl.Series) -> Times:
    """Return event times, checked for window arithmetic.

    Raises:
        EventTimeError: If one is null or outside of `EVENT_TIME_BOUND_MS`.
    """
    if event_times.has_nulls():
        raise EventTimeError(
            f"windows need an event time for each tuple, but {event_times.null_count()} of "
            f"{len(event_times)} are null; refuse such tuples at ingest"
        )
    times: Times = event_times.to_numpy()
    bound = EVENT_TIME_BOUND_MS
    if len(times) and not -bound <= times.min() <= times.max() <= bound:
        raise EventTimeError(
            f"event times go from {times.min()} to {times.max()} ms, but windows need them "
            f"within +-{bound} ms; is their unit ms?"
        )
    return times


UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "y": 365 * 86_400_000,
}

_DURATION = re.compile(rf"\s*([0-9]{{1,16}})\s*({'|'.join(UNITS_MS)})\s*")


class DurationError(ErrataError):
    """A duration can't be parsed."""

    def __init__(self, value: object, *, what: str) -> None:
        self.value = value
        self.what = what
        super().__init__(
            f"{what} is {value!r}: needs a whole number and a unit of {', '.join(UNITS_MS)}, "
            f"such as '30m' (a y is 365 d), or an int of ms, from 0 to {EVENT_TIME_BOUND_MS} ms"
        )


def duration_ms(value: str | int, *, what: str) -> int:
    """Return a duration in ms, from 0 to `EVENT_TIME_BOUND_MS`.

    Args:
        value: A number with its unit (``"500ms"``, ``"30s"``, ``"30m"``, ``"1h"``, ``"1d"``,
            ``"10y"``), or an int of ms.
        what: What the duration is for; begins the error's text.

    Raises:
        DurationError: If it can't be parsed or is out of bounds.

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
