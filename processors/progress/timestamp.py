"""Timestamps: they distinguish units of work and order them (Timely).

As in Timely Dataflow's post on its core concepts, a timestamp is an element of a partial order.
Today's Timely, like Errata, requires two more things: a least element, and a total order that
extends the partial one, since a heap needs it.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar


class PartialOrder(Protocol):
    """A partially ordered type: times, and path summaries."""

    def less_equal(self, other: Self, /) -> bool:
        """Whether this is before the other or equal to it; it may be false in both directions."""


class Timestamp(PartialOrder, Protocol):
    """A time of a scope: immutable and hashable.

    Laws: `less_equal` is reflexive, antisymmetric and transitive; ``a.less_equal(b)`` implies
    ``a <= b`` in the total order of ``<``; `minimum` is before every other time.
    """

    def minimum(self) -> Self:
        """Return the least time of this time's kind."""

    def __hash__(self) -> int: ...

    def __lt__(self, other: Any, /) -> bool: ...


class Epoch(int):
    """An epoch, or a round of a loop: an integer of 0 or more, totally ordered.

    Example:
        >>> Epoch(2).less_equal(Epoch(3)), Epoch(7).minimum()
        (True, 0)
    """

    __slots__ = ()

    def less_equal(self, other: Epoch, /) -> bool:
        """Whether this is before the other or equal to it."""
        return self <= other

    def minimum(self) -> Epoch:
        """Return the first epoch."""
        return Epoch(0)


Outer = TypeVar("Outer", bound=Timestamp)
Inner = TypeVar("Inner", bound=Timestamp)


class Product(NamedTuple, Generic[Outer, Inner]):
    """A time of a nested scope: its time outside, and one of its own (epoch x round).

    One is before another if it is so in both components. The total order is a tuple's: by the outer
    time first.

    Example:
        >>> first, second = Product(Epoch(1), Epoch(5)), Product(Epoch(2), Epoch(3))
        >>> first.less_equal(second), second.less_equal(first), first < second
        (False, False, True)
    """

    outer: Outer
    inner: Inner

    def less_equal(self, other: Product[Outer, Inner], /) -> bool:
        """Whether this is before the other or equal to it, outside and inside."""
        return self.outer.less_equal(other.outer) and self.inner.less_equal(other.inner)

    def minimum(self) -> Product[Outer, Inner]:
        """Return the least time outside with the least inside."""
        return Product(self.outer.minimum(), self.inner.minimum())
