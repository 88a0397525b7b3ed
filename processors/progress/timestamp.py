"""Times, and how the paths of a graph change them (Timely Dataflow, its core concepts).

A timestamp is an element of a partial order. Today's Timely, like Errata, also requires a total
order that extends the partial one, since a heap needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from errata.schemas.errors import ErrataError


class Timestamp(Protocol):
    """A time: immutable and hashable.

    Laws: `less_equal` is reflexive, antisymmetric and transitive; ``a.less_equal(b)`` implies
    ``a <= b`` in the total order of ``<``.
    """

    def less_equal(self, other: Self, /) -> bool:
        """Whether this is before the other or equal to it; it may be false in both directions."""

    def __hash__(self) -> int: ...

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Timestamp)


class PathSummary(Protocol[T]):
    """How a path changes a time.

    Laws: `results_in` is monotone; no result is before its time.
    """

    @property
    def advances(self) -> bool:
        """Whether each time becomes strictly later."""

    def results_in(self, time: T, /) -> T:
        """Return the time after the path."""


class Epoch(int):
    """An epoch: an integer of 0 or more, totally ordered.

    Example:
        >>> Epoch(2).less_equal(Epoch(3)), Epoch(3).less_equal(Epoch(2))
        (True, False)
    """

    __slots__ = ()

    def less_equal(self, other: Epoch, /) -> bool:
        """Whether this is before the other or equal to it."""
        return self <= other


class SummaryError(ErrataError):
    """A path summary that no path can have."""


@dataclass(frozen=True, slots=True)
class Advance:
    """A path that advances an epoch; the default is the identity.

    Args:
        by: The increment, 0 or more.

    Raises:
        SummaryError: If the increment is below 0.

    Example:
        >>> Advance(by=1).results_in(Epoch(1)), IDENTITY.results_in(Epoch(1))
        (2, 1)
    """

    by: int = 0

    def __post_init__(self) -> None:
        if self.by < 0:
            raise SummaryError(f"a path can't advance an epoch by {self.by}: it must be at least 0")

    @property
    def advances(self) -> bool:
        """Whether the increment is above 0."""
        return self.by > 0

    def results_in(self, time: Epoch, /) -> Epoch:
        """Return the epoch advanced."""
        return Epoch(time + self.by) if self.by else time


IDENTITY = Advance()
