"""Forward: the same tuples after an exchange (``docs/protocol.md#2-revisions``).

To repartition, each task writes its revisions into the exchange of the partition that a tuple
belongs to. The task that owns the partition nets them by identity per epoch and is the only writer
of the arc.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.base import Live, Outcome, Refused, Stateless
from errata.processors.boxes.bounds import Bounds
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Forward(Stateless):
    """A box that changes nothing.

    Args:
        arc: The arc it writes: its input's tuples, partitioned by other fields.
        input: Name of the arc it reads.
    """

    arc: Arc
    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads."""
        return (self.input,)

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: those of its input."""
        return above[0]

    is_tuple_wise = True

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {"forward": self.input}

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why a task can't request its results there: they are in other partitions."""
        return f"{self.arc.name!r} below it repartitions its results"

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return the tuples unchanged."""
        return inputs[0], ()

    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return the revisions unchanged."""
        return Outcome(Live(), revisions[0])
