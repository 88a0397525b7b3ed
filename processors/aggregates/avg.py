"""``avg(x)`` of longs, decimals and doubles."""

from __future__ import annotations

import numpy as np
import polars as pl

from errata.processors.aggregates.double_total import UNIT, DoubleTotal
from errata.processors.aggregates.grouping import whole
from errata.processors.aggregates.integer_total import IntegerTotal, fitting
from errata.schemas.fields import MAX_PRECISION, FieldType

_EXACT_DOUBLE = 2**53


class LongAverage(IntegerTotal):
    """Average of longs as the nearest double; null without values.

    It is rounded once, from the exact total, for up to 2**53 rows.
    """

    def __init__(self, argument: FieldType) -> None:
        super().__init__(argument, FieldType("double", optional=True))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the averages."""
        total = states["total"]
        quotient, remainder, count = self.divided(states)
        # One IEEE division rounds once if doubles represent both operands exactly.
        small = total.cast(pl.Float64) / count.cast(pl.Float64)
        # A larger total has an average of 2**53 / count or more: with 64 binary places that is at
        # least 64 bits. Rounding them to odd keeps the one rounding to 53 bits correct.
        places = whole(2**64)
        scaled = remainder * places
        fraction = scaled // count
        bits = quotient * places + fraction
        inexact = fraction * count != scaled
        even = bits // whole(2) * whole(2) == bits
        odd = bits + (inexact & even).cast(pl.Int128)
        large = odd.cast(pl.Float64) * 2.0**-64
        is_small = (total < whole(_EXACT_DOUBLE)) & (total > whole(-_EXACT_DOUBLE))
        return small.zip_with(is_small, large)


class DecimalAverage(IntegerTotal):
    """Average of a decimal(p,s) as decimal(p + 4, s + 4), both at most 38, rounded half up.

    Null without values, or if the average doesn't fit. It is rounded once, from the exact total.
    """

    def __init__(self, argument: FieldType) -> None:
        precision = min(argument.precision + 4, MAX_PRECISION)
        scale = min(argument.scale + 4, MAX_PRECISION)
        super().__init__(argument, FieldType("decimal", precision, scale, optional=True))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the averages."""
        digits = self.result.scale - self.argument.scale
        quotient, remainder, count = self.divided(states)
        shift = whole(10**digits)
        scaled = remainder * shift
        places = scaled // count
        left = (scaled - places * count) * whole(2)
        # Null if the average can't fit, checked before the product could wrap.
        most = whole(10 ** (self.result.precision - digits))
        down = quotient.set(quotient.abs() > most, None) * shift + places
        # The average is down + left / 2 / count. Ties round away from zero: up from 0 on.
        up = (left > count) | ((left == count) & (down >= whole(0)))
        return fitting(down + up.cast(pl.Int128), self.result.precision)


class DoubleAverage(DoubleTotal):
    """Average of doubles: their total divided by their count; null without values.

    The error bound is that of `DoubleTotal`; an average below 2**-982 is rounded to a multiple of
    2**-1034.

    Example:
        A formula with the mean alone as its state gives -4.0 here:

        >>> average = DoubleAverage()
        >>> group = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [1.0, 2.0, 1e17]})
        >>> states = average.accumulate(average.init(1), group, rows)
        >>> average.emit(average.compensate(states, group[:1], rows[2:]))[0]
        1.5
    """

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the averages."""
        count = states["count"].to_numpy()
        averages = self.total(states) / np.maximum(count, 1) * UNIT
        return pl.Series(averages).set(states["count"] == 0, None)
