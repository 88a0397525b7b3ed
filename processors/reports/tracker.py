"""The tracker: the first epoch that may still appear behind each task (Timely's reachability).

Each task keeps epochs open: those it may still produce, and those of records that it has not
processed. The task's *pointstamp* is the first of them. Whatever a task produces reaches all tasks
below it in the same epoch. So the first epoch that a task may still produce is the minimum of its
own pointstamp and of those of all tasks above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from errata.schemas.errors import ErrataError


class CyclicTasksError(ErrataError):
    """Tasks read each other's output in a cycle, so no epoch would ever end.

    Args:
        network: The network's name.
        tasks: The tasks of the cycle; the last is the first again.
    """

    def __init__(self, network: str, *, tasks: list[str]) -> None:
        self.network, self.tasks = network, tasks
        super().__init__(
            f"the tasks of network '{network}' read each other in a cycle: {' -> '.join(tasks)}; "
            "tasks need an order in which each reads only earlier ones (a loop stays in one scope)"
        )


class Tracker:
    """Maintains the first open epoch of every task as pointstamps change.

    Changes are buffered until `propagate`. It visits tasks in an order in which each comes after
    all that it reads: so each is visited at most once, and only tasks below a change are.

    Args:
        network: Name of the network, for messages.
        reads: For each task, the tasks that it reads.

    Raises:
        CyclicTasksError: If tasks read each other in a cycle.

    Example:
        >>> tracker = Tracker("example", {"ingest": [], "first": ["ingest"], "second": ["first"]})
        >>> tracker.update("ingest", 8)
        >>> tracker.update("first", 5)
        >>> tracker.propagate()
        >>> tracker.first_open("ingest"), tracker.first_open("second")
        (8, 5)
    """

    def __init__(self, network: str, reads: Mapping[str, Iterable[str]]) -> None:
        try:
            order = list(TopologicalSorter(reads).static_order())
        except CycleError as error:
            raise CyclicTasksError(network, tasks=error.args[1]) from error
        self._order = order
        self._place = place = {task: number for number, task in enumerate(order)}
        self._above = [sorted({place[other] for other in reads.get(task, ())}) for task in order]
        self._below: list[list[int]] = [[] for _ in order]
        for number, above in enumerate(self._above):
            for other in above:
                self._below[other].append(number)
        self._pointstamps: list[int | None] = [None] * len(order)
        self._first: list[int | None] = [None] * len(order)
        self._changed: set[int] = set()

    def update(self, task: str, pointstamp: int | None) -> None:
        """Set the first epoch that a task keeps open itself; None if it keeps none open."""
        place = self._place[task]
        if self._pointstamps[place] != pointstamp:
            self._pointstamps[place] = pointstamp
            self._changed.add(place)

    def propagate(self) -> None:
        """Apply the buffered updates to all tasks."""
        due, self._changed = self._changed, set()
        queue = sorted(due)  # a sorted list is a heap
        while queue:
            place = heappop(queue)
            known = [
                self._pointstamps[place],
                *(self._first[above] for above in self._above[place]),
            ]
            before, first = (
                self._first[place],
                min((e for e in known if e is not None), default=None),
            )
            self._first[place] = first
            for below in self._below[place] if first != before else ():
                if below not in due and self._may_change(below, before, first):
                    due.add(below)
                    heappush(queue, below)

    def first_open(self, task: str) -> int | None:
        """Return the first epoch that a task may still produce; None if it produces no more."""
        return self._first[self._place[task]]

    def _may_change(self, place: int, before: int | None, now: int | None) -> bool:
        """Whether a change of one task above can change a task's minimum."""
        first = self._first[place]
        return first is None or first == before or (now is not None and now < first)
