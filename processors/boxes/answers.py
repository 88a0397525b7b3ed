"""What an aggregate keeps between epochs, asks for within one, and gives."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import polars as pl

INPUTS, RESULTS = "inputs", "results"


@dataclass(frozen=True)
class Live:
    """What an aggregate keeps between epochs.

    Args:
        states: Of its open windows; of all windows if it is resident.
        tuples: Its whole input if it is resident, else none.
    """

    states: pl.DataFrame
    tuples: pl.DataFrame | None = None


@dataclass(frozen=True)
class Need:
    """What a box lacks: inputs, or results that it emitted.

    Args:
        kind: ``inputs`` (as of the epoch in hand) or ``results`` (as emitted before it).
        ranges: Group fields, ``from_ms`` and ``to_ms`` (half-open event times). The answer may hold
            more.
    """

    kind: str
    ranges: pl.DataFrame


@dataclass(frozen=True)
class Outcome:
    """What an epoch gave: what to keep after it, and the revisions of the output."""

    live: Live
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)


Answers = Generator[Need, pl.DataFrame, Outcome]
"""One epoch of a box: yields what it lacks and is sent it."""
