"""Map: keeps the fields and adds or replaces some by expressions.

Stateless: both sides are computed, and a revision goes out if they differ (Borealis 3.2). It may
replace the event time; a tuple that it gives none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.answers import Failures, Live, Outcome, Refused, failed, without
from errata.processors.expressions.expression import Expression
from errata.processors.expressions.opaque import Call
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


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

    @property
    def is_opaque(self) -> bool:
        """Whether it calls a user's functions, which may leave any tuple out."""
        return any(isinstance(expression, Call) for expression in self.expressions.values())

    def _made(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, Failures]:
        """Return what it makes of tuples, which of these are there, and why one failed, by row."""
        new, failures = [], dict[int, str]()
        for name, expression in self.expressions.items():
            values, failed_here = expression.judge(tuples)
            new.append(values.alias(name))
            failures = {**failed_here, **failures}
        made = tuples.with_columns(new).select(list(self.arc.fields))
        there = without(failures, tuples.height)
        if self.moves:
            there &= made[self.arc.event_time].is_not_null()
        return made, there, failures

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        return self.applied(*inputs)[0]

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return that, and what a user's function fails for."""
        (tuples,) = inputs
        made, there, failures = self._made(tuples)
        refused = failed(self.input, tuples, failures)
        return (made if there.all() else made.filter(there)), refused

    def revise(self, *inputs: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        return self.outcome(*inputs).revisions

    def outcome(self, *inputs: pl.DataFrame) -> Outcome:
        """Return those, and what a user's function fails for of what enters."""
        (revisions,) = inputs
        had, has = revisions["op"] != frames.INSERT, revisions["op"] != frames.DELETE
        entering = frames.side(revisions, frames.AFTER, self.read)
        before, left, _ = self._made(frames.side(revisions, frames.BEFORE, self.read))
        after, made, failures = self._made(entering)
        refused = {row: why for row, why in failures.items() if has[row]}
        return Outcome(
            Live(),
            frames.between(before, had & left, after, has & made),
            refused=failed(self.input, entering, refused),
        )
