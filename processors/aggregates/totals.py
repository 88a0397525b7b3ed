"""The states of sums and averages: totals that don't overflow and don't drift.

The total of longs or decimals is exact: a decimal is represented by its unscaled integer, so this
is integer arithmetic in 128 bits.

The total of doubles has an error term, so that a value that leaves takes its rounding with it. A
plain running sum drifts: 1, 2 and 1e17 enter, 1e17 leaves, and 1 and 2 are lost. Here a total is
the unevaluated sum of two doubles, added as in Dekker, *A floating-point technique for extending
the available precision* (1971), and a batch is summed without error by splitting values at a common
bit, as in Rump, Ogita and Oishi, *Accurate floating-point summation* (2008).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.compensating import Signed
from errata.processors.aggregates.grouping import (
    Counts,
    count_rows,
    drop_nulls,
    sum_by_group,
    whole,
)
from errata.schemas.fields import MAX_PRECISION, FieldType

NARROW_PRECISION = 28
"""The most digits of an argument whose total is one part of 38 digits: room for 10**10 rows, and
for 10**19 longs."""

_LIMB_DIGITS = 18
TOTAL_LIMB = 10**_LIMB_DIGITS
"""The unit of ``high`` in a total of two parts."""

UNIT = 2.0**40
"""The unit of totals, chosen so that 10**12 of the largest double don't overflow."""
Doubles: TypeAlias = npt.NDArray[np.float64]
_MANTISSA_BITS = 53
_SPECIAL: Mapping[str, Callable[[Doubles], npt.NDArray[np.bool_]]] = {
    "nan": np.isnan,
    "positive": np.isposinf,
    "negative": np.isneginf,
}


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
        sums = zip(self.parts, self._sums(groups, values, height=states.height), strict=True)
        return self._normalized([step(states[name], change) for name, change in sums])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and totals."""
        return self._normalized([one[name] + other[name] for name in self.parts])

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

    def divide(self, states: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
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
        groups, numbers = drop_nulls(groups, values.to_series(0))
        count = pl.Series("count", count_rows(groups, height))
        numbers = numbers.cast(pl.Int128)
        if not self.wide:
            return [count, sum_by_group(groups, numbers, height)]
        limb = whole(TOTAL_LIMB)
        high = numbers // limb
        low = numbers - high * limb
        return [count, sum_by_group(groups, high, height), sum_by_group(groups, low, height)]

    def _normalized(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        """Return states of these parts, with ``low`` normalized to [0, 10**18)."""
        parts = dict(zip(self.parts, columns, strict=True))
        if self.wide:
            limb = whole(TOTAL_LIMB)
            low = parts["low"].cast(pl.Int128)
            carry = low // limb
            parts["high"] += carry
            parts["low"] = (low - carry * limb).cast(pl.Int64)
        return pl.DataFrame(parts)


def two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded sum and the exact rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def add_doubles(
    high: Doubles, low: Doubles, other_high: Doubles, other_low: Doubles
) -> tuple[Doubles, Doubles]:
    """Return x + y of two doubles each, with an error of at most 2**-104 * (abs(x) + abs(y)).

    The first double of the result is the nearest to the sum of both.
    """
    high, error = two_sum(high, other_high)
    return two_sum(high, error + (low + other_low))


def exact_sums(groups: Counts, values: Doubles, height: int) -> Iterator[Doubles]:
    """Yield arrays of sums by group that together are the exact sums, the largest first.

    Each pass splits the values of a group at a bit so high that all sums of the upper parts are
    exact, and continues with the lower parts. Three passes are usual; the exponents of doubles
    allow 150 at most.

    Args:
        groups: Index of a value's group.
        values: Finite, below 2**984, fewer than 2**38.
        height: The number of groups.
    """
    largest = np.zeros(height)
    np.maximum.at(largest, groups, np.abs(values))
    room = (len(values) + 2).bit_length()
    exponent = np.frexp(largest)[1] + room
    while len(values):
        cut = np.ldexp(1.0, exponent)[groups]
        upper = (values + cut) - cut
        sums = np.bincount(groups, weights=upper, minlength=height)
        yield sums.astype(np.float64, copy=False)
        values = values - upper
        remaining = np.flatnonzero(values)
        groups, values = groups[remaining], values[remaining]
        exponent = exponent + (room - _MANTISSA_BITS)


class DoubleTotal(Signed):
    """The state that sums and averages of doubles share: counts, and a total of two doubles.

    After k changes and merges the error of the total is at most k * 2**-96 of the absolute values
    that ever entered or left, plus 2**-1035 for each such value below 2**-982, which the unit
    truncates. An emptied group is exactly empty again. NaN and infinities are counted separately,
    so they can leave as well. ``high`` and ``low`` are in units of `UNIT`.
    """

    result: FieldType

    def __init__(self) -> None:
        self.result = FieldType("double", optional=True)
        count, total = FieldType("long"), FieldType("double")
        self.parts = {"count": count, **dict.fromkeys(_SPECIAL, count), "high": total, "low": total}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Sum and average of one argument share their state."""
        return ("double total",)

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Add the values that enter, or subtract those that leave."""
        groups, numbers = drop_nulls(groups, values.to_series(0))
        height = states.height
        counts = {name: states[name].to_numpy() for name in ("count", *_SPECIAL)}
        counts["count"] = counts["count"] + sign * count_rows(groups, height)
        index, doubles = groups.to_numpy().astype(np.int64), numbers.cast(pl.Float64).to_numpy()
        finite = np.isfinite(doubles)
        if not finite.all():
            for name, is_special in _SPECIAL.items():
                special = np.bincount(index[is_special(doubles)], minlength=height)
                counts[name] = counts[name] + sign * special
            index, doubles = index[finite], doubles[finite]
        high, low, zero = np.zeros(height), np.zeros(height), np.zeros(height)
        for sums in exact_sums(index, doubles * (sign / UNIT), height):
            high, low = add_doubles(high, low, sums, zero)
        total = add_doubles(states["high"].to_numpy(), states["low"].to_numpy(), high, low)
        return self._states(counts, total)

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and totals."""
        counts = {name: (one[name] + other[name]).to_numpy() for name in ("count", *_SPECIAL)}
        return self._states(
            counts,
            add_doubles(
                *(frame[name].to_numpy() for frame in (one, other) for name in ("high", "low"))
            ),
        )

    def total(self, states: pl.DataFrame) -> Doubles:
        """Return the totals in units of `UNIT`, with NaN and infinities as IEEE adds them."""
        nan, positive, negative = (states[name].to_numpy() > 0 for name in _SPECIAL)
        total = np.where(positive, np.inf, np.where(negative, -np.inf, states["high"].to_numpy()))
        return np.where(nan | (positive & negative), np.nan, total)

    def _states(self, counts: dict[str, Counts], total: tuple[Doubles, Doubles]) -> pl.DataFrame:
        finite = counts["count"] - sum(counts[name] for name in _SPECIAL)
        high, low = (np.where(finite == 0, 0.0, part) for part in total)
        return pl.DataFrame({**counts, "high": high, "low": low})
