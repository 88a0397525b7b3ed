"""Validates the specifications of windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from errata.processors.windows.event_times import EVENT_TIME_BOUND_MS
from errata.processors.windows.wall_time import zone
from errata.schemas.errors import ErrataError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowSpecError(ErrataError):
    """A window specification is invalid, or tuples would be lost between windows."""


def origin_ms(origin: object, tz: str | None) -> int:
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
            " or ISO-8601 text in whole ms, as '2026-07-15T09:30' or '2026-07-15T09:30Z'"
        )
    return instant if tz is None else int(zone(tz).walls(np.array([instant]))[0])


def rows_alone(rows: int, *others: object) -> int:
    """Return the size of a counting window; refuses arguments that only time windows have."""
    if any(other is not None for other in others):
        raise WindowSpecError(
            f"windows of {rows!r} tuples: have no size, origin or zone besides; leave these out"
        )
    return rows


def given(size: str | int | None) -> str | int:
    """Return the size of a window; refuses None."""
    if size is None:
        raise WindowSpecError('windows: need a size, as "30m", or rows=, and neither is given')
    return size
