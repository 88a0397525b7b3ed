"""Output of commands: JSON lines for programs, tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from errata.client.escaping import escaped


def for_people() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def wants_text(as_json: bool, as_text: bool) -> bool:
    """Return whether text for people is to be printed, not JSON.

    Args:
        as_json: Whether ``--json`` is given.
        as_text: Whether ``--text`` is given.
    """
    return as_text or (for_people() and not as_json)


def print_lines(lines: Iterable[dict[str, Any]]) -> None:
    """Print JSON lines."""
    from errata.client.json_lines import json_lines  # some commands print none

    sys.stdout.flush()
    sys.stdout.buffer.write(json_lines(lines))
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
    return Text("" if value is None else escaped(str(value)))
