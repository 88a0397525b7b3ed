"""The graph of the boxes of a scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from errata.schemas.errors import ErrataError


class GraphOrderError(ErrataError):
    """A box reads one that does not stand before it.

    Args:
        box: Number of the box.
        above: Number of what it reads.
    """

    def __init__(self, box: int, above: int) -> None:
        self.box, self.above = box, above
        super().__init__(
            f"box {box} needs the boxes that it reads among 0 to {box - 1}; found {above}; "
            "number boxes in topological order"
        )


class Graph:
    """Boxes by number, in topological order, and which of them reads which.

    What a box reads from outside the scope is not here: whoever begins an epoch knows it.

    Args:
        inputs: For each box, the boxes that it reads.

    Raises:
        GraphOrderError: If a box reads one that does not stand before it.

    Example:
        Box 0 is read by 1 and 2, both of them by 3, and that one by 4:

        >>> graph = Graph([[], [0], [0], [1, 2], [3]])
        >>> graph.readers
        ((1, 2), (3,), (3,), (4,), ())
        >>> graph.follower
        (None, None, None, 4, None)
        >>> [bin(boxes) for boxes in graph.below]
        ['0b11110', '0b11000', '0b11000', '0b10000', '0b0']
    """

    def __init__(self, inputs: Sequence[Iterable[int]]) -> None:
        self.inputs = tuple(tuple(dict.fromkeys(read)) for read in inputs)
        found: list[list[int]] = [[] for _ in self.inputs]
        for box, read in enumerate(self.inputs):
            for above in read:
                if not 0 <= above < box:
                    raise GraphOrderError(box, above)
                found[above].append(box)
        self.readers = tuple(map(tuple, found))
        """By box: those that read it, in order."""
        self.follower = tuple(
            read_by[0] if len(read_by) == 1 and len(self.inputs[read_by[0]]) == 1 else None
            for read_by in self.readers
        )
        """By box: the next one of its chain: its only reader, if that reads no other box."""

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def below(self) -> list[int]:
        """By box: those that it reaches, as the bits of an integer.

        Made when some box has to wait for the first time: n boxes take n * n / 8 bytes at most.
        """
        below = [0] * len(self)
        for box in reversed(range(len(self))):
            for above in self.inputs[box]:
                below[above] |= below[box] | 1 << box
        return below
