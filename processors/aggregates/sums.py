"""Functions that add up: counts, sums and averages.

They are ``count(*)``, ``count(x)``, ``count_if``, ``bool_and`` and ``bool_or``, and ``sum(x)`` and
``avg(x)`` of longs, decimals and doubles.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import polars as pl

from errata.processors.aggregates.compensating import AVERAGES, COUNTS, SUMS, Signed
from errata.processors.aggregates.grouping import count_rows, drop_nulls, whole
from errata.processors.aggregates.totals import UNIT, DoubleTotal, IntegerTotal, fitting
from errata.schemas.fields import MAX_PRECISION, FieldType

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
    distance = COUNTS

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


_EXACT_DOUBLE = 2**53


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

    distance = SUMS

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

    distance = SUMS

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the sums."""
        with np.errstate(over="ignore"):
            sums = self.total(states) * UNIT
        return pl.Series(sums).set(states["count"] == 0, None)


class LongAverage(IntegerTotal):
    """Average of longs as the nearest double; null without values.

    It is rounded once, from the exact total, for up to 2**53 rows.
    """

    distance = AVERAGES

    def __init__(self, argument: FieldType) -> None:
        super().__init__(argument, FieldType("double", optional=True))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the averages."""
        total = states["total"]
        quotient, remainder, count = self.divide(states)
        # One IEEE division rounds once if doubles represent both operands exactly.
        small = total.cast(pl.Float64) / count.cast(pl.Float64)
        # A larger total has an average of 2**53 / count or more: with 64 binary places that is at
        # least 64 bits. Rounding them to odd keeps the one rounding to 53 bits correct.
        scale = whole(2**64)
        scaled = remainder * scale
        fraction = scaled // count
        bits = quotient * scale + fraction
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

    distance = AVERAGES

    def __init__(self, argument: FieldType) -> None:
        precision = min(argument.precision + 4, MAX_PRECISION)
        scale = min(argument.scale + 4, MAX_PRECISION)
        super().__init__(argument, FieldType("decimal", precision, scale, optional=True))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the averages."""
        digits = self.result.scale - self.argument.scale
        quotient, remainder, count = self.divide(states)
        shift = whole(10**digits)
        scaled = remainder * shift
        fraction = scaled // count
        left = (scaled - fraction * count) * whole(2)
        # Null if the average can't fit, checked before the product could wrap.
        most = whole(10 ** (self.result.precision - digits))
        down = quotient.set(quotient.abs() > most, None) * shift + fraction
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

    distance = AVERAGES

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the averages."""
        count = states["count"].to_numpy()
        averages = self.total(states) / np.maximum(count, 1) * UNIT
        return pl.Series(averages).set(states["count"] == 0, None)
