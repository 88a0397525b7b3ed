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
    """The passage between the times outside a scope and those inside.

    Laws: ``to_outer(to_inner(time)) == time``; both are monotone; ``to_inner(time)`` is the least
    inner time that has this outer one; what ``summarize(path)`` makes of an outer time is no later
    than what leaves the scope along the path.
    """

    @property
    def identity(self) -> PathSummary[Inner]:
        """The summary inside that changes nothing."""

    def to_inner(self, time: Outer, /) -> Inner:
        """Return what a time becomes as it enters."""

    def to_outer(self, time: Inner, /) -> Outer:
        """Return what a time becomes as it leaves."""

    def summarize(self, path: PathSummary[Inner], /) -> PathSummary[Outer]:
        """Return what a path from an input to an output is, seen from outside."""


@dataclass(frozen=True)
class Region(Generic[T]):
    """A scope that only groups: its times are those outside.

    Args:
        identity: The summary that changes nothing.
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
    """A loop: inside, a time has a round besides, which is 0 as it enters.

    Args:
        outer: The summary outside that changes nothing.

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
        """Return what the path does to the time outside."""
        return cast(ProductSummary[Outer, Epoch], path).outer
