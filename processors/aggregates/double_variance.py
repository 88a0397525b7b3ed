"""Variance and standard deviation of doubles, from totals that do not drift."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import polars as pl

from errata.processors.aggregates.double_moments import DoubleMoments
from errata.schemas.fields import FieldType


class DoubleVariance(DoubleMoments):
    """Variance or standard deviation of a double or float.

    The result is computed from sums with the error bound of `DoubleMoments`, 2**-130 of the mean
    square, and then rounded in two steps, three for a root.

    It is null for a sample of less than two values, and for a population without values. With a NaN
    or an infinity it is NaN. NaN and infinities can leave again, and so can a value from
    `TOO_LARGE` on, which counts as an infinity.

    Args:
        sample: Whether to divide by count - 1 rather than count.
        root: Whether to return the standard deviation.

    Example:
        >>> spread = DoubleVariance(sample=True, root=False)
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [1.0, 3.0, 1e17]})
        >>> states = spread.accumulate(spread.init(1), groups, rows)
        >>> spread.emit(spread.compensate(states, groups[:1], rows[2:]))[0]
        2.0
    """

    def __init__(self, *, sample: bool, root: bool) -> None:
        super().__init__([FieldType("double")], {"total": (0,), "square": (0, 0)})
        self.sample, self.root = sample, root

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The four functions of one argument share their state."""
        return ("double variance",)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the variances, or their roots."""
        count, special = (states[name].to_numpy() for name in ("count", "special"))
        about = np.maximum(self.centred(states, "square", "total", "total"), 0.0)
        rows = count.astype(np.float64)
        divisor = np.maximum(rows * (rows - self.sample), 1.0)
        values = np.where(special > 0, np.nan, about / divisor)
        roots = np.sqrt(values) if self.root else values
        return pl.Series(roots).set(states["count"] < 1 + self.sample, None)
