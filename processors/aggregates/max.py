"""``max(x)`` of any type."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import polars as pl

from processors.aggregates.compensating import Compensating
from processors.aggregates.grouping import counted, present
from schemas.fields import FieldType


class Max(Compensating):
    """The largest value, with how many rows hold it; null for no value.

    Text is ordered by its UTF-8 bytes, false is below true, NaN is the largest double, -0.0 is 0.0.

    While another row holds it, the largest may leave. When the last one has left, what is below it
    is not known: the value stays as an upper bound with no ties, and the state is not exact until a
    value not below it enters or the group is empty. A row above the largest, or equal to a mere
    bound, can't leave, since it is not there.

    Args:
        argument: Any type.

    Example:
        >>> largest = Max(FieldType("long"))
        >>> groups = pl.Series([0, 0], dtype=pl.UInt32)
        >>> states = largest.accumulate(largest.init(1), groups, pl.DataFrame({"x": [5, 9]}))
        >>> states = largest.compensate(states, groups[:1], pl.DataFrame({"x": [9]}))
        >>> largest.exact(states).to_list()
        [False]
    """

    def __init__(self, argument: FieldType) -> None:
        self.result = argument.nullable
        self.parts = {
            "count": FieldType("long"),
            "ties": FieldType("long"),
            "largest": argument.nullable,
        }

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Only maxima share their state."""
        return ("max",)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Raise the largest, or count its ties."""
        groups, entering = self._ordered(groups, values)
        was = states["largest"]
        largest = self._raised(was, groups, entering)
        # Where there was none its ties are 0; a null comparison counts as false.
        return pl.DataFrame(
            [
                states["count"] + pl.Series(counted(groups, states.height)),
                states["ties"].set(was != largest, 0) + self._ties(groups, entering, largest),
                largest,
            ]
        )

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Count ties down; with the last one the state is not exact."""
        groups, leaving = self._ordered(groups, values)
        largest = states["largest"]
        count = states["count"] - pl.Series(counted(groups, states.height))
        return pl.DataFrame(
            [
                count,
                states["ties"] - self._ties(groups, leaving, largest),
                largest.set(count == 0, None),
            ]
        )

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Keep the larger value with its ties.

        A bound that is the larger one leaves the result not exact; below or at a value that is
        there it does no harm.
        """
        left, right = one["largest"], other["largest"]
        largest = left.zip_with((left >= right) | right.is_null(), right)
        return pl.DataFrame(
            [
                one["count"] + other["count"],
                one["ties"].set(left != largest, 0) + other["ties"].set(right != largest, 0),
                largest,
            ]
        )

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether a row still holds the largest value, or there is none."""
        return (states["ties"] > 0) | (states["count"] == 0)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the largest values; upper bounds where not exact."""
        return states["largest"]

    def _ordered(self, groups: pl.Series, values: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        groups, column = present(groups, values.to_series(0))
        if self.result.kind == "double":
            # Turns -0.0 into 0.0, so that equal values look the same; polars would skip adding 0.
            column = pl.Series(column.to_numpy() + 0.0)
        return groups, column.alias("largest")

    @staticmethod
    def _ties(groups: pl.Series, values: pl.Series, largest: pl.Series) -> pl.Series:
        """Return how many values of each group equal its largest."""
        tied = groups.filter(values == largest.gather(groups))
        return pl.Series(counted(tied, len(largest)))

    def _raised(self, largest: pl.Series, groups: pl.Series, values: pl.Series) -> pl.Series:
        """Return the largest of each group's old largest and its values."""
        index = pl.Series(np.arange(len(largest), dtype=np.uint32))
        # The old ones come first, one of each group: groups kept in the order of appearance are
        # then the states in their own order. A plain maximum of doubles passes over NaN.
        column = pl.col("largest")
        maximum = column.nan_max() if self.result.kind == "double" else column.max()
        return (
            pl.DataFrame([index.append(groups).alias("group"), pl.concat([largest, values])])
            .group_by("group", maintain_order=True)
            .agg(maximum)
            .to_series(1)
        )
