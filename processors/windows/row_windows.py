"""Windows of a fixed number of tuples of a group, ordered by event time and identity.

The tuples of a group have the *numbers* 0, 1, 2 ... in that order (SQL's ``row_number``, from 0).
An insert, a delete or a new event time changes the numbers of all tuples that follow. So the event
time that a revision affects is not bounded: these windows have no extent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from errata.processors.windows.event_times import WindowSpecError

MOST_ROWS = 1_000_000
"""The most tuples of a counting window; so many tuples of every group are kept in memory."""


@dataclass(frozen=True)
class SlidingRows:
    """For each tuple, the window of the last `rows` tuples of its group up to and including it.

    This is SQL's ``ROWS BETWEEN rows - 1 PRECEDING AND CURRENT ROW``: the first windows of a group
    hold fewer tuples.

    Args:
        rows: How many tuples a window holds.

    Raises:
        WindowSpecError: If it is not a whole number from 1 to `MOST_ROWS`.
    """

    rows: int

    def __post_init__(self) -> None:
        _check("rows", self.rows, most=MOST_ROWS)

    def describe(self) -> dict[str, Any]:
        """Return the definition of the windows as plain data."""
        return {"sliding_rows": self.rows}


@dataclass(frozen=True)
class HoppingRows:
    """Windows of `rows` tuples of a group; one starts every `every` tuples.

    Window k holds the numbers from k * every to k * every + rows, exclusive.

    Args:
        rows: How many tuples a full window holds.
        every: Distance between window starts in tuples. For tumbling windows it equals `rows`.

    Raises:
        WindowSpecError: If they are not whole numbers, 0 < every <= rows <= `MOST_ROWS`.
    """

    rows: int
    every: int

    def __post_init__(self) -> None:
        _check("rows", self.rows, most=MOST_ROWS)
        _check("every", self.every, most=self.rows)

    def describe(self) -> dict[str, Any]:
        """Return the definition of the windows as plain data."""
        return {"rows": self.rows, "every_rows": self.every}


RowWindow = SlidingRows | HoppingRows


def _check(name: str, value: object, *, most: int) -> None:
    if type(value) is not int or not 0 < value <= most:
        raise WindowSpecError(
            f"windows of tuples with {name}={value!r}: needs a whole number from 1 to {most}"
        )
