"""``mode(x)``."""

from __future__ import annotations

import numpy as np
import polars as pl

from errata.processors.aggregates.bag import VALUES, BagOfValues
from errata.processors.aggregates.grouping import laid_out
from errata.schemas.fields import FieldType


class Mode(BagOfValues):
    """The most frequent value, the smallest one among equally frequent ones; null without values.

    Spark does not define which of these it returns, except for ``mode(x, true)``.

    Example:
        >>> mode = Mode(FieldType("string"))
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": ["b", "a", "b"]})
        >>> states = mode.accumulate(mode.init(1), groups, rows)
        >>> mode.emit(states)[0], mode.emit(mode.compensate(states, groups[:1], rows[:1]))[0]
        ('b', 'a')
    """

    def __init__(self, argument: FieldType) -> None:
        super().__init__(argument, result=argument.nullable)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the modes."""
        contents = self.contents(states)
        most = np.zeros(states.height, dtype=np.int64)
        np.maximum.at(most, contents.group, contents.counts)
        lines = np.flatnonzero(contents.counts == most[contents.group])
        groups, first = np.unique(contents.group[lines], return_index=True)
        return laid_out(contents.rows[VALUES][lines[first]], groups, states.height)
