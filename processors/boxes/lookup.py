"""Lookup: a join with at most one tuple of the other side, which changes what is known of the left.

What is matched is the whole identity of the other side (SQL: a join on the other's key; Kafka
Streams: of a stream with a table). So a pair is still the left tuple: it has its identity, its
fields and its event time, and the results besides or in their place.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.join import Join


@dataclass(frozen=True)
class Lookup(Join):
    """A lookup box.

    Args:
        others: The fields of the right side that `on`, those of the left one, must be equal to.
    """

    others: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The fields of either side that must be equal, in the same order."""
        return self.on, self.others

    @property
    def computed(self) -> frozenset[str]:
        """The fields of its arc that are not the left side's, though they have their names."""
        return frozenset(self.expressions)

    @property
    def looks_ahead(self) -> bool:
        """Whether what it gives may come of tuples that happened later: those that are found."""
        return True

    def is_linear(self, linear: Collection[str], turning: Collection[str]) -> bool:
        """Whether each tuple that goes round does so for itself: the other side stands still."""
        if self.shared is not None:
            return super().is_linear(linear, turning)
        left, right = (side.arc.name for side in self.sides)
        return left in linear and right not in turning

    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""
        left, right = self.sides
        return {
            "lookup": {left.alias: left.arc.name, right.alias: right.arc.name},
            "on": dict(zip(self.on, self.others, strict=True)),
            "how": "left" if self.is_left else "inner",
            "fields": {name: expression.text for name, expression in self.expressions.items()},
            "inputs": list(self.inputs),
        }

    def _own(self, name: str) -> pl.Expr:
        """Return a field of a pair that no expression gives: the left tuple's."""
        return pl.col(self.sides[0].column(name)).alias(name)
