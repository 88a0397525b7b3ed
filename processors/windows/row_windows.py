"""Windows that count: they hold so many tuples of a group, in the order of event time and identity.

The tuples of a group have the *numbers* 0, 1, 2 ... in that order (SQL's ``row_number``, from 0). A
tuple that comes, goes or moves changes the numbers of all that follow it, so nothing says how much
event time a revision reaches: these windows have no extent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from errata.processors.windows.specification import WindowSpecError

MOST_ROWS = 1_000_000
"""Tuples in a window that counts: as many of every group are kept in memory."""


@dataclass(frozen=True)
class SlidingRows:
    """For each tuple, itself and those before it in its group, so many in all.

    SQL's ``ROWS BETWEEN rows - 1 PRECEDING AND CURRENT ROW``: the first windows of a group hold
    less.

    Args:
        rows: How many tuples a window holds.

    Raises:
        WindowSpecError: If it is not a whole number from 1 to `MOST_ROWS`.
    """

    rows: int

    def __post_init__(self) -> None:
        _check("rows", self.rows, most=MOST_ROWS)

    def describe(self) -> dict[str, Any]:
        """Return what defines the windows, as plain data."""
        return {"sliding_rows": self.rows}


@dataclass(frozen=True)
class HoppingRows:
    """Windows of so many tuples of a group that start every so many.

    Window k holds the numbers from k * every to k * every + rows, exclusive.

    Args:
        rows: How many tuples a window holds once it is full.
        every: How many tuples after one window the next one starts. Tumbling windows start after
            as many as they hold.

    Raises:
        WindowSpecError: If they are not whole numbers, 0 < every <= rows <= `MOST_ROWS`.
    """

    rows: int
    every: int

    def __post_init__(self) -> None:
        _check("rows", self.rows, most=MOST_ROWS)
        _check("every", self.every, most=self.rows)

    def describe(self) -> dict[str, Any]:
        """Return what defines the windows, as plain data."""
        return {"rows": self.rows, "every_rows": self.every}


RowWindow = SlidingRows | HoppingRows


def _check(what: str, given: object, *, most: int) -> None:
    if type(given) is not int or not 0 < given <= most:
        raise WindowSpecError(
            f"windows of tuples with {what}={given!r}: needs a whole number from 1 to {most}"
        )
