"""The body of a loop: boxes that lead from an arc to the same arc in the next round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from errata.processors.boxes.answers import Refused, applied
from errata.processors.boxes.description import describe_box
from errata.processors.boxes.forward import Forward
from errata.processors.boxes.join import Join
from errata.processors.boxes.lookup import Lookup
from errata.processors.boxes.map import Map
from errata.processors.boxes.replay import Box
from errata.processors.boxes.union import Union
from errata.processors.boxes.where import Where
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
            if self._is_linear(box, found) and box.arc.identity == self.variable.identity:
                found.add(box.arc.name)
        return self.gives in found

    def _is_linear(self, box: Box, found: set[str]) -> bool:
        """Whether a box looks at one tuple each, of inputs of which it is so."""
        if isinstance(box, Lookup) and box.shared is None:
            left, right = (side.arc.name for side in box.sides)
            return left in found and right not in self._turning
        one_each = isinstance(box, Where | Map | Union | Forward)
        one_each |= isinstance(box, Join) and box.shared is not None
        return one_each and set(box.inputs) <= found

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
                contents[box.arc.name], refused = applied(box, *given)
                failing += [(box.arc.name, some) for some in refused]
        return failing

    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""
        return {box.arc.name: describe_box(box) for box in self.boxes}
