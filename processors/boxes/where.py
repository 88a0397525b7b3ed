"""Filter: passes the tuples for which a predicate is true; an output of a route is a filter too.

A stateless box revises from the record alone (Borealis 3.2): it evaluates both sides, so a replace
becomes a delete, an insert or nothing if only one side, or none, passes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.base import (
    Failures,
    Live,
    Outcome,
    Refused,
    Stateless,
    dead_letters_for,
    without_failures,
)
from errata.processors.boxes.bounds import Bounds
from errata.processors.expressions.expression import Expression
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Where(Stateless):
    """A filter box.

    Args:
        arc: The arc it writes, with the same fields as its input.
        input: Name of the arc it reads.
        predicate: Boolean expression over the input's fields; null counts as false.
        earlier: For an output of a route, the predicates of the outputs before it: a tuple for
            which one of them is true does not pass.
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
    def filter(self) -> Where:
        """Itself."""
        return self

    @property
    def text(self) -> str:
        """Its predicate, as the user wrote it."""
        return self.predicate.text

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        earlier = {"unless": [e.text for e in self.earlier]} if self.earlier else {}
        return {"where": self.predicate.text, **earlier, "input": self.input}

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why stored results don't show what it dropped: it reads more than the identity."""
        if hidden_by := self.columns - set(identity):
            names = ", ".join(sorted(hidden_by))
            return (
                f"filter {self.arc.name!r} below it hides results by {names}, not by identity alone"
            )
        return None

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: those of its input, if what passes is certain."""
        (known,) = above
        return self._unbounded if known.reads(self.columns) else known

    is_tuple_wise = True
    runs_before_spark = True

    @property
    def columns(self) -> frozenset[str]:
        """The fields that its predicates read."""
        return self.predicate.columns.union(*(other.columns for other in self.earlier))

    def passes(self, tuples: pl.DataFrame) -> pl.Series:
        """Return for each tuple whether it passes; never null."""
        return self._evaluated(tuples)[0]

    def _evaluated(self, tuples: pl.DataFrame) -> tuple[pl.Series, Failures]:
        """Return for each tuple whether it passes, and by row why the predicate failed.

        A tuple that an earlier output of a route passes or fails for does not pass here, and its
        failures here are not reported.
        """
        passed, failures = self.predicate.evaluate_with_failures(tuples)
        passed = passed.fill_null(False)
        for other in self.earlier:
            taken, failed_before = other.evaluate_with_failures(tuples)
            rest = ~taken.fill_null(False) & without_failures(failed_before, tuples.height)
            passed &= rest
            failures = {row: why for row, why in failures.items() if rest[row]}
        return passed, failures

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the output for a whole collection, and what users' functions fail for."""
        (tuples,) = inputs
        passed, failures = self._evaluated(tuples)
        return by_column.kept(tuples, passed), dead_letters_for(self.input, tuples, failures)

    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return the revisions of the output, and what users' functions fail for."""
        (revised,) = revisions
        names = list(self.arc.fields)
        before = frames.side(revised, frames.BEFORE, names)
        after = frames.side(revised, frames.AFTER, names)
        existed, exists = revised["op"] != frames.INSERT, revised["op"] != frames.DELETE
        passed, failures = self._evaluated(after)
        changes = frames.between(before, self.passes(before) & existed, after, passed & exists)
        entering = {row: why for row, why in failures.items() if exists[row]}
        return Outcome(
            Live(),
            changes,
            {"judged": revised.height, "passed": changes.height},
            dead_letters_for(self.input, after, entering),
        )
