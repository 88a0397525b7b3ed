"""The graph of the boxes of a scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Self

from errata.schemas.errors import ErrataError


class GraphOrderError(ErrataError):
    """A box reads a box that does not precede it.

    Args:
        box: Number of the box.
        source: Number of the box that it reads.
    """

    def __init__(self, box: int, source: int) -> None:
        self.box, self.source = box, source
        super().__init__(
            f"box {box} needs the boxes that it reads among 0 to {box - 1}; found {source}; "
            "number boxes in topological order"
        )


class Graph:
    """Boxes by number, in topological order, and which of them reads which.

    Arcs from outside the scope are not in the graph: the caller that begins an epoch knows them.

    Args:
        inputs: For each box, the boxes that it reads.

    Raises:
        GraphOrderError: If a box reads a box that does not precede it.

    Example:
        Box 0 is read by 1 and 2, both of them by 3, and that one by 4:

        >>> graph = Graph([[], [0], [0], [1, 2], [3]])
        >>> graph.readers
        ((1, 2), (3,), (3,), (4,), ())
        >>> graph.follower
        (None, None, None, 4, None)
        >>> [bin(boxes) for boxes in graph.reachable]
        ['0b11110', '0b11000', '0b11000', '0b10000', '0b0']
    """

    @classmethod
    def of(cls, reads: Mapping[str, Iterable[str]]) -> Self:
        """Return the graph of named boxes, numbered in order.

        Args:
            reads: By box, in topological order: the arcs that it reads; others than these boxes'
                are from outside.
        """
        number = {name: position for position, name in enumerate(reads)}
        return cls([[number[arc] for arc in above if arc in number] for above in reads.values()])

    def __init__(self, inputs: Sequence[Iterable[int]]) -> None:
        self.inputs = tuple(tuple(dict.fromkeys(sources)) for sources in inputs)
        readers: list[list[int]] = [[] for _ in self.inputs]
        for box, sources in enumerate(self.inputs):
            for source in sources:
                if not 0 <= source < box:
                    raise GraphOrderError(box, source)
                readers[source].append(box)
        self.readers = tuple(map(tuple, readers))
        """For each box: the boxes that read it, in order."""
        self.follower = tuple(
            read_by[0] if len(read_by) == 1 and len(self.inputs[read_by[0]]) == 1 else None
            for read_by in self.readers
        )
        """For each box: the next box of its chain, i.e. its only reader if that reads no other."""

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def reachable(self) -> list[int]:
        """For each box: the boxes that it reaches, as the bits of an integer.

        Computed when a box has to wait for the first time; n boxes take at most n * n / 8 bytes.
        """
        reachable = [0] * len(self)
        for box in reversed(range(len(self))):
            for source in self.inputs[box]:
                reachable[source] |= reachable[box] | 1 << box
        return reachable
