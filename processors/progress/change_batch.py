"""A change batch: changes of counts, summed up per item (Timely's ``ChangeBatch``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


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
