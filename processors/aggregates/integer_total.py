"""Exact totals of longs and decimals, which no number of rows can overflow.

A decimal is its unscaled integer here, so all of this is integer arithmetic in 128 bits.
"""

from __future__ import annotations

from collections.abc import Hashable

import polars as pl

from processors.aggregates.compensating import Compensating
from processors.aggregates.grouping import counted, present, summed, whole
from schemas.fields import MAX_PRECISION, FieldType

NARROW_PRECISION = 28
"""Up to so many digits an argument's total is one part of 38 digits: room for 10**10 rows, and for
10**19 longs."""

_LIMB_DIGITS = 18


def fitting(numbers: pl.Series, precision: int) -> pl.Series:
    """Return the numbers, null where one has more digits than `precision`.

    Example:
        >>> fitting(pl.Series([99, -100], dtype=pl.Int128), 2).to_list()
        [99, None]
    """
    bound = 10**precision
    return numbers.set((numbers >= whole(bound)) | (numbers <= whole(-bound)), None)


class IntegerTotal(Compensating):
    """The state that sums and averages of longs and decimals share: a count and an exact total.

    The total is one part, ``total``, for an argument of at most `NARROW_PRECISION` digits. A wider
    one has two, ``high`` and ``low``, with total = high * 10**18 + low and 0 <= low < 10**18: room
    for 10**17 rows of 38 digits. Values must have no more digits than their type says.

    Args:
        argument: A long or a decimal.
        result: Type of the emitted value.
    """

    def __init__(self, argument: FieldType, result: FieldType) -> None:
        self.argument = argument
        self.result = result
        count, total = FieldType("long"), FieldType("decimal", MAX_PRECISION)
        self.wide = argument.precision > NARROW_PRECISION
        if self.wide:
            self.parts = {"count": count, "high": total, "low": count}
        else:
            self.parts = {"count": count, "total": total}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Sum and average of one argument share their state."""
        return ("integer total", self.wide)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Add the values that enter."""
        return self.merge(states, self._batch(groups, values, height=states.height))

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Subtract the values that leave."""
        leaving = self._batch(groups, values, height=states.height)
        return self._carried(*(states[name] - leaving[name] for name in self.parts))

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and totals."""
        return self._carried(*(one[name] + other[name] for name in self.parts))

    def total(self, states: pl.DataFrame) -> pl.Series:
        """Return the totals in 128 bits, null for no value and for more than 38 digits."""
        if self.wide:
            edge = 10 ** (MAX_PRECISION - _LIMB_DIGITS)
            high = states["high"]
            high = high.set((high >= whole(edge)) | (high < whole(-edge)), None)
            total = high * whole(10**_LIMB_DIGITS) + states["low"].cast(pl.Int128)
        else:
            total = states["total"]
        return fitting(total, MAX_PRECISION).set(states["count"] == 0, None)

    def divided(self, states: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
        """Return quotient and remainder of total by count, and the count, all in 128 bits.

        The quotient is rounded down, so that 0 <= remainder < count. All null for no value.
        """
        count = states["count"].set(states["count"] == 0, None).cast(pl.Int128)
        if not self.wide:
            quotient = states["total"] // count
            return quotient, states["total"] - quotient * count, count
        # Long division, limb by limb: what is carried down is below count * 10**18 < 2**127.
        limb = whole(10**_LIMB_DIGITS)
        upper = states["high"] // count
        rest = (states["high"] - upper * count) * limb + states["low"].cast(pl.Int128)
        lower = rest // count
        return upper * limb + lower, rest - lower * count, count

    def _batch(self, groups: pl.Series, values: pl.DataFrame, *, height: int) -> pl.DataFrame:
        """Return the states of the rows alone."""
        groups, numbers = present(groups, values.to_series(0))
        count = pl.Series("count", counted(groups, height))
        numbers = numbers.cast(pl.Int128)
        if not self.wide:
            return self._carried(count, summed(groups, numbers, height))
        limb = whole(10**_LIMB_DIGITS)
        high = numbers // limb
        low = numbers - high * limb
        return self._carried(count, summed(groups, high, height), summed(groups, low, height))

    def _carried(
        self, count: pl.Series, total: pl.Series, low: pl.Series | None = None
    ) -> pl.DataFrame:
        """Return states of these parts, ``low`` brought into [0, 10**18)."""
        if low is None:
            return pl.DataFrame([count, total.alias("total")])
        limb = whole(10**_LIMB_DIGITS)
        low = low.cast(pl.Int128)
        carry = low // limb
        high = (total + carry).alias("high")
        return pl.DataFrame([count, high, (low - carry * limb).cast(pl.Int64).alias("low")])
