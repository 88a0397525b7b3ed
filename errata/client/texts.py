"""Values as people read them: times in UTC, durations in their largest unit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas.fields import Fields

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def display_values(fields: Fields, row: Mapping[str, Any]) -> list[object]:
    """Return a tuple's values for people: times as UTC, bytes in hexadecimal digits."""
    cells: list[object] = []
    for name, value in row.items():
        kind = fields[name].kind
        if kind == "timestamp-millis":
            value = as_time(value)
        elif kind == "timestamp-micros" and value is not None:
            seconds, micros = divmod(value, 1_000_000)
            value = as_time(seconds * 1000) + (f".{micros:06}" if micros else "")
        cells.append(value.hex() if isinstance(value, bytes) else value)
    return cells


def as_time(ms: int | None) -> str:
    """Return ms since the epoch as UTC.

    Example:
        >>> as_time(7_800_000), as_time(7_800_001)
        ('1970-01-01 02:10:00', '1970-01-01 02:10:00.001')
    """
    if ms is None:
        return ""
    try:
        time = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return time.strftime("%Y-%m-%d %H:%M:%S") + (f".{ms % 1000:03}" if ms % 1000 else "")


def as_duration(ms: int | None) -> str:
    """Return a duration in its largest whole unit.

    Example:
        >>> as_duration(1_800_000), as_duration(90_000), as_duration(0), as_duration(None)
        ('30m', '90s', '0', '')
        >>> as_duration(FOREVER_MS)
        'forever'
    """
    if not ms:
        return "" if ms is None else "0"
    if ms >= FOREVER_MS:
        return "forever"
    name, size = next((name, size) for name, size in _UNITS if ms % size == 0)
    return f"{ms // size}{name}"
