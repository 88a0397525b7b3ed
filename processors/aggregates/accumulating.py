"""Aggregate functions that rows enter and never leave."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import polars as pl

from errata.processors.aggregates.compensating import Compensating, Part, part_types
from errata.schemas.fields import FieldType

LEFT = "__left"


class Accumulating(Compensating):
    """A function that can't compensate, which says so of the groups that rows have left.

    No result keeps the part ``__left``: what is emitted is exact.

    Args:
        function: One without a `compensate` of use.
    """

    result: FieldType
    parts: Mapping[str, Part]

    def __init__(self, function: Compensating) -> None:
        self.function = function
        self.arguments = function.arguments
        self.result = FieldType.parse(function.result)
        self.parts = {**part_types(function), LEFT: FieldType("boolean")}

    @property
    def kept(self) -> Sequence[str]:
        """What the function keeps."""
        return self.function.kept

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """That of the function."""
        return self.function.state_key

    def init(self, count: int) -> pl.DataFrame:
        """Return the states of groups without content."""
        return self._with(self.function.init(count), pl.Series([False]).new_from_index(0, count))

    def recall(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return the states of stored results, which no row has left."""
        left = pl.Series([False]).new_from_index(0, kept.height)
        return self._with(self.function.recall(kept), left)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered."""
        moved = self.function.accumulate(states.drop(LEFT), groups, values)
        return self._with(moved, states[LEFT])

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states, those marked that rows have left."""
        return states.with_columns(states[LEFT].clone().scatter(groups.unique(), True))

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of united contents."""
        merged = self.function.merge(one.drop(LEFT), other.drop(LEFT))
        return self._with(merged, one[LEFT] | other[LEFT])

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether no row has left it."""
        return ~states[LEFT] & self.function.exact(states.drop(LEFT))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the results; where not exact they mean nothing."""
        return self.function.emit(states.drop(LEFT))

    @staticmethod
    def _with(states: pl.DataFrame, left: pl.Series) -> pl.DataFrame:
        return states.with_columns(left.alias(LEFT))
