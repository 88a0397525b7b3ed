"""Random graphs of boxes that are functions of their inputs, and what is right for them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from errata.processors.propagation.graph import Graph


@dataclass(frozen=True)
class Case:
    """An epoch.

    A box adds up what it reads and what it is given, and emits the sum unless its modulus divides
    it: some boxes filter. One that has nothing emits nothing.

    Args:
        inputs: By box: the boxes that it reads.
        given: By active box: what comes from outside the scope, or of its own work.
        modulus: By box.
    """

    inputs: list[list[int]]
    given: dict[int, int]
    modulus: list[int]

    @property
    def graph(self) -> Graph:
        return Graph(self.inputs)

    def emitted(self, box: int, found: dict[int, int]) -> int:
        """Return what a box emits, 0 if nothing, from what the boxes that it reads did."""
        total = self.given.get(box, 0) + sum(found.get(above, 0) for above in self.inputs[box])
        return total if total % self.modulus[box] else 0

    def recomputed(self) -> dict[int, int]:
        """Return what every box emits, by going through all of them."""
        found: dict[int, int] = {}
        for box in range(len(self.inputs)):
            found[box] = self.emitted(box, found)
        return {box: value for box, value in found.items() if value}

    def above(self, box: int) -> set[int]:
        """Return the boxes above a box."""
        return {far for near in self.inputs[box] for far in self.above(near) | {near}}

    def activated(self, emitted: dict[int, int]) -> set[int]:
        """Return the boxes that have something to do."""
        read = {b for b, above in enumerate(self.inputs) if not emitted.keys().isdisjoint(above)}
        return read | self.given.keys()


@st.composite
def cases(draw: st.DrawFn, most: int = 12) -> Case:
    """Draw an epoch: long chains and junctions are both likely."""
    count = draw(st.integers(1, most))
    inputs = []
    for box in range(count):
        anywhere = (
            st.lists(st.integers(0, box - 1), max_size=3, unique=True) if box else st.just([])
        )
        inputs.append(draw(st.one_of(st.just([box - 1]), anywhere) if box else anywhere))
    given = draw(st.dictionaries(st.integers(0, count - 1), st.integers(1, 100)))
    modulus = draw(st.lists(st.sampled_from([2, 3, 1000]), min_size=count, max_size=count))
    return Case(inputs, given, modulus)
