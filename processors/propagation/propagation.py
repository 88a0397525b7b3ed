"""One epoch's way through a graph of boxes: what every order has in common, which is waiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heappush

from errata.processors.propagation.graph import Graph


class Propagation(ABC):
    """Says which box runs next, for one epoch.

    Each box that `next` gives is then either `done`, or has to `wait` for something, and is done
    later. Glitch-free in any order: when a box runs, all boxes above it that run in this epoch are
    done. No box runs twice. The epoch is over when `next` gives none and none waits.

    Args:
        graph: The boxes.
        active: Those that have something to do from the start: an input from outside the scope, or
            work of their own (a window that closes).
    """

    def __init__(self, graph: Graph, active: Iterable[int]) -> None:
        self._graph = graph
        self._held: dict[int, list[int]] = {}  # by box that waits: those that came after it
        self._queue = self._begin(active)

    @abstractmethod
    def _begin(self, active: Iterable[int]) -> list[int]:
        """Return what is queued from the start, as a heap."""

    @abstractmethod
    def next(self) -> int | None:
        """Return a box to run; None if every box that is left is below one that waits."""

    @abstractmethod
    def done(self, box: int, *, emitted: bool) -> None:
        """Note that a box has run, and whether there is anything for its readers."""

    def wait(self, box: int) -> None:
        """Note that a box goes on later, or later still: those below it wait too, others don't."""
        self._held.setdefault(box, [])

    @property
    def waiting(self) -> tuple[int, ...]:
        """The boxes that go on later."""
        return tuple(self._held)

    def _is_held(self, box: int) -> bool:
        """Whether a box is below one that waits; it is then queued again when that is done."""
        for waiting, held in self._held.items():
            if self._graph.below[waiting] >> box & 1:
                held.append(box)
                return True
        return False

    def _release(self, box: int) -> None:
        """Queue again what a box held back."""
        for held in self._held.pop(box, ()):
            heappush(self._queue, held)
