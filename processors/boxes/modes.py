"""The modes in which boxes revise results that are out already (Borealis 3.2, 3.3).

*Upstream* replays the inputs from the nearest connection point above. *Downstream* fetches the
results emitted before from a connection point at or below the box's own arc, with nothing in
between that loses the way back from a stored result to the box's own. *Resident* keeps everything.
Each box judges for itself which of them are legal; `Choice` says so for people too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from errata.processors.declare.faults import Place

UPSTREAM, DOWNSTREAM, RESIDENT = "upstream", "downstream", "resident"
ADAPTIVE = "adaptive"
MODES = (UPSTREAM, DOWNSTREAM, RESIDENT, ADAPTIVE)


class Stored(NamedTuple):
    """Where the results are kept that an aggregate emitted, or why nowhere.

    Args:
        arc: The connection point; None if there is none.
        why_not: Why there is none.
    """

    arc: str | None
    why_not: str


@dataclass(frozen=True)
class ModeRequest:
    """What a box is asked to choose its mode by.

    Args:
        override: The mode that is asked for of all aggregates; None: each box's own.
        on_spark: Whether a job on Spark runs it.
        find_results: Looks for the connection point that holds its results.
        place: Where the user declared it.
    """

    override: str | None
    on_spark: bool
    find_results: Callable[[], Stored]
    place: Place | None = None


@dataclass(frozen=True)
class Choice:
    """How a box revises results that are out already.

    Args:
        mode: ``upstream``, ``downstream`` or ``resident``; ``adaptive`` of a box that goes by the
            order of tuples.
        asked: What the user asked for.
        reason: Why this mode, or why not the other.
        stored: The connection point that holds the results emitted before, if there is one.
        illegal: By mode that can't be had: why not.
    """

    mode: str
    asked: str
    reason: str
    stored: str | None = None
    illegal: Mapping[str, str] = field(default_factory=dict)

    @property
    def results(self) -> str | None:
        """The connection point that results are fetched from; None unless downstream."""
        return self.stored if self.mode == DOWNSTREAM else None
