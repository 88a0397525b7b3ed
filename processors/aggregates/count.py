"""``count(*)``, ``count(x)`` and ``count_if(p)``."""

from __future__ import annotations

from collections.abc import Hashable

import polars as pl

from errata.processors.aggregates.grouping import counted, present
from errata.processors.aggregates.signed import Signed
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
            groups, _ = present(groups, values.to_series(0))
        elif self.what == TRUE:
            groups = groups.filter(values.to_series(0))
        change = counted(groups, states.height)
        return pl.DataFrame([states["count"] + pl.Series(sign * change)])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add the counts."""
        return pl.DataFrame([one["count"] + other["count"]])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the counts, never null."""
        return states["count"]
