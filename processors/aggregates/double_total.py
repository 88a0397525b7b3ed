"""Totals of doubles with an error term, so that a value that leaves takes its rounding with it.

A plain running sum drifts: 1, 2 and 1e17 enter, 1e17 leaves, and 1 and 2 are lost. Here a total is
the unevaluated sum of two doubles, added as in Dekker, *A floating-point technique for extending
the available precision* (1971), and a batch is summed without error by splitting values at a common
bit, as in Rump, Ogita and Oishi, *Accurate floating-point summation* (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.grouping import Counts, counted, present
from errata.processors.aggregates.signed import Signed
from errata.schemas.fields import FieldType

UNIT = 2.0**40
"""The unit of totals, chosen so that 10**12 of the largest double don't overflow."""

Doubles: TypeAlias = npt.NDArray[np.float64]

_MANTISSA_BITS = 53
_SPECIAL: Mapping[str, Callable[[Doubles], npt.NDArray[np.bool_]]] = {
    "nan": np.isnan,
    "positive": np.isposinf,
    "negative": np.isneginf,
}


def two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded sum and the exact rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def added(
    high: Doubles, low: Doubles, other_high: Doubles, other_low: Doubles
) -> tuple[Doubles, Doubles]:
    """Return x + y of two doubles each, with an error of at most 2**-104 * (abs(x) + abs(y)).

    The first double of the result is the nearest to the sum of both.
    """
    high, lost = two_sum(high, other_high)
    return two_sum(high, lost + (low + other_low))


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
        above = (values + cut) - cut
        sums = np.bincount(groups, weights=above, minlength=height)
        yield sums.astype(np.float64, copy=False)
        values = values - above
        left = np.flatnonzero(values)
        groups, values = groups[left], values[left]
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
        groups, numbers = present(groups, values.to_series(0))
        height = states.height
        counts = {name: states[name].to_numpy() for name in ("count", *_SPECIAL)}
        counts["count"] = counts["count"] + sign * counted(groups, height)
        index, doubles = groups.to_numpy().astype(np.int64), numbers.cast(pl.Float64).to_numpy()
        finite = np.isfinite(doubles)
        if not finite.all():
            for name, is_special in _SPECIAL.items():
                found = np.bincount(index[is_special(doubles)], minlength=height)
                counts[name] = counts[name] + sign * found
            index, doubles = index[finite], doubles[finite]
        high, low, zero = np.zeros(height), np.zeros(height), np.zeros(height)
        for sums in exact_sums(index, doubles * (sign / UNIT), height):
            high, low = added(high, low, sums, zero)
        total = added(states["high"].to_numpy(), states["low"].to_numpy(), high, low)
        return self._states(counts, total)

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and totals."""
        counts = {name: (one[name] + other[name]).to_numpy() for name in ("count", *_SPECIAL)}
        return self._states(
            counts,
            added(*(frame[name].to_numpy() for frame in (one, other) for name in ("high", "low"))),
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
