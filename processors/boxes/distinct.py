"""Distinct: one tuple for each combination of values (SQL's ``SELECT DISTINCT``).

A combination exists as long as one input tuple has it: deleting the last copy deletes it. Its event
time is that of its earliest copy, so inserting or deleting the earliest copy changes it. The box
keeps the number of copies and the event time of each combination. It requests the other copies of
a combination only when the earliest one is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.modes import DOWNSTREAM, RESIDENT, UPSTREAM, Choice, ModeRequest


@dataclass(frozen=True, kw_only=True)
class Distinct(Aggregate):
    """A distinct box: an aggregate of whole histories whose only result is the event time.

    Its arc does not carry the states: the number of copies does not change the emitted tuple.
    """

    @property
    def kind(self) -> str:
        """What `errata explain` calls it."""
        return "distinct"

    @property
    def result_delay_ms(self) -> int | None:
        """None: the event times of other copies are not bounded."""
        return None

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {"distinct": list(self.by), "input": self.input.name}

    def choose_mode(self, request: ModeRequest) -> Choice:
        """Return how it revises emitted tuples: from its states, and by replay if necessary."""
        mode = RESIDENT if request.override == RESIDENT and not request.on_spark else UPSTREAM
        illegal = {DOWNSTREAM: "its tuples don't carry the number of copies"}
        return Choice(
            mode, mode, "requests the copies when the earliest is deleted", illegal=illegal
        )
