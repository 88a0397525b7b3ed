"""The static order: all boxes in topological order, every epoch."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop

from errata.processors.propagation.propagation import Propagation


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
            if not self._held or not self._is_held(box):
                return box
        return None

    def done(self, box: int, *, emitted: bool) -> None:
        """Record that a box has run."""
        if self._held:
            self._release(box)
