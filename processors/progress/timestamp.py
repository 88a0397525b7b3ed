"""Timestamps: what tells one unit of work from another, and whether it comes before (Timely).

A timestamp is what Timely Dataflow's post on its core concepts calls so: an element of a partial
order. Today's Timely asks for two things more, and so do we: a least element, and a total order
beside the partial one, since a heap needs it.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar


class PartialOrder(Protocol):
    """What is partially ordered: times, and the summaries of paths."""

    def less_equal(self, other: Self, /) -> bool:
        """Whether this comes before the other or is the same; both may be false both ways."""


class Timestamp(PartialOrder, Protocol):
    """A time of a scope: immutable and hashable.

    Laws: `less_equal` is reflexive, antisymmetric and transitive; ``a.less_equal(b)`` implies
    ``a <= b`` in the total order that ``<`` gives; `minimum` is before every other time.
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
        """Whether this comes before the other or is the same."""
        return self <= other

    def minimum(self) -> Epoch:
        """Return the first epoch."""
        return Epoch(0)


Outer = TypeVar("Outer", bound=Timestamp)
Inner = TypeVar("Inner", bound=Timestamp)


class Product(NamedTuple, Generic[Outer, Inner]):
    """A time of a nested scope: its time outside, and one of its own (epoch x round).

    One is before another if it is so in both. The total order, a tuple's, goes by the outer first.

    Example:
        >>> first, second = Product(Epoch(1), Epoch(5)), Product(Epoch(2), Epoch(3))
        >>> first.less_equal(second), second.less_equal(first), first < second
        (False, False, True)
    """

    outer: Outer
    inner: Inner

    def less_equal(self, other: Product[Outer, Inner], /) -> bool:
        """Whether this comes before the other or is the same, outside and inside."""
        return self.outer.less_equal(other.outer) and self.inner.less_equal(other.inner)

    def minimum(self) -> Product[Outer, Inner]:
        """Return the least time outside with the least inside."""
        return Product(self.outer.minimum(), self.inner.minimum())
