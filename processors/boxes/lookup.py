"""Lookup: a join with at most one tuple of the right side, which adds fields to the left tuple.

The left tuple is matched with the whole identity of the right side (SQL: a join on the other
table's key; Kafka Streams: a stream-table join). So the output keeps the left tuple's identity,
fields and event time; results are added to these fields or replace some of them.
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
        """The fields of each side that must be equal, in the same order."""
        return self.on, self.others

    @property
    def computed(self) -> frozenset[str]:
        """The fields of its arc that it computes, even if the left side has the same names."""
        return frozenset(self.expressions)

    @property
    def looks_ahead(self) -> bool:
        """Whether a result may depend on later tuples: yes, the right tuple may be later."""
        return True

    def lineage(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the left tuples, and the right ones that match them."""
        return self._inputs_of(results, inputs, all_matches=True)

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the left tuples, and the right ones that match them."""
        return self.lineage(results, *inputs)

    def _identity_in_pairs(self, place: int) -> dict[str, str]:
        """Return the identity of the left side, which a pair has; it has none of the right one."""
        return {name: name for name in self.arc.identity} if place == 0 else {}

    def is_linear(self, linear: Collection[str], changing: Collection[str]) -> bool:
        """Whether it is linear within a loop: the right side does not change between rounds."""
        if self.shared is not None:
            return super().is_linear(linear, changing)
        left, right = (side.arc.name for side in self.sides)
        return left in linear and right not in changing

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        left, right = self.sides
        return {
            "lookup": {left.alias: left.arc.name, right.alias: right.arc.name},
            "on": dict(zip(self.on, self.others, strict=True)),
            "how": "left" if self.is_left else "inner",
            "fields": {name: expression.text for name, expression in self.expressions.items()},
            "inputs": list(self.inputs),
        }

    def _copied_field(self, name: str) -> pl.Expr:
        """Return a field of a pair that no expression computes: the left tuple's."""
        return pl.col(self.sides[0].column(name)).alias(name)
