"""Values as people read them: times in UTC, durations in their largest unit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from errata.client.escaping import escaped
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas.fields import Fields

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
LONGEST_TEXT = 200
"""Characters of a value that is shown in a browser; the rest can be asked for."""


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


def shown_texts(fields: Fields, row: Mapping[str, Any], *, longest: int) -> dict[str, str | None]:
    """Return a tuple's values as texts to be shown; null is None.

    What has no shape of its own, or could change the order of other characters, is escaped.

    Args:
        fields: The fields.
        row: The tuple, as plain values.
        longest: Longer texts are cut, and end with the number of the characters that are left out.
    """
    shown: dict[str, str | None] = {}
    for name, value in zip(row, display_values(fields, row), strict=True):
        text = _money(value) if isinstance(value, Decimal) else str(value)
        shown[name] = None if value is None else escaped(_cut(text, longest))
    return shown


def _money(value: Decimal) -> str:
    """Return a decimal without the zeros at its end, but with two digits if it has as many.

    Example:
        >>> _money(Decimal("12.5000")), _money(Decimal("12.0")), _money(Decimal("12.00000"))
        ('12.50', '12.0', '12.00')
    """
    whole, point, digits = f"{value:f}".partition(".")
    return whole + point + digits[:2] + digits[2:].rstrip("0")


def _cut(text: str, longest: int) -> str:
    rest = len(text) - longest
    return text if rest <= 0 else f"{text[:longest]}... ({rest} more characters)"
