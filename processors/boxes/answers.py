"""What a box keeps between epochs, asks for within one, and gives."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import polars as pl

INPUTS, RESULTS = "inputs", "results"

REFUSED_BY_BOX, FUNCTION_RAISED = "refused by box", "function raised"
"""Kinds of refusal, for counting."""

Failures = Mapping[int, str]
"""Why a user's function failed, by the row that it failed for."""

WHY = "@why"
"""The column of that, beside tuples that are left out."""


@dataclass(frozen=True)
class Live:
    """What a box keeps between epochs.

    Args:
        states: Of the open windows of an aggregate; of all windows if it is resident.
        tuples: The whole input of an aggregate that is resident, else none.
    """

    states: pl.DataFrame = field(default_factory=pl.DataFrame)
    tuples: pl.DataFrame | None = None

    @property
    def height(self) -> int:
        """How many rows are kept."""
        return self.states.height + (0 if self.tuples is None else self.tuples.height)


@dataclass(frozen=True)
class Need:
    """What a box lacks: inputs, or results that it emitted.

    Args:
        kind: ``inputs`` (as of the epoch in hand) or ``results`` (as emitted before it).
        ranges: Group fields as the first input has them, ``from_ms`` and ``to_ms`` (half-open
            event times). The answers may hold more.
    """

    kind: str
    ranges: pl.DataFrame


@dataclass(frozen=True)
class Refused:
    """Tuples that entered a box in an epoch and that it can give nothing for.

    Args:
        arc: Name of the arc that they are tuples of.
        tuples: With the arc's fields, or its identity alone where there is no more.
        reasons: Why, for each of them.
        kind: What all of them have in common.
    """

    arc: str
    tuples: pl.DataFrame
    reasons: Sequence[str]
    kind: str = REFUSED_BY_BOX

    def only(self, rows: pl.Series) -> Refused:
        """Return some of the tuples, by index."""
        reasons = [self.reasons[row] for row in rows]
        return replace(self, tuples=self.tuples[rows], reasons=reasons)


class Recomputing(Protocol):
    """A box."""

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what it makes of whole collections at watermark `wm`."""


@runtime_checkable
class Refusing(Protocol):
    """A box that may refuse tuples."""

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return what it makes of whole collections at watermark `wm`, and what it refuses."""


def applied(
    box: Recomputing, *inputs: pl.DataFrame, wm: int = 0
) -> tuple[pl.DataFrame, Sequence[Refused]]:
    """Return what a box makes of whole collections, and what it refuses of them."""
    if isinstance(box, Refusing):
        return box.applied(*inputs, wm=wm)
    return box.recompute(*inputs, wm=wm), ()


def failed(arc: str, tuples: pl.DataFrame, failures: Failures) -> list[Refused]:
    """Return what goes to the dead letters of tuples that a user's function failed for."""
    rows = sorted(failures)
    if not rows:
        return []
    return [Refused(arc, tuples[rows], [failures[row] for row in rows], FUNCTION_RAISED)]


def without(failures: Failures, height: int) -> pl.Series:
    """Return for each row whether nothing failed for it."""
    there = pl.repeat(True, height, dtype=pl.Boolean, eager=True)
    return there.scatter(sorted(failures), False) if failures else there


@dataclass(frozen=True)
class Outcome:
    """What an epoch gave a box.

    Args:
        live: What to keep after it.
        revisions: Of the output.
        counts: Running totals to add.
        refused: What goes to the dead letters.
    """

    live: Live
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)
    refused: Sequence[Refused] = ()


Answers = Generator[Need, Sequence[pl.DataFrame], Outcome]
"""One epoch of a box: yields what it lacks and is sent it, a frame for each arc that it reads."""
