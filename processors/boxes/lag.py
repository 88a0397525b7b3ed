"""Lag: beside each tuple what the one before it in its group holds (SQL's ``lag``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from processors.boxes.ordered import Line, Ordered
from processors.expressions.expression import Expression
from schemas.arc import Arc


@dataclass(frozen=True, kw_only=True)
class Lag(Ordered):
    """A lag box: ``lag(expression, offset) OVER (PARTITION BY by ORDER BY event time, identity)``.

    What it gives is a function of the content alone: a tuple keeps its identity and its event time,
    and is revised when it is, or when another one comes to stand before it.

    Args:
        arc: The arc it writes: the fields of its input, and the results.
        input: The arc it reads.
        by: Group fields.
        offset: How many tuples before each the other one is.
        expressions: By name of the result, over the other tuple; null where there is none.
    """

    arc: Arc
    input: Arc
    by: tuple[str, ...]
    offset: int
    expressions: Mapping[str, Expression]

    @property
    def reach(self) -> int:
        """How many tuples before one are looked at for it."""
        return self.offset

    @property
    def looked_at(self) -> list[str]:
        """The fields of its input that it keeps."""
        return [name for name in self.arc.fields if name not in self.expressions]

    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""
        return {
            "lag": {name: expression.text for name, expression in self.expressions.items()},
            "by": list(self.by),
            "offset": self.offset,
            "input": self.input.name,
        }

    def made(self, line: Line, *, wm: int) -> pl.DataFrame:
        """Return the known tuples that the one before them is known of, or known to be none."""
        has_one = pl.Series(line.place >= self.offset)
        results = [
            pl.when(has_one).then(expression.evaluate(line.tuples).shift(self.offset)).alias(name)
            for name, expression in self.expressions.items()
        ]
        whole = has_one | pl.Series(line.first == 0)
        return line.tuples.with_columns(results).filter(whole).select(list(self.arc.fields))
