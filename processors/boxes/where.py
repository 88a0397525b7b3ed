"""Filter: passes the tuples for which a predicate is true; an output of a route is one too.

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
        earlier: Predicates of the outputs before it, if it is one of a route: tuples for which one
            of them is true are not passed.
    """

    arc: Arc
    input: str
    predicate: Expression
    earlier: tuple[Expression, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads."""
        return (self.input,)

    @property
    def columns(self) -> frozenset[str]:
        """The fields that it judges by."""
        return self.predicate.columns.union(*(other.columns for other in self.earlier))

    def passes(self, tuples: pl.DataFrame) -> pl.Series:
        """Return for each tuple whether it passes; never null."""
        passed = self.predicate.evaluate(tuples).fill_null(False)
        for other in self.earlier:
            passed &= ~other.evaluate(tuples).fill_null(False)
        return passed

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        (tuples,) = inputs
        return tuples.filter(self.passes(tuples))

    def revise(self, *inputs: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        (revisions,) = inputs
        names = list(self.arc.fields)
        before = frames.side(revisions, frames.BEFORE, names)
        after = frames.side(revisions, frames.AFTER, names)
        op = revisions["op"]
        left, right = (
            self.passes(tuples) & (op != absent)
            for tuples, absent in ((before, frames.INSERT), (after, frames.DELETE))
        )
        return frames.between(before, left, after, right)
