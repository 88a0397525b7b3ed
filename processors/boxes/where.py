"""Filter: passes the tuples for which a predicate is true.

A stateless box revises from the record alone (Borealis 3.2): it judges both sides, so a replace
becomes a delete, an insert or nothing when only one side, or none, passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from processors.expressions.expression import Expression
from schemas import revisions as frames
from schemas.arc import Arc


@dataclass(frozen=True)
class Where:
    """A filter box.

    Args:
        arc: The arc it writes; same tuples as its input's.
        input: Name of the arc it reads.
        predicate: Boolean expression over the input's fields; null counts as false.
    """

    arc: Arc
    input: str
    predicate: Expression

    def recompute(self, tuples: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        return tuples.filter(self.predicate.evaluate(tuples).fill_null(False))

    def revise(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        names = list(self.arc.fields)
        before = frames.side(revisions, frames.BEFORE, names)
        after = frames.side(revisions, frames.AFTER, names)
        op = revisions["op"]
        kept = [
            self.predicate.evaluate(tuples).fill_null(False) & (op != absent)
            for tuples, absent in ((before, frames.INSERT), (after, frames.DELETE))
        ]
        return frames.between(before, kept[0], after, kept[1])
