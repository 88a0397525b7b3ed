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
    failed,
    without,
)
from errata.processors.expressions.expression import Expression
from errata.processors.expressions.opaque import Call
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

    is_tuple_wise = True
    runs_before_spark = True

    @property
    def is_opaque(self) -> bool:
        """Whether it calls a user's functions, which may leave any tuple out."""
        return any(isinstance(expression, Call) for expression in self.expressions.values())

    def _made(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, Failures]:
        """Return the output tuples, whether each one is kept, and by row why one failed."""
        new, failures = [], dict[int, str]()
        for name, expression in self.expressions.items():
            values, failed_here = expression.judge(tuples)
            new.append(values.alias(name))
            failures = {**failed_here, **failures}
        made = tuples.with_columns(new).select(list(self.arc.fields))
        there = without(failures, tuples.height)
        if self.moves_event_time:
            there &= made[self.arc.event_time].is_not_null()
        return made, there, failures

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the output for a whole collection, and what users' functions fail for."""
        (tuples,) = inputs
        made, there, failures = self._made(tuples)
        refused = failed(self.input, tuples, failures)
        return (made if there.all() else made.filter(there)), refused

    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return the revisions of the output, and what users' functions fail for."""
        (some,) = revisions
        had, has = some["op"] != frames.INSERT, some["op"] != frames.DELETE
        entering = frames.side(some, frames.AFTER, self.read)
        before, left, _ = self._made(frames.side(some, frames.BEFORE, self.read))
        after, made, failures = self._made(entering)
        refused = {row: why for row, why in failures.items() if has[row]}
        return Outcome(
            Live(),
            frames.between(before, had & left, after, has & made),
            refused=failed(self.input, entering, refused),
        )
