"""Output of commands: JSON lines for programs, tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from errata.client import rows
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas.fields import Fields

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def for_people() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_lines(lines: Iterable[dict[str, Any]]) -> None:
    """Print JSON lines."""
    sys.stdout.flush()
    sys.stdout.buffer.write(rows.json_lines(lines))
    sys.stdout.buffer.flush()


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = ""
) -> None:
    """Print a table; terminal control characters are escaped."""
    Console(soft_wrap=False).print(table(title, columns, rows, caption=caption))


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = ""
) -> Table:
    """Return a table; terminal control characters are escaped."""
    rich_table = Table(
        title=title, caption=caption or None, title_justify="left", title_style="bold"
    )
    for column in columns:
        rich_table.add_column(column, overflow="fold")
    for row in rows:
        rich_table.add_row(*map(cell, row))
    return rich_table


def cell(value: object) -> Text:
    """Return a value as text with terminal control characters escaped; None is empty."""
    text = "" if value is None else str(value)
    return Text("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text))


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
