"""The propagation of one epoch through a graph of boxes: the base of all orders, with waiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heappush

from errata.processors.propagation.graph import Graph


class Propagation(ABC):
    """Decides which box runs next, for one epoch.

    After `next` returns a box, the box is either `done`, or has to `wait` and is done later. Every
    order is glitch-free: when a box runs, all boxes above it that run in this epoch are done. No
    box runs twice. The epoch is over when `next` returns None and no box waits.

    Args:
        graph: The boxes.
        active: The boxes with work at the start: an input from outside the scope, or work of their
            own (a window that closes).
    """

    def __init__(self, graph: Graph, active: Iterable[int]) -> None:
        self._graph = graph
        self._held: dict[int, list[int]] = {}  # by waiting box: the boxes it holds back
        self._queue = self._begin(active)

    @abstractmethod
    def _begin(self, active: Iterable[int]) -> list[int]:
        """Return the boxes that are queued at the start, as a heap."""

    @abstractmethod
    def next(self) -> int | None:
        """Return a box to run; None if every remaining box is below one that waits."""

    @abstractmethod
    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run, and whether it emitted anything for its readers."""

    def wait(self, box: int) -> None:
        """Record that a box waits, or still waits: boxes below it wait too, others don't."""
        self._held.setdefault(box, [])

    @property
    def waiting(self) -> tuple[int, ...]:
        """The boxes that wait."""
        return tuple(self._held)

    def _is_held(self, box: int) -> bool:
        """Whether a box is below one that waits; if so, it is queued again when that is done."""
        for waiting, held in self._held.items():
            if self._graph.below[waiting] >> box & 1:
                held.append(box)
                return True
        return False

    def _release(self, box: int) -> None:
        """Queue again the boxes that a box held back."""
        for held in self._held.pop(box, ()):
            heappush(self._queue, held)
