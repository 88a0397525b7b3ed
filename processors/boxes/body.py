"""The body of a loop: boxes that compute an arc's next round from its current one."""

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
"""The tuples for which users' functions failed, each with the name of the calling box."""


@dataclass(frozen=True)
class Body:
    """What a loop does in a round.

    Args:
        variable: The arc that the loop iterates on.
        boxes: In topological order; they read the variable, one another, and arcs from outside.
        gives: Name of the arc that becomes the variable in the next round.
    """

    variable: Arc
    boxes: tuple[Box, ...]
    gives: str

    @property
    def enters(self) -> tuple[str, ...]:
        """Names of the arcs outside the loop that it reads, each once."""
        inside = {self.variable.name, *(box.arc.name for box in self.boxes)}
        read = [name for box in self.boxes for name in box.inputs if name not in inside]
        return tuple(dict.fromkeys(read))

    @cached_property
    def _turning(self) -> frozenset[str]:
        """The arcs that change from round to round: the variable, and those derived from it."""
        found = {self.variable.name}
        for box in self.boxes:
            if found & set(box.inputs):
                found.add(box.arc.name)
        return frozenset(found)

    @cached_property
    def is_linear(self) -> bool:
        """Whether each tuple is processed independently of the others.

        This holds if every box on the path processes one tuple of the variable at a time and keeps
        its identity. The result for a tuple in one round is then the same in every round.
        """
        found = {self.variable.name}
        for box in self.boxes:
            keeps = box.arc.identity == self.variable.identity
            if keeps and box.is_linear(found, self._turning):
                found.add(box.arc.name)
        return self.gives in found

    def entered(self, entering: Contents) -> tuple[Contents, Failing]:
        """Return the entering arcs and the arcs derived from them alone: constant over rounds."""
        contents = dict(entering)
        return contents, self._fill(contents, turning=False)

    def turned(self, tuples: pl.DataFrame, entered: Contents) -> tuple[pl.DataFrame, Failing]:
        """Return the variable after one round.

        Args:
            tuples: All tuples of the variable; any subset if the body is linear.
            entered: The contents that `entered` returned.
        """
        contents = {**entered, self.variable.name: tuples}
        failing = self._fill(contents, turning=True)
        return contents[self.gives].select(list(self.variable.fields)), failing

    def _fill(self, contents: dict[str, pl.DataFrame], *, turning: bool) -> Failing:
        """Add the output of the boxes that change from round to round, or of those that don't."""
        failing: list[tuple[str, Refused]] = []
        for box in self.boxes:
            if (box.arc.name in self._turning) == turning:
                given = [contents[name] for name in box.inputs]
                contents[box.arc.name], refused = box.applied(*given)
                failing += [(box.arc.name, some) for some in refused]
        return failing

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {box.arc.name: box.describe() for box in self.boxes}
