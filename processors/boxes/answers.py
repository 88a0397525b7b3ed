"""What a box keeps between epochs, asks for within one, and gives."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

INPUTS, RESULTS = "inputs", "results"


@dataclass(frozen=True)
class Live:
    """What a box keeps between epochs.

    Args:
        states: Of the open windows of an aggregate; of all windows if it is resident.
        tuples: The whole input of an aggregate that is resident, else none.
    """

    states: pl.DataFrame = field(default_factory=pl.DataFrame)
    tuples: pl.DataFrame | None = None


@dataclass(frozen=True)
class Need:
    """What a box lacks: inputs, or results that it emitted.

    Args:
        kind: ``inputs`` (as of the epoch in hand) or ``results`` (as emitted before it).
        ranges: Group fields, ``from_ms`` and ``to_ms`` (half-open event times). The answers may
            hold more.
    """

    kind: str
    ranges: pl.DataFrame


@dataclass(frozen=True)
class Outcome:
    """What an epoch gave: what to keep after it, and the revisions of the output."""

    live: Live
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)


Answers = Generator[Need, Sequence[pl.DataFrame], Outcome]
"""One epoch of a box: yields what it lacks and is sent it, a frame for each arc that it reads."""
