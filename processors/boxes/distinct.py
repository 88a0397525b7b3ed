"""Distinct: one tuple for each combination of values (SQL's ``SELECT DISTINCT``).

A combination is there as long as one input tuple has it: the last copy's deletion deletes it. It
happened when the earliest of its copies did, so a copy that comes or goes before all others moves
it. What is kept of each combination is the number of its copies and that time; only when the
earliest copy leaves are the others of the combination asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.modes import DOWNSTREAM, RESIDENT, UPSTREAM, Choice, ModeRequest


@dataclass(frozen=True, kw_only=True)
class Distinct(Aggregate):
    """A distinct box: an aggregate of whole histories whose only result is when it happened.

    Its arc has no states behind results: a copy more or less changes nothing that is emitted.
    """

    @property
    def kind(self) -> str:
        """What `errata explain` calls it."""
        return "distinct"

    @property
    def result_delay_ms(self) -> int | None:
        """None: nothing bounds how long ago other copies happened."""
        return None

    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""
        return {"distinct": list(self.by), "input": self.input.name}

    def choose_mode(self, request: ModeRequest) -> Choice:
        """Return how it revises what is out: from what it keeps, and its input where it must."""
        asked = RESIDENT if request.override == RESIDENT else UPSTREAM
        illegal = {DOWNSTREAM: "its tuples don't tell how many copies there are"}
        return Choice(asked, asked, "asks for the copies when the earliest leaves", illegal=illegal)
