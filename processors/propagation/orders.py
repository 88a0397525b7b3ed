"""The orders in which the boxes of a scope run in one epoch: static, dynamic and hybrid.

`Propagation` is the base of all three, with waiting; `choose_order` chooses one for a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heappop, heappush

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
        self._blocked_by: dict[int, list[int]] = {}  # by waiting box: the boxes it holds back
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
        self._blocked_by.setdefault(box, [])

    @property
    def waiting(self) -> tuple[int, ...]:
        """The boxes that wait."""
        return tuple(self._blocked_by)

    def _is_blocked(self, box: int) -> bool:
        """Whether a box is below one that waits; if so, it is queued again when that is done."""
        for waiting, blocked in self._blocked_by.items():
            if self._graph.reachable[waiting] >> box & 1:
                blocked.append(box)
                return True
        return False

    def _release(self, box: int) -> None:
        """Queue again the boxes that a box held back."""
        for blocked in self._blocked_by.pop(box, ()):
            heappush(self._queue, blocked)


class Static(Propagation):
    """Runs every box, whether or not it has work: it needs no queue and no check.

    It is cheapest if an epoch reaches nearly all boxes. Boost accumulators and TPIE use this order
    (Streamulus).

    Example:
        >>> from errata.processors.propagation.graph import Graph
        >>> epoch = Static(Graph([[], [0], [0], [1, 2]]), active=[1])
        >>> ran = []
        >>> while (box := epoch.next()) is not None:
        ...     ran.append(box)
        ...     epoch.done(box, emitted=False)
        >>> ran
        [0, 1, 2, 3]
    """

    def _begin(self, active: Iterable[int]) -> list[int]:
        self._boxes = iter(range(len(self._graph)))
        return []

    def next(self) -> int | None:
        """Return the next box in topological order; boxes that were held back come first."""
        while (box := heappop(self._queue) if self._queue else next(self._boxes, None)) is not None:
            if not self._blocked_by or not self._is_blocked(box):
                return box
        return None

    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run."""
        if self._blocked_by:
            self._release(box)


class Dynamic(Propagation):
    """Runs a box when one that it reads has emitted, in topological order.

    An epoch that runs k boxes costs O(k log k), whatever the size of the graph (Streamulus).

    Example:
        >>> from errata.processors.propagation.graph import Graph
        >>> epoch = Dynamic(Graph([[], [0], [0], [1, 2]]), active=[1])
        >>> ran = []
        >>> while (box := epoch.next()) is not None:
        ...     ran.append(box)
        ...     epoch.done(box, emitted=True)
        >>> ran
        [1, 3]
    """

    def _begin(self, active: Iterable[int]) -> list[int]:
        self._activated = set(active)
        return sorted(self._activated)  # a sorted list is a heap

    def next(self) -> int | None:
        """Return the first activated box in topological order."""
        while self._queue:
            box = heappop(self._queue)
            if not self._blocked_by or not self._is_blocked(box):
                return box
        return None

    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run; if it has emitted, activate its readers."""
        if self._blocked_by:
            self._release(box)
        if emitted:
            for reader in self._graph.readers[box]:
                if reader not in self._activated:
                    self._activated.add(reader)
                    heappush(self._queue, reader)


class Hybrid(Dynamic):
    """Runs the boxes of a chain one after another; it uses a queue only where chains meet.

    A chain is a longest path on which each box reads one box, and each but the last is read by one.
    All boxes above a box inside a chain are done when its predecessor is, so it can run at once.
    A chain stops early at a box that emits nothing: this check costs less than running the rest for
    nothing. So the same boxes run as in the dynamic order. Streamulus plans to add this order.

    Example:
        Box 0 is read by 1 and 2, which begin chains:

        >>> from errata.processors.propagation.graph import Graph
        >>> epoch = Hybrid(Graph([[], [0], [0], [1], [2], [3], [4]]), active=[0])
        >>> ran = []
        >>> while (box := epoch.next()) is not None:
        ...     ran.append(box)
        ...     epoch.done(box, emitted=box != 3)
        >>> ran
        [0, 1, 3, 2, 4, 6]
    """

    def _begin(self, active: Iterable[int]) -> list[int]:
        self._following: list[int] = []
        return super()._begin(active)

    # `next` and `done` repeat the loops of Dynamic: a call to those costs a box that follows none
    # 83 steps instead of 66, which would change the costs that `choose_order` relies on.

    def next(self) -> int | None:
        """Return the next box of the current chain, or else the first box of the queue."""
        if self._following:
            return self._following.pop()
        while self._queue:
            box = heappop(self._queue)
            if not self._blocked_by or not self._is_blocked(box):
                return box
        return None

    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run; if it has emitted, activate its readers."""
        if self._blocked_by:
            self._release(box)
        if emitted:
            follower = self._graph.follower[box]
            if follower is None:
                for reader in self._graph.readers[box]:
                    if reader not in self._activated:
                        self._activated.add(reader)
                        heappush(self._queue, reader)
            elif follower not in self._activated:  # else it has been in the queue from the start
                self._following.append(follower)


STATIC, DYNAMIC, HYBRID = "static", "dynamic", "hybrid"
ORDERS: dict[str, type[Propagation]] = {STATIC: Static, DYNAMIC: Dynamic, HYBRID: Hybrid}


def choose_order(graph: Graph) -> str:
    """Return the order for the boxes of a scope, by the cost of the orders (docs/propagation.md).

    Compared with the dynamic order, the hybrid order takes 20 steps less for a box that follows
    another, and 11 more for any other box; so it needs a third of followers. The static order takes
    the fewest steps for a box with work, but a box without work costs more than five others save.
    Only a box that is alone in its scope always has work.

    Example:
        >>> choose_order(Graph([[]])), choose_order(Graph([[], [0], [0]]))
        ('static', 'dynamic')
        >>> choose_order(Graph([[], [0], [1], [2]]))
        'hybrid'
    """
    if len(graph) < 2:
        return STATIC
    followers = sum(follower is not None for follower in graph.follower)
    return HYBRID if 3 * followers >= len(graph) else DYNAMIC
