"""Map: keeps the fields and adds or replaces some by expressions.

Stateless: both sides are computed, and a revision goes out if they differ (Borealis 3.2). It may
replace the event time; a tuple that it gives none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from processors.expressions.expression import Expression
from schemas import revisions as frames
from schemas.arc import Arc


@dataclass(frozen=True)
class Map:
    """A map box.

    Args:
        arc: The arc it writes.
        input: Name of the arc it reads.
        expressions: Expression over the input's fields by name of the field it gives.
        read: Names of the input's fields.
    """

    arc: Arc
    input: str
    expressions: Mapping[str, Expression]
    read: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads."""
        return (self.input,)

    @property
    def moves(self) -> bool:
        """Whether it replaces the event time."""
        return self.arc.event_time in self.expressions

    def _made(self, tuples: pl.DataFrame) -> pl.DataFrame:
        new = [
            expression.evaluate(tuples).alias(name) for name, expression in self.expressions.items()
        ]
        return tuples.with_columns(new).select(list(self.arc.fields))

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        (tuples,) = inputs
        made = self._made(tuples)
        return made.filter(made[self.arc.event_time].is_not_null()) if self.moves else made

    def revise(self, *inputs: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        (revisions,) = inputs
        op = revisions["op"]
        before = self._made(frames.side(revisions, frames.BEFORE, self.read))
        after = self._made(frames.side(revisions, frames.AFTER, self.read))
        had, has = op != frames.INSERT, op != frames.DELETE
        if self.moves:
            had &= before[self.arc.event_time].is_not_null()
            has &= after[self.arc.event_time].is_not_null()
        return frames.between(before, had, after, has)
