"""A partition of an arc, as one name."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A partition of an arc.

    Example:
        >>> str(Place("trades", 3)), Place.parse("trades:3")
        ('trades:3', Place(arc='trades', partition=3))
    """

    arc: str
    partition: int

    def __str__(self) -> str:
        return f"{self.arc}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that a text names."""
        arc, _, partition = text.rpartition(":")
        return cls(arc, int(partition))
