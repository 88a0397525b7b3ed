"""The dynamic order: runs only boxes with work, from a priority queue."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from errata.processors.propagation.propagation import Propagation


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
            if not self._held or not self._is_held(box):
                return box
        return None

    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run; if it has emitted, activate its readers."""
        if self._held:
            self._release(box)
        if emitted:
            for reader in self._graph.readers[box]:
                if reader not in self._activated:
                    self._activated.add(reader)
                    heappush(self._queue, reader)
