"""How far a task has come that reads topics again: to rebuild what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from errata.topics.cluster import TopicPartition


@dataclass
class ReadingAgain:
    """What one task reads again, if it does, and how far it has come.

    Args:
        what: What it rebuilds from it; "" if it reads nothing again.
        began_s: When it began, by the monotonic clock.
    """

    what: str = ""
    began_s: float = 0.0
    _reached: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Count what is read while the body runs."""
        self.what, self.began_s = what, monotonic()
        self._reached.clear()
        try:
            yield
        finally:
            self.what = ""

    def note(self, place: TopicPartition, offset: int, end: int) -> None:
        """Note that a partition has been read up to an offset, and is to be read up to its end."""
        self._reached[place] = min(offset, end), end

    def __str__(self) -> str:
        """Return it as text, such as "rebuilds its index: 45% of 2,600,000 records after 12 s"."""
        ends = sum(end for _, end in self._reached.values())
        share = sum(offset for offset, _ in self._reached.values()) / ends if ends else 0.0
        took_s = monotonic() - self.began_s
        return f"{self.what}: {share:.0%} of {ends:,} records after {took_s:.0f} s"
