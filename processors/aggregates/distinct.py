"""``count(distinct x)``, also of several arguments."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from errata.processors.aggregates.bag import COUNTS, VALUES, Bag
from errata.processors.aggregates.ladder import Key
from errata.schemas.fields import FieldType


class CountDistinct(Bag):
    """The number of different values, or of different rows of values; 0 for none.

    A row with a null in it isn't counted. NaN is one value; -0.0 and 0.0 are the same value.

    Args:
        arguments: Types of the arguments.

    Example:
        >>> distinct = CountDistinct([FieldType("string")])
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": ["a", "b", "a"]})
        >>> states = distinct.accumulate(distinct.init(1), groups, rows)
        >>> left = [distinct.compensate(states, groups[:1], rows[n : n + 1]) for n in range(2)]
        >>> [distinct.emit(some)[0] for some in (states, *left)]
        [2, 2, 1]
    """

    def __init__(self, arguments: Sequence[FieldType]) -> None:
        names = [VALUES, *(f"{VALUES}_{number}" for number in range(1, len(arguments)))]
        order = dict(zip(names, (Key(kind.required, False) for kind in arguments), strict=True))
        super().__init__(order, columns=names, needed=names, result=FieldType("long"))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the counts, never null."""
        return states[COUNTS].list.len().cast(pl.Int64)
