"""The modes in which boxes revise results that are out already (Borealis 3.2, 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.boxes.aggregating import RESIDENT
from errata.processors.boxes.states import DOWNSTREAM, UPSTREAM

ADAPTIVE = "adaptive"
NO_RADIUS = "a tuple more or less moves all that follow it: nothing says how far a revision reaches"
MODES = (UPSTREAM, DOWNSTREAM, RESIDENT, ADAPTIVE)


@dataclass(frozen=True)
class Choice:
    """How an aggregate revises its closed windows.

    Args:
        mode: ``upstream``, ``downstream`` or ``resident``; ``adaptive`` of a box that goes by the
            order of tuples.
        asked: What the user asked for.
        reason: Why this mode, or why not the other.
        results: Downstream: the connection point that holds the results emitted before.
    """

    mode: str
    asked: str
    reason: str
    results: str | None = None
