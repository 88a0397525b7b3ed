"""How far a task has come that reads topics again: to rebuild what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic

import polars as pl

from errata.processors.boxes.replay import ReplayQuery
from errata.topics.cluster import TopicPartition

TOLD_S = 10.0
"""How often a task that reads topics again tells how far it has come."""


@dataclass
class ReadingAgain:
    """What one task reads again, if it does, and how far it has come.

    Args:
        what: What it rebuilds from it; "" if it reads nothing again.
        began_s: When it began, by the monotonic clock.
        told_s: When it told last how far it has come.
    """

    what: str = ""
    began_s: float = 0.0
    told_s: float = 0.0
    _reached: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    _received: int = 0

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Count what is read while the body runs."""
        self.what, self.began_s = what, monotonic()
        self.told_s, self._received = self.began_s, 0
        self._reached.clear()
        try:
            yield
        finally:
            self.what = ""

    def note(self, place: TopicPartition, offset: int, end: int) -> None:
        """Note that a partition has been read up to an offset, and is to be read up to its end."""
        self._reached[place] = min(offset, end), end

    def counting(self, query: ReplayQuery, parts: list[pl.DataFrame]) -> ReplayQuery:
        """Return a query whose answer is counted; its parts are added to a list as they arrive."""

        def take(tuples: pl.DataFrame) -> None:
            self._received += tuples.height
            parts.append(tuples)

        return replace(query, take=take)

    def is_due(self) -> bool:
        """Whether it reads topics again, and is to tell how far it has come; it is due once."""
        if not self.what or monotonic() < self.told_s + TOLD_S:
            return False
        self.told_s = monotonic()
        return True

    @property
    def records(self) -> tuple[int, int]:
        """How many records it has read, and of how many; 0 if that is not known."""
        reached = self._reached.values()
        read = sum(offset for offset, _ in reached)
        return read + self._received, sum(end for _, end in reached)

    def __str__(self) -> str:
        """Return it as text, such as "rebuilds its index: 45% of 2,600,000 records after 12 s"."""
        return f"{self.what}: {share_text(*self.records)} after {monotonic() - self.began_s:.0f} s"


def share_text(read: int, of: int) -> str:
    """Return how many records have been read, of how many; 0 if that is not known.

    Example:
        >>> share_text(450_000, 1_000_000), share_text(450_000, 0)
        ('45% of 1,000,000 records', '450,000 records')
    """
    return f"{read / of:.0%} of {of:,} records" if of else f"{read:,} records"
