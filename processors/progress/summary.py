"""Path summaries: how a path changes a time (Timely Dataflow, its core concepts).

In the text of 2014 every time passes. As in today's Timely, a path may also drop times: a loop that
ends after some rounds drops times beyond its bound, and two paths may exclude each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from errata.processors.progress.timestamp import Epoch, PartialOrder, Product, Timestamp
from errata.schemas.errors import ErrataError

T = TypeVar("T", bound=Timestamp)
Outer = TypeVar("Outer", bound=Timestamp)
Inner = TypeVar("Inner", bound=Timestamp)


class PathSummary(PartialOrder, Protocol[T]):
    """How a path changes a time; immutable and hashable.

    Laws, where None (nothing passes) counts as later than every time and every summary:
    `results_in` and `followed_by` are monotone in both arguments; `followed_by` is associative;
    ``a.followed_by(b).results_in(time)`` equals ``b.results_in(a.results_in(time))``; no result is
    before its time, so the identity is the least summary.
    """

    @property
    def advances(self) -> bool:
        """Whether each time that passes becomes strictly later."""

    def results_in(self, time: T, /) -> T | None:
        """Return the time after the path, or None if it doesn't pass."""

    def followed_by(self, other: Self, /) -> Self | None:
        """Return the summary of this path and then the other, or None if nothing passes."""


class SummaryError(ErrataError):
    """A path summary that no path can have."""


@dataclass(frozen=True, slots=True)
class Advance:
    """A path that advances an epoch (or a round); the default is the identity.

    Args:
        by: The increment, 0 or more.
        below: Results of this or more are dropped; larger than `by`, or else nothing would ever
            pass.

    Raises:
        SummaryError: If an argument is out of its range.

    Example:
        >>> loop = Advance(by=1, below=3)
        >>> loop.results_in(Epoch(1)), loop.results_in(Epoch(2))
        (2, None)
        >>> loop.followed_by(loop)
        Advance(by=2, below=3)
    """

    by: int = 0
    below: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.by < self.below:
            raise SummaryError(
                f"a path can't advance an epoch by {self.by} below {self.below}: `by` "
                "must be at least 0 and smaller than `below`; omit a path that passes nothing"
            )

    @property
    def advances(self) -> bool:
        """Whether the increment is above 0."""
        return self.by > 0

    def less_equal(self, other: Advance, /) -> bool:
        """Whether this passes every time that the other passes, and no later."""
        return self.by <= other.by and self.below - self.by >= other.below - other.by

    def results_in(self, time: Epoch, /) -> Epoch | None:
        """Return the epoch advanced, or None if it reaches the bound."""
        result = Epoch(time + self.by) if self.by else time
        return result if result < self.below else None

    def followed_by(self, other: Advance, /) -> Advance | None:
        """Return the sum of both advances; None if together they exceed their bounds."""
        by, below = self.by + other.by, min(self.below + other.by, other.below)
        return Advance(by, below) if by < below else None


IDENTITY = Advance()


@dataclass(frozen=True, slots=True)
class ProductSummary(Generic[Outer, Inner]):
    """A path within a nested scope: one summary of the outer time, and one of the inner time.

    Example:
        >>> feedback = ProductSummary(IDENTITY, Advance(by=1))
        >>> feedback.results_in(Product(Epoch(4), Epoch(0)))
        Product(outer=4, inner=1)
    """

    outer: PathSummary[Outer]
    inner: PathSummary[Inner]

    @property
    def advances(self) -> bool:
        """Whether it advances either."""
        return self.outer.advances or self.inner.advances

    def less_equal(self, other: ProductSummary[Outer, Inner], /) -> bool:
        """Whether this is no later than the other, outside and inside."""
        return self.outer.less_equal(other.outer) and self.inner.less_equal(other.inner)

    def results_in(self, time: Product[Outer, Inner], /) -> Product[Outer, Inner] | None:
        """Return both results, or None if either time doesn't pass."""
        outer, inner = self.outer.results_in(time.outer), self.inner.results_in(time.inner)
        return None if outer is None or inner is None else Product(outer, inner)

    def followed_by(
        self, other: ProductSummary[Outer, Inner], /
    ) -> ProductSummary[Outer, Inner] | None:
        """Return both compositions, or None if either passes nothing."""
        outer, inner = self.outer.followed_by(other.outer), self.inner.followed_by(other.inner)
        return None if outer is None or inner is None else ProductSummary(outer, inner)
