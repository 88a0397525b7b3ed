"""Map: keeps the fields and adds or replaces some by expressions.

It is stateless: it computes both sides of a revision and emits one if they differ (Borealis 3.2).
It may replace the event time; a tuple whose new event time is null is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
from errata.processors.expressions.opaque import Call
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Map(Stateless):
    """A map box.

    Args:
        arc: The arc it writes.
        input: Name of the arc it reads.
        expressions: Expressions over the input's fields, by name of the computed field.
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
    def moves_event_time(self) -> bool:
        """Whether it replaces the event time."""
        return self.arc.event_time in self.expressions

    @property
    def computed(self) -> frozenset[str]:
        """The fields that it adds or replaces."""
        return frozenset(self.expressions)

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        texts = {name: expression.text for name, expression in self.expressions.items()}
        return {"map": texts, "input": self.input}

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why results of an upstream aggregate can't be revised from its output."""
        if self.moves_event_time:
            return f"map {self.arc.name!r} below it replaces the event time of its results"
        if self.is_opaque:
            calls = "calls a Python function, which may leave results out"
            return f"map {self.arc.name!r} below it {calls}"
        return None

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: of fields that it keeps or copies, those of its input."""
        (known,) = above
        computed = known.computed(self.expressions)
        if self.is_opaque:  # a function may leave tuples out
            return self._unbounded
        if computed.reads([self.arc.event_time, *self.arc.partition_by]):
            return self._unbounded
        kept = {n: b for n, b in known.fields.items() if n not in self.expressions}
        return Bounds({**kept, **computed.fields})

    is_tuple_wise = True
    runs_before_spark = True

    @property
    def is_opaque(self) -> bool:
        """Whether it calls a user's functions, which may leave any tuple out."""
        return any(isinstance(expression, Call) for expression in self.expressions.values())

    def _evaluated(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, Failures]:
        """Return the output tuples, whether each one is kept, and by row why one failed."""
        computed, failures = [], dict[int, str]()
        for name, expression in self.expressions.items():
            values, failed_rows = expression.evaluate_with_failures(tuples)
            computed.append(values.alias(name))
            failures = {**failed_rows, **failures}
        results = by_column.pick(by_column.beside(tuples, *computed), self.arc.fields)
        kept = without_failures(failures, tuples.height)
        if self.moves_event_time:
            kept &= results[self.arc.event_time].is_not_null()
        return results, kept, failures

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the output for a whole collection, and what users' functions fail for."""
        (tuples,) = inputs
        results, kept, failures = self._evaluated(tuples)
        refused = dead_letters_for(self.input, tuples, failures)
        return by_column.kept(results, kept), refused

    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return the revisions of the output, and what users' functions fail for."""
        (changes,) = revisions
        existed, exists = changes["op"] != frames.INSERT, changes["op"] != frames.DELETE
        entering = frames.side(changes, frames.AFTER, self.read)
        before, kept_before, _ = self._evaluated(frames.side(changes, frames.BEFORE, self.read))
        after, kept_after, failures = self._evaluated(entering)
        refused = {row: why for row, why in failures.items() if exists[row]}
        return Outcome(
            Live(),
            frames.between(before, existed & kept_before, after, exists & kept_after),
            refused=dead_letters_for(self.input, entering, refused),
        )
