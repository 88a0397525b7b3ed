"""Lag: adds to each tuple values of an earlier tuple in its group (SQL's ``lag``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.base import WHY
from errata.processors.boxes.bounds import Bounds
from errata.processors.boxes.ordered import FIRST, Ordered, OrderedGroups
from errata.processors.expressions.expression import Expression
from errata.schemas.arc import Arc


@dataclass(frozen=True, kw_only=True)
class Lag(Ordered):
    """A lag box: ``lag(expression, offset) OVER (PARTITION BY by ORDER BY event time, identity)``.

    The output is a function of the content alone. A tuple keeps its identity and its event time. It
    is revised when its input tuple is, or when the tuple `offset` before it changes.

    Args:
        arc: The arc it writes: the fields of its input, and the results.
        input: The arc it reads.
        by: Group fields.
        offset: How many tuples before each one the earlier tuple is.
        expressions: Over the earlier tuple, by name of the result; null if there is no such tuple.
    """

    arc: Arc
    input: Arc
    by: tuple[str, ...]
    offset: int
    expressions: Mapping[str, Expression]

    @property
    def reach(self) -> int:
        """How many preceding tuples a result reads."""
        return self.offset

    @property
    def columns_read(self) -> list[str]:
        """The fields of its input that it keeps."""
        return [name for name in self.arc.fields if name not in self.expressions]

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {
            "lag": {name: expression.text for name, expression in self.expressions.items()},
            "by": list(self.by),
            "offset": self.offset,
            "input": self.input.name,
        }

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: also an earlier value has that of its field."""
        (known,) = above
        if known.reads(self.by):
            return self._unbounded
        kept = known.only(self.columns_read)
        return Bounds({**kept.fields, **known.computed(self.expressions).fields})

    def due_results(self, ordered: OrderedGroups, *, wm: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the known tuples whose earlier tuple is known, or known not to exist.

        Tuples for whose earlier tuple a user's function fails are left out.
        """
        has_earlier = pl.Series(ordered.position >= self.offset)
        is_determined = has_earlier | pl.Series(ordered.first == 0)
        results, failures = [], dict[int, str]()
        for name, expression in self.expressions.items():
            values, failed_rows = expression.evaluate_with_failures(ordered.tuples)
            results.append(pl.when(has_earlier).then(values.shift(self.offset)).alias(name))
            failures = {**failed_rows, **failures}
        reasons = pl.repeat(None, ordered.tuples.height, dtype=pl.String, eager=True)
        if failures:
            reasons = reasons.scatter(list(failures), list(failures.values()))
        results.append(pl.when(has_earlier).then(reasons.shift(self.offset)).alias(WHY))
        read = {name for expression in self.expressions.values() for name in expression.columns}
        earlier = [pl.col(name).shift(self.offset).alias(f"@{name}") for name in sorted(read)]
        computed = ordered.tuples.with_columns(results).with_columns(earlier).filter(is_determined)
        succeeded, names = computed[WHY].is_null(), list(self.arc.fields)
        return computed.filter(succeeded).select(names), computed.filter(~succeeded).drop(FIRST)
