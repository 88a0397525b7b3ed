"""Map: keeps the fields and adds or replaces some by expressions.

Stateless: both sides are computed, and a revision goes out if they differ (Borealis 3.2).
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

    def recompute(self, tuples: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        new = [
            expression.evaluate(tuples).alias(name) for name, expression in self.expressions.items()
        ]
        return tuples.with_columns(new).select(list(self.arc.fields))

    def revise(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        op = revisions["op"]
        before = self.recompute(frames.side(revisions, frames.BEFORE, self.read), 0)
        after = self.recompute(frames.side(revisions, frames.AFTER, self.read), 0)
        return frames.between(before, op != frames.INSERT, after, op != frames.DELETE)
