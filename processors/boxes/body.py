"""The body of a loop: boxes that lead from an arc to the same arc in the next round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from errata.processors.boxes.base import Box, Refused
from errata.schemas.arc import Arc

Contents = Mapping[str, pl.DataFrame]
"""Tuples by arc."""

Failing = Sequence[tuple[str, Refused]]
"""What users' functions fail for, each with the name of the box that calls one."""


@dataclass(frozen=True)
class Body:
    """What a loop does in a round.

    Args:
        variable: The arc that goes round.
        boxes: In topological order; they read the variable, one another, and what enters the loop.
        gives: Name of the arc that is the variable in the next round.
    """

    variable: Arc
    boxes: tuple[Box, ...]
    gives: str

    @property
    def enters(self) -> tuple[str, ...]:
        """Names of the arcs from outside that it reads, each once."""
        inside = {self.variable.name, *(box.arc.name for box in self.boxes)}
        read = [name for box in self.boxes for name in box.inputs if name not in inside]
        return tuple(dict.fromkeys(read))

    @cached_property
    def _turning(self) -> frozenset[str]:
        """The arcs that change from round to round: the variable, and what comes from it."""
        found = {self.variable.name}
        for box in self.boxes:
            if found & set(box.inputs):
                found.add(box.arc.name)
        return frozenset(found)

    @cached_property
    def is_linear(self) -> bool:
        """Whether each tuple goes round for itself, whatever others there are.

        So it is where all boxes on the way look at one tuple of the variable each, and keep its
        identity. What a tuple becomes in a round is then what it becomes in every round.
        """
        found = {self.variable.name}
        for box in self.boxes:
            keeps = box.arc.identity == self.variable.identity
            if keeps and box.is_linear(found, self._turning):
                found.add(box.arc.name)
        return self.gives in found

    def entered(self, entering: Contents) -> tuple[Contents, Failing]:
        """Return what enters, and what boxes make of it alone: the same in each round."""
        contents = dict(entering)
        return contents, self._fill(contents, turning=False)

    def turned(self, tuples: pl.DataFrame, entered: Contents) -> tuple[pl.DataFrame, Failing]:
        """Return what tuples of the variable become in one round.

        Args:
            tuples: All of them; of a linear body, any.
            entered: What `entered` gave.
        """
        contents = {**entered, self.variable.name: tuples}
        failing = self._fill(contents, turning=True)
        return contents[self.gives].select(list(self.variable.fields)), failing

    def _fill(self, contents: dict[str, pl.DataFrame], *, turning: bool) -> Failing:
        """Add what the boxes make that turn, or those that do not."""
        failing: list[tuple[str, Refused]] = []
        for box in self.boxes:
            if (box.arc.name in self._turning) == turning:
                given = [contents[name] for name in box.inputs]
                contents[box.arc.name], refused = box.applied(*given)
                failing += [(box.arc.name, some) for some in refused]
        return failing

    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""
        return {box.arc.name: box.describe() for box in self.boxes}
