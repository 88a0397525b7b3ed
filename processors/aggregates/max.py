"""``max(x)`` and ``min(x)`` of any type."""

from __future__ import annotations

from errata.processors.aggregates.extreme import RUNGS, Extreme
from errata.processors.aggregates.ladder import Key
from errata.schemas.fields import FieldType


class Max(Extreme):
    """The largest value, with the number of rows that hold it; null without values.

    Text is ordered by its UTF-8 bytes, false is below true, NaN is the largest double, -0.0 is 0.0.

    Args:
        argument: Any type.
        rungs: How many of the largest values a live state keeps.

    Example:
        >>> import polars as pl
        >>> largest = Max(FieldType("long"))
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [9, 5, 7]})
        >>> states = largest.accumulate(largest.init(1), groups, rows)
        >>> states = largest.compensate(states, groups[:1], rows[:1])
        >>> largest.emit(states)[0], largest.exact(states)[0]
        (7, True)

        A stored result has only the largest value; the next one is not known:

        >>> stored = largest.recall(states.select(largest.kept))
        >>> largest.exact(largest.compensate(stored, groups[:1], rows[2:]))[0]
        False
    """

    def __init__(self, argument: FieldType, *, rungs: int = RUNGS) -> None:
        super().__init__(
            {"value": Key(argument, largest=True)},
            columns={"value": argument},
            needed="value",
            rungs=rungs,
        )


class Min(Extreme):
    """The smallest value; otherwise like `Max`.

    Args:
        argument: Any type.
        rungs: How many of the smallest values a live state keeps.
    """

    def __init__(self, argument: FieldType, *, rungs: int = RUNGS) -> None:
        super().__init__(
            {"value": Key(argument, largest=False)},
            columns={"value": argument},
            needed="value",
            rungs=rungs,
        )
