"""The modes in which boxes revise results that they have emitted (Borealis 3.2, 3.3).

*Upstream* replays the inputs from the nearest connection point above. *Downstream* fetches the
results emitted before from a connection point at or below the box's own arc; every box in between
must keep the identity and hidden fields of the results. *Resident* keeps everything.
Each box decides which of them are legal; `Choice` also explains the decision to people.
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
    """The connection point that holds an aggregate's emitted results, or why there is none.

    Args:
        arc: The connection point; None if there is none.
        why_not: Why there is none.
    """

    arc: str | None
    why_not: str


@dataclass(frozen=True)
class ModeRequest:
    """The input for a box's choice of mode.

    Args:
        override: The mode requested for all aggregates; None: each box's own.
        on_spark: Whether a Spark job runs the box.
        find_results: Looks for the connection point that holds its results.
        place: Where the user declared the box.
    """

    override: str | None
    on_spark: bool
    find_results: Callable[[], Stored]
    place: Place | None = None


@dataclass(frozen=True)
class Choice:
    """How a box revises results that it has emitted.

    Args:
        mode: ``upstream``, ``downstream`` or ``resident``; ``adaptive`` for a box that depends on
            the order of tuples. Part of a plan's fingerprint.
        requested: The mode that the user requested.
        reason: Why this mode, or why not the other.
        stored: The connection point that holds the results emitted before, if there is one.
        illegal: Why a mode is illegal, by mode.
        chooses: Whether it may also go the other way, for each window by what is cheaper.
    """

    mode: str
    requested: str
    reason: str
    stored: str | None = None
    illegal: Mapping[str, str] = field(default_factory=dict)
    chooses: bool = False

    @property
    def results(self) -> str | None:
        """The connection point that results are fetched from; None unless downstream."""
        return self.stored if self.mode == DOWNSTREAM else None
