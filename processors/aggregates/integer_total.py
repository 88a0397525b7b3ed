"""Exact totals of longs and decimals that don't overflow.

A decimal is represented by its unscaled integer, so this is integer arithmetic in 128 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence

import polars as pl

from errata.processors.aggregates.grouping import counted, present, summed, whole
from errata.processors.aggregates.signed import Signed
from errata.schemas.fields import MAX_PRECISION, FieldType

NARROW_PRECISION = 28
"""The most digits of an argument whose total is one part of 38 digits: room for 10**10 rows, and
for 10**19 longs."""

_LIMB_DIGITS = 18
TOTAL_LIMB = 10**_LIMB_DIGITS
"""The unit of ``high`` in a total of two parts."""


def fitting(numbers: pl.Series, precision: int) -> pl.Series:
    """Return the numbers, null where one has more digits than `precision`.

    Example:
        >>> fitting(pl.Series([99, -100], dtype=pl.Int128), 2).to_list()
        [99, None]
    """
    bound = 10**precision
    return numbers.set((numbers >= whole(bound)) | (numbers <= whole(-bound)), None)


class IntegerTotal(Signed):
    """The state that sums and averages of longs and decimals share: a count and an exact total.

    The total is one part, ``total``, for an argument of at most `NARROW_PRECISION` digits. A wider
    one has two, ``high`` and ``low``, with total = high * 10**18 + low and 0 <= low < 10**18: room
    for 10**17 rows of 38 digits. Values must have no more digits than their type says.

    Args:
        argument: A long or a decimal.
        result: Type of the emitted value.
    """

    result: FieldType

    def __init__(self, argument: FieldType, result: FieldType) -> None:
        self.argument = argument
        self.result = result
        count, total = FieldType("long"), FieldType("decimal", MAX_PRECISION)
        self.parts: dict[str, FieldType]
        self.wide = argument.precision > NARROW_PRECISION
        if self.wide:
            self.parts = {"count": count, "high": total, "low": count}
        else:
            self.parts = {"count": count, "total": total}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Sum and average of one argument share their state."""
        return ("integer total", self.wide)

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Add the values that enter, or subtract those that leave."""
        step = operator.add if sign > 0 else operator.sub
        moved = zip(self.parts, self._sums(groups, values, height=states.height), strict=True)
        return self._carried([step(states[name], some) for name, some in moved])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and totals."""
        return self._carried([one[name] + other[name] for name in self.parts])

    def total(self, states: pl.DataFrame) -> pl.Series:
        """Return the totals in 128 bits, null without values and for more than 38 digits."""
        if self.wide:
            edge = 10 ** (MAX_PRECISION - _LIMB_DIGITS)
            high = states["high"]
            high = high.set((high >= whole(edge)) | (high < whole(-edge)), None)
            total = high * whole(TOTAL_LIMB) + states["low"].cast(pl.Int128)
        else:
            total = states["total"]
        return fitting(total, MAX_PRECISION).set(states["count"] == 0, None)

    def divided(self, states: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
        """Return quotient and remainder of total by count, and the count, all in 128 bits.

        The quotient is rounded down, so that 0 <= remainder < count. All are null without values.
        """
        count = states["count"].set(states["count"] == 0, None).cast(pl.Int128)
        if not self.wide:
            quotient = states["total"] // count
            return quotient, states["total"] - quotient * count, count
        # Long division, limb by limb: each partial dividend is below count * 10**18 < 2**127.
        limb = whole(TOTAL_LIMB)
        upper = states["high"] // count
        rest = (states["high"] - upper * count) * limb + states["low"].cast(pl.Int128)
        lower = rest // count
        return upper * limb + lower, rest - lower * count, count

    def _sums(self, groups: pl.Series, values: pl.DataFrame, *, height: int) -> list[pl.Series]:
        """Return the sums that the rows add to each part, by group."""
        groups, numbers = present(groups, values.to_series(0))
        count = pl.Series("count", counted(groups, height))
        numbers = numbers.cast(pl.Int128)
        if not self.wide:
            return [count, summed(groups, numbers, height)]
        limb = whole(TOTAL_LIMB)
        high = numbers // limb
        low = numbers - high * limb
        return [count, summed(groups, high, height), summed(groups, low, height)]

    def _carried(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        """Return states of these parts, with ``low`` normalized to [0, 10**18)."""
        parts = dict(zip(self.parts, columns, strict=True))
        if self.wide:
            limb = whole(TOTAL_LIMB)
            low = parts["low"].cast(pl.Int128)
            carry = low // limb
            parts["high"] += carry
            parts["low"] = (low - carry * limb).cast(pl.Int64)
        return pl.DataFrame(parts)
