"""``sum(x)`` of longs, decimals and doubles."""

from __future__ import annotations

import numpy as np
import polars as pl

from errata.processors.aggregates.double_total import UNIT, DoubleTotal
from errata.processors.aggregates.integer_total import IntegerTotal, fitting
from errata.schemas.fields import MAX_PRECISION, FieldType


class IntegerSum(IntegerTotal):
    """Exact sum of longs or decimals; null without values.

    The type is Spark's: long for longs, decimal(p + 10, s) for decimal(p,s), at most 38 digits. A
    sum that doesn't fit its type is null, as in ``try_sum``; the state stays exact, so the sum
    returns when rows leave.

    Example:
        >>> total = IntegerSum(FieldType("long"))
        >>> group, row = pl.Series([0], dtype=pl.UInt32), pl.DataFrame({"x": [2**63 - 1]})
        >>> once = total.accumulate(total.init(1), group, row)
        >>> twice = total.accumulate(once, group, row)
        >>> [total.emit(states)[0] for states in (once, twice, total.compensate(twice, group, row))]
        [9223372036854775807, None, 9223372036854775807]
    """

    def __init__(self, argument: FieldType) -> None:
        result = FieldType("long", optional=True)
        if argument.kind == "decimal":
            precision = min(argument.precision + 10, MAX_PRECISION)
            result = FieldType("decimal", precision, argument.scale, optional=True)
        super().__init__(argument, result)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the sums, null if one doesn't fit."""
        total = self.total(states)
        if self.result.kind == "long":
            return total.cast(pl.Int64, strict=False)
        return fitting(total, self.result.precision)


class DoubleSum(DoubleTotal):
    """Sum of doubles, with the error bound of `DoubleTotal`; null without values.

    Example:
        >>> total = DoubleSum()
        >>> group = pl.Series([0, 0], dtype=pl.UInt32)
        >>> states = total.accumulate(total.init(1), group, pl.DataFrame({"x": [1.0, 1e300]}))
        >>> total.emit(total.compensate(states, group[:1], pl.DataFrame({"x": [1e300]})))[0]
        1.0
    """

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the sums."""
        with np.errstate(over="ignore"):
            sums = self.total(states) * UNIT
        return pl.Series(sums).set(states["count"] == 0, None)
