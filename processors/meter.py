"""What a process counts for its metrics, besides what its tasks report: per batch, never per record.

The totals of reports are exactly once and outlive the process; these begin at 0 with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, inclusive, of the buckets of a `Durations`; one more is open."""


@dataclass
class Durations:
    """How long something took, each time.

    Args:
        buckets: How many times by bound of `BOUNDS_S`, and beyond them all.
        total_s: All together.
    """

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds


class Meter:
    """Totals by what is counted and by labels, of one process.

    Example:
        >>> meter = Meter()
        >>> meter.add("replays_answered", "trades")
        >>> meter.add("replays_answered", "trades", amount=2)
        >>> meter.counts["replays_answered", "trades"]
        3
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.durations: dict[tuple[str, ...], Durations] = {}

    def add(self, what: str, *labels: str, amount: int = 1) -> None:
        """Add to a total."""
        self.counts[what, *labels] += amount

    def took(self, what: str, *labels: str, seconds: float) -> None:
        """Note how long something took."""
        self.durations.setdefault((what, *labels), Durations()).add(seconds)
