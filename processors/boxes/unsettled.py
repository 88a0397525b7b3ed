"""What a loop has not settled within its rounds, and why it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import polars as pl

from errata.processors.boxes.base import Refused
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

SHOWN_ROUNDS = 3
"""So many of the last values are told."""
_SHOWN_CHARS = 60
_EXACT = Context(prec=60)


@dataclass(frozen=True)
class Unsettled:
    """Tuples that still change after the last round.

    Args:
        tuples: As they entered the loop; those that came up in it, as they are in the last round.
        trail: All tuples of the last rounds, the newest one last; in a linear loop those that still
            moved.
    """

    tuples: pl.DataFrame
    trail: Sequence[pl.DataFrame]

    def beyond(self, before: Unsettled) -> pl.DataFrame:
        """Return the tuples that were not there, or not the same, in what was unsettled before."""
        names = self.tuples.columns
        return self.tuples.join(before.tuples, on=names, how="anti", nulls_equal=True)

    def refused(self, tuples: pl.DataFrame, *, arc: Arc, rounds: int) -> Refused:
        """Return tuples as what goes to the dead letters, each with its last values."""
        identity = list(arc.identity)
        values = [
            tuples.select(identity).join(
                seen.with_columns(pl.lit(True).alias("@there")),
                on=identity,
                how="left",
                nulls_equal=True,
                maintain_order="left",
            )
            for seen in self.trail
        ]
        rows = [side.to_dicts() for side in values]
        told = [_told(arc, states) for states in zip(*rows, strict=True)]
        reasons = [f"still changes after {rounds} rounds of loop {arc.name!r}: {t}" for t in told]
        return Refused(arc.name, tuples, reasons)


def _told(arc: Arc, states: Sequence[dict[str, Any]]) -> str:
    """Return the values of one tuple that changed, round by round."""
    changed = [n for n in arc.fields if any(state[n] != states[0][n] for state in states[1:])]
    return "; ".join(
        f"{name} " + ", ".join(_shown(state, name, arc.fields[name]) for state in states)
        for name in changed
    )


def _shown(state: dict[str, Any], name: str, kind: FieldType) -> str:
    """Return a value as people write it; "gone" of a tuple that isn't there."""
    value = state[name]
    if not state["@there"]:
        return "gone"
    if value is not None and kind.kind == "decimal":
        value = _EXACT.scaleb(Decimal(value), -kind.scale)
    return "null" if value is None else str(value)[:_SHOWN_CHARS]
