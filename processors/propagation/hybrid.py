"""The hybrid order: static inside chains, dynamic at the junctions between them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from errata.processors.propagation.dynamic import Dynamic


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
            if not self._held or not self._is_held(box):
                return box
        return None

    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run; if it has emitted, activate its readers."""
        if self._held:
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
