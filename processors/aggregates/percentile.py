"""``percentile(x, p)`` and ``median(x)``, exact."""

from __future__ import annotations

from fractions import Fraction
from itertools import repeat
from operator import add, itemgetter, mul, sub, truediv

import numpy as np
import polars as pl

from errata.processors.aggregates.bag import VALUES, BagOfValues
from errata.processors.aggregates.grouping import laid_out
from errata.schemas.fields import FieldType


class Percentile(BagOfValues):
    """The value that a share of all values doesn't exceed; null without values.

    Of n values in order, numbered from 0, it is the value at p * (n - 1); between two values it is
    interpolated linearly, as in Spark, but as the nearest double. Spark first rounds the position
    (the value 7 at 0.07 * 100 becomes 7.000000000000001), then each value, then twice more. Between
    an infinity and another value the result is that infinity; between the two infinities, or next
    to a NaN, it is NaN.

    Args:
        argument: A number.
        share: p, from 0 to 1.

    Example:
        >>> median = Percentile(FieldType("long"), Fraction(1, 2))
        >>> groups = pl.Series([0, 0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [9, 1, 4, 2]})
        >>> states = median.accumulate(median.init(1), groups, rows)
        >>> median.emit(states)[0], median.emit(median.compensate(states, groups[:1], rows[:1]))[0]
        (3.0, 2.0)
    """

    def __init__(self, argument: FieldType, share: Fraction) -> None:
        super().__init__(argument, result=FieldType("double", optional=True))
        self.share = share

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the percentiles."""
        contents = self.contents(states)
        groups = np.flatnonzero(contents.sizes)
        last = (contents.sizes[groups] - 1).tolist()
        places = map(mul, last, repeat(self.share.numerator))
        found = list(map(divmod, places, repeat(self.share.denominator)))
        rank = np.fromiter(map(itemgetter(0), found), dtype=np.int64, count=len(found))
        rests = list(map(itemgetter(1), found))
        later = rank + np.fromiter(map(bool, rests), dtype=np.int64, count=len(found))
        low, high = (contents.rows[VALUES][contents.at(groups, r)] for r in (rank, later))
        return laid_out(self._between(low, high, rests), groups, states.height)

    def _between(self, low: pl.Series, high: pl.Series, rests: list[int]) -> pl.Series:
        """Return the values interpolated between pairs of values, at some fractions."""
        if not low.dtype.is_float():
            return pl.Series(self._nearest(low, high, rests), dtype=pl.Float64)
        low, high = low.cast(pl.Float64), high.cast(pl.Float64)
        finite, zero = low.is_finite() & high.is_finite(), pl.Series([0.0])
        ends = (low.zip_with(finite, zero), high.zip_with(finite, zero))
        nearest = pl.Series(self._nearest(*ends, rests), dtype=pl.Float64)
        return nearest.zip_with(finite, low + high)

    def _nearest(self, low: pl.Series, high: pl.Series, rests: list[int]) -> list[float]:
        parts = self.share.denominator
        (a, b), (c, d) = (self._ratios(side) for side in (low, high))
        left = map(mul, map(mul, a, d), map(sub, repeat(parts), rests))
        right = map(mul, map(mul, c, b), rests)
        # Python divides integers of any size with one rounding.
        return list(map(truediv, map(add, left, right), map(mul, map(mul, b, d), repeat(parts))))

    def _ratios(self, values: pl.Series) -> tuple[list[int], list[int]]:
        """Return values as numerators and denominators, exactly."""
        if not values.dtype.is_float():
            return values.to_list(), [10**self.argument.scale] * len(values)
        pairs = list(map(float.as_integer_ratio, values.to_list()))
        return list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs))
