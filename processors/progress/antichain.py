"""Antichains: the minimal elements of a set, none of which is before another (Timely).

A frontier is an antichain: the earliest times that may still appear. So are the summaries of all
paths between two places: a path that is no earlier than another adds no information. Frontiers move
by change batches, which sum up changes of counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from errata.processors.progress.timestamp import PartialOrder, Timestamp

Element = TypeVar("Element", bound=PartialOrder)
T = TypeVar("T", bound=Timestamp)

Item = TypeVar("Item", bound=Hashable)


class Antichain(Generic[Element]):
    """The minimal elements of those inserted.

    Args:
        elements: Any elements; only the minimal ones are kept.

    Example:
        >>> from errata.processors.progress.timestamp import Epoch, Product
        >>> chain = Antichain([Product(Epoch(2), Epoch(0)), Product(Epoch(1), Epoch(1))])
        >>> chain.insert(Product(Epoch(2), Epoch(1)))
        False
        >>> chain.less_equal(Product(Epoch(2), Epoch(1)))
        True
        >>> len(chain)
        2
    """

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterable[Element] = ()) -> None:
        self._elements: list[Element] = []
        for element in elements:
            self.insert(element)

    def insert(self, element: Element) -> bool:
        """Insert an element; return whether the antichain changed."""
        if self.less_equal(element):
            return False
        self._elements = [kept for kept in self._elements if not element.less_equal(kept)]
        self._elements.append(element)
        return True

    def less_equal(self, element: Element) -> bool:
        """Whether some element of the antichain is before the given one or equal to it."""
        return any(kept.less_equal(element) for kept in self._elements)

    def __iter__(self) -> Iterator[Element]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Antichain):
            return NotImplemented
        return len(self) == len(other) and all(element in other._elements for element in self)

    __hash__ = None  # type: ignore[assignment]  # its elements change

    def __repr__(self) -> str:
        return f"Antichain({self._elements})"


class MutableAntichain(Generic[T]):
    """The frontier of counted times: the minimal times with a count above 0.

    A count may be below 0 for a while, if a decrement arrives before its increment; such a time is
    not in the frontier.

    Example:
        >>> from errata.processors.progress.timestamp import Epoch
        >>> counted = MutableAntichain()
        >>> counted.update_iter([(Epoch(3), 1), (Epoch(5), 2)])
        [(3, 1)]
        >>> counted.update_iter([(Epoch(3), -1), (Epoch(5), -1)])
        [(3, -1), (5, 1)]
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self) -> None:
        self._counts: dict[T, int] = {}
        self._frontier: list[T] = []

    @property
    def frontier(self) -> tuple[T, ...]:
        """The minimal times, in their total order."""
        return tuple(self._frontier)

    def update_iter(self, updates: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Change counts, all at once; return how the frontier changes: -1 leaves, 1 enters it.

        Each update scans the frontier. All counted times are scanned only if the frontier may have
        changed.
        """
        counts, stale = self._counts, False
        for time, diff in updates:
            before = counts.get(time, 0)
            after = before + diff
            if after:
                counts[time] = after
            elif before:
                del counts[time]
            if stale or (before > 0) == (after > 0):
                continue
            stale = time in self._frontier if before > 0 else not self.less_equal(time)
        return self._rebuild() if stale else []

    def less_equal(self, time: T) -> bool:
        """Whether the time may still appear: some frontier element is before it or equal to it."""
        return any(kept.less_equal(time) for kept in self._frontier)

    def __bool__(self) -> bool:
        return bool(self._frontier)

    def __repr__(self) -> str:
        return f"MutableAntichain({self._frontier})"

    def _rebuild(self) -> list[tuple[T, int]]:
        """Recompute the frontier; the total order puts each time after all that precede it."""
        previous, self._frontier = self._frontier, []
        for time in sorted(time for time, count in self._counts.items() if count > 0):
            if not self.less_equal(time):
                self._frontier.append(time)
        removed = [(time, -1) for time in previous if time not in self._frontier]
        return removed + [(time, 1) for time in self._frontier if time not in previous]


class ChangeBatch(Generic[Item]):
    """A multiset whose counts may be negative; it is always compact: no count is 0.

    Args:
        changes: Items and the changes of their counts.

    Example:
        >>> batch = ChangeBatch([("a", 1), ("b", 2), ("a", -1)])
        >>> batch.update("b", -3)
        >>> batch.drain(), bool(batch)
        ([('b', -1)], False)
    """

    __slots__ = ("_counts",)

    def __init__(self, changes: Iterable[tuple[Item, int]] = ()) -> None:
        self._counts: dict[Item, int] = {}
        for item, diff in changes:
            self.update(item, diff)

    def update(self, item: Item, diff: int) -> None:
        """Add `diff` to the count of an item."""
        count = self._counts.get(item, 0) + diff
        if count:
            self._counts[item] = count
        else:
            self._counts.pop(item, None)

    def count(self, item: Item) -> int:
        """Return the count of an item; 0 if there is none."""
        return self._counts.get(item, 0)

    def drain(self) -> list[tuple[Item, int]]:
        """Return the accumulated changes, and clear the batch."""
        changes = list(self._counts.items())
        self._counts.clear()
        return changes

    def __iter__(self) -> Iterator[tuple[Item, int]]:
        return iter(self._counts.items())

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"ChangeBatch({list(self)})"
