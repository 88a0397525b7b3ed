"""Functions that count: ``count(*)``, ``count(x)``, ``count_if``, ``bool_and`` and ``bool_or``."""

from __future__ import annotations

from collections.abc import Hashable

import polars as pl

from errata.processors.aggregates.compensating import Signed
from errata.processors.aggregates.grouping import count_rows, drop_nulls
from errata.schemas.fields import FieldType

ROWS, VALUES, TRUE = "rows", "values", "true"


class Count(Signed):
    """The number of rows of a group, or of rows whose value is not null, or true; 0 for none.

    Args:
        what: ``rows``, ``values`` or ``true``.

    Example:
        >>> count = Count(ROWS)
        >>> groups = pl.Series([1, 1], dtype=pl.UInt32)
        >>> states = count.accumulate(count.init(2), groups, pl.DataFrame())
        >>> count.emit(count.compensate(states, groups[:1], pl.DataFrame())).to_list()
        [0, 1]
    """

    result: FieldType

    def __init__(self, what: str) -> None:
        self.what = what
        self.result = FieldType("long")
        self.parts = {"count": self.result}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The type of the argument does not matter for counting."""
        return ("count", self.what)

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Count up for the rows that enter, down for those that leave."""
        if self.what == VALUES:
            groups, _ = drop_nulls(groups, values.to_series(0))
        elif self.what == TRUE:
            groups = groups.filter(values.to_series(0))
        change = count_rows(groups, states.height)
        return pl.DataFrame([states["count"] + pl.Series(sign * change)])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add the counts."""
        return pl.DataFrame([one["count"] + other["count"]])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the counts, never null."""
        return states["count"]


class Logical(Signed):
    """Whether all values, or any value, are true; null without values.

    Args:
        every: Whether all values have to be true.

    Example:
        >>> every = Logical(every=True)
        >>> groups = pl.Series([0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [False, True]})
        >>> states = every.accumulate(every.init(1), groups, rows)
        >>> every.emit(states)[0], every.emit(every.compensate(states, groups[:1], rows[:1]))[0]
        (False, True)
    """

    result: FieldType

    def __init__(self, *, every: bool) -> None:
        self.every = every
        self.result = FieldType("boolean", optional=True)
        count = FieldType("long")
        self.parts = {"count": count, "true": count}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Both functions of one argument share their state."""
        return ("logical",)

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Count up for the values that enter, down for those that leave."""
        groups, truths = drop_nulls(groups, values.to_series(0))
        changes = (
            count_rows(groups, states.height),
            count_rows(groups.filter(truths), states.height),
        )
        return pl.DataFrame(
            [
                states[name] + pl.Series(sign * change)
                for name, change in zip(self.parts, changes, strict=True)
            ]
        )

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add the counts."""
        return pl.DataFrame([one[name] + other[name] for name in self.parts])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the results."""
        count, true = states["count"], states["true"]
        return (true == count if self.every else true > 0).set(count == 0, None)
