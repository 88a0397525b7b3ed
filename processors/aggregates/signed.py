"""Aggregate functions in which a row leaves in the same way as it entered, with opposite sign."""

from __future__ import annotations

from abc import abstractmethod

import polars as pl

from errata.processors.aggregates.compensating import Compensating


class Signed(Compensating):
    """A function with one change for rows that enter and rows that leave."""

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered."""
        return self.change(states, groups, values, sign=1)

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have left."""
        return self.change(states, groups, values, sign=-1)

    @abstractmethod
    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Return the states after rows have entered, sign 1, or left, sign -1.

        The other arguments are those of `Compensating.accumulate`.
        """
