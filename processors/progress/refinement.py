"""Refinements: how the times of a scope relate to those outside it (Timely's ``Refines``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from errata.processors.progress.summary import IDENTITY, PathSummary, ProductSummary
from errata.processors.progress.timestamp import Epoch, Product, Timestamp

T = TypeVar("T", bound=Timestamp)
Outer = TypeVar("Outer", bound=Timestamp)
Inner = TypeVar("Inner", bound=Timestamp)


class Refinement(Protocol[Outer, Inner]):
    """The mapping between the times outside a scope and those inside.

    Laws: ``to_outer(to_inner(time)) == time``; both are monotone; ``to_inner(time)`` is the least
    inner time that has this outer one; ``summarize(path)`` maps an outer time to one no later than
    the time at which it leaves the scope along the path.
    """

    @property
    def identity(self) -> PathSummary[Inner]:
        """The identity summary inside."""

    def to_inner(self, time: Outer, /) -> Inner:
        """Return the inner time of a time that enters."""

    def to_outer(self, time: Inner, /) -> Outer:
        """Return the outer time of a time that leaves."""

    def summarize(self, path: PathSummary[Inner], /) -> PathSummary[Outer]:
        """Return the outer summary of a path from an input to an output."""


@dataclass(frozen=True)
class Region(Generic[T]):
    """A scope that only groups operators: its times are those outside.

    Args:
        identity: The identity summary.
    """

    identity: PathSummary[T]

    def to_inner(self, time: T, /) -> T:
        """Return the time itself."""
        return time

    def to_outer(self, time: T, /) -> T:
        """Return the time itself."""
        return time

    def summarize(self, path: PathSummary[T], /) -> PathSummary[T]:
        """Return the path itself."""
        return path


@dataclass(frozen=True)
class Rounds(Generic[Outer]):
    """A loop: inside, a time also has a round, which is 0 as it enters.

    Args:
        outer: The identity summary outside.

    Example:
        >>> loop = Rounds(IDENTITY)
        >>> loop.to_inner(Epoch(3)), loop.to_outer(Product(Epoch(3), Epoch(9)))
        (Product(outer=3, inner=0), 3)
    """

    outer: PathSummary[Outer]

    @property
    def identity(self) -> PathSummary[Product[Outer, Epoch]]:
        """The summary that changes neither the time outside nor the round."""
        return ProductSummary(self.outer, IDENTITY)

    def to_inner(self, time: Outer, /) -> Product[Outer, Epoch]:
        """Return the time at round 0."""
        return Product(time, Epoch(0))

    def to_outer(self, time: Product[Outer, Epoch], /) -> Outer:
        """Return the time without its round."""
        return time.outer

    def summarize(self, path: PathSummary[Product[Outer, Epoch]], /) -> PathSummary[Outer]:
        """Return the path's summary of the outer time."""
        return cast(ProductSummary[Outer, Epoch], path).outer
