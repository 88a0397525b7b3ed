"""Variance and standard deviation of doubles, from totals that do not drift."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import polars as pl

from processors.aggregates.compensating import Compensating
from processors.aggregates.double_total import Doubles, exact_sums, two_sum
from processors.aggregates.grouping import Counts, counted, present
from schemas.fields import FieldType

TOO_LARGE = 2.0**460
"""From here on squares could overflow; such a value counts as infinite."""

_SPLITTER = 2.0**27 + 1
_TOTAL = ("high", "middle", "low")
_SQUARES = ("square_high", "square_middle", "square_low")


def two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded product and exactly what rounding lost (Dekker), below 2**996."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, lost


def expanded(terms: Iterable[Doubles]) -> list[Doubles]:
    """Return the sum of some doubles as the sum of three, the first the nearest to it.

    Each sweep moves what rounding lost one place on, as in Ogita, Rump and Oishi, *Accurate sum and
    dot product* (2005). What is left behind the third one is added to it.
    """
    parts = list(terms)
    for _ in range(3):
        for place in range(len(parts) - 1, 0, -1):
            parts[place - 1], parts[place] = two_sum(parts[place - 1], parts[place])
    return [*parts[:2], sum(reversed(parts[2:]), np.zeros(1))]


def _split(values: Doubles) -> tuple[Doubles, Doubles]:
    """Return the upper 26 bits and the others."""
    scaled = values * _SPLITTER
    high = scaled - (scaled - values)
    return high, values - high


class DoubleVariance(Compensating):
    """Variance or standard deviation of a double or float.

    The state is a total and a sum of squares, each the sum of three doubles; a square is cut in two
    without loss. After k changes and merges each is off by at most k * 2**-140 of the absolute
    values, or squares, of all that ever entered or left, plus 2**-1070 for each value below
    2**-460. The result is worked out from them to 2**-130 of the mean square and then rounded in
    two steps, three for a root.

    A sample's is null for less than two values, a population's for none. With a NaN or an infinity
    it is NaN; they can leave again, and so can a value from `TOO_LARGE` on, which counts as one.

    Args:
        sample: Whether to divide by count - 1 rather than count.
        root: Whether to give the standard deviation.

    Example:
        >>> spread = DoubleVariance(sample=True, root=False)
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [1.0, 3.0, 1e17]})
        >>> states = spread.accumulate(spread.init(1), groups, rows)
        >>> spread.emit(spread.compensate(states, groups[:1], rows[2:]))[0]
        2.0
    """

    result: FieldType

    def __init__(self, *, sample: bool, root: bool) -> None:
        self.sample, self.root = sample, root
        self.result = FieldType("double", optional=True)
        count, total = FieldType("long"), FieldType("double")
        self.parts = {
            "count": count,
            "special": count,
            **dict.fromkeys((*_TOTAL, *_SQUARES), total),
        }

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The four functions of one argument share their state."""
        return ("double variance",)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Add the values that enter, and their squares."""
        return self._change(states, groups, values, sign=1)

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Subtract the values that leave, and their squares."""
        return self._change(states, groups, values, sign=-1)

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts, totals and sums of squares."""
        count, special = ((one[name] + other[name]).to_numpy() for name in ("count", "special"))
        total, squares = (
            expanded(frame[name].to_numpy() for frame in (one, other) for name in names)
            for names in (_TOTAL, _SQUARES)
        )
        return self._states(count, special, total, squares)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the variances, or their roots."""
        count, special, *parts = (states[name].to_numpy() for name in self.parts)
        rows = count.astype(np.float64)
        terms = [term for square in parts[3:] for term in two_product(square, rows)]
        for one, left in enumerate(parts[:3]):
            for other, right in enumerate(parts[: one + 1]):
                terms += two_product(left, -right if one == other else -2.0 * right)
        # count * squares - total ** 2, all of it in the end in one double.
        about = np.maximum(expanded(terms)[0], 0.0)
        divisor = np.maximum(rows * (rows - self.sample), 1.0)
        values = np.where(special > 0, np.nan, about / divisor)
        roots = np.sqrt(values) if self.root else values
        return pl.Series(roots).set(states["count"] < 1 + self.sample, None)

    def _change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        groups, numbers = present(groups, values.to_series(0))
        height = states.height
        count, special, *totals = (states[name].to_numpy() for name in self.parts)
        count = count + sign * counted(groups, height)
        index, doubles = groups.to_numpy().astype(np.int64), numbers.cast(pl.Float64).to_numpy()
        usual = np.abs(doubles) < TOO_LARGE
        if not usual.all():
            special = special + sign * np.bincount(index[~usual], minlength=height)
            index, doubles = index[usual], doubles[usual]
        square, lost = two_product(doubles, doubles)
        return self._states(
            count,
            special,
            _with(totals[:3], index, sign * doubles),
            _with(totals[3:], np.tile(index, 2), sign * np.concatenate([square, lost])),
        )

    def _states(
        self,
        count: Counts,
        special: Counts,
        total: Sequence[Doubles],
        squares: Sequence[Doubles],
    ) -> pl.DataFrame:
        # What is left of nothing is nothing, whatever bits were lost.
        columns = [np.where(count == special, 0.0, part) for part in (*total, *squares)]
        return pl.DataFrame(dict(zip(self.parts, (count, special, *columns), strict=True)))


def _with(total: list[Doubles], groups: Counts, values: Doubles) -> list[Doubles]:
    """Return a total of three doubles and the exact sum of some values, together."""
    return expanded([*total, *exact_sums(groups, values, len(total[0]))])
