"""Filter: passes the tuples for which a predicate is true; an output of a route is one too.

A stateless box revises from the record alone (Borealis 3.2): it judges both sides, so a replace
becomes a delete, an insert or nothing when only one side, or none, passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.answers import Failures, Live, Outcome, Refused, failed, without
from errata.processors.expressions.expression import Expression
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


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
        return self._judged(tuples)[0]

    def _judged(self, tuples: pl.DataFrame) -> tuple[pl.Series, Failures]:
        """Return for each tuple whether it passes, and by row why the predicate failed.

        A tuple that an earlier output of a route takes, or fails for, is not asked about here.
        """
        passed, failures = self.predicate.judge(tuples)
        passed = passed.fill_null(False)
        for other in self.earlier:
            taken, failed_before = other.judge(tuples)
            left = ~taken.fill_null(False) & without(failed_before, tuples.height)
            passed &= left
            failures = {row: why for row, why in failures.items() if left[row]}
        return passed, failures

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        return self.applied(*inputs)[0]

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return that, and what a user's function fails for."""
        (tuples,) = inputs
        passed, failures = self._judged(tuples)
        return tuples.filter(passed), failed(self.input, tuples, failures)

    def revise(self, *inputs: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        return self.outcome(*inputs).revisions

    def outcome(self, *inputs: pl.DataFrame) -> Outcome:
        """Return those, and what a user's function fails for of what enters."""
        (revisions,) = inputs
        names = list(self.arc.fields)
        before = frames.side(revisions, frames.BEFORE, names)
        after = frames.side(revisions, frames.AFTER, names)
        had, has = revisions["op"] != frames.INSERT, revisions["op"] != frames.DELETE
        passed, failures = self._judged(after)
        made = frames.between(before, self.passes(before) & had, after, passed & has)
        entering = {row: why for row, why in failures.items() if has[row]}
        return Outcome(
            Live(),
            made,
            {"judged": revisions.height, "passed": made.height},
            failed(self.input, after, entering),
        )
