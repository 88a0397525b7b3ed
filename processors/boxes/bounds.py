"""How far what a box emits may be from what it would emit if no box kept revisions back.

A box with ``significance=`` sets a bound for each of its results. Below it, a field that passes
unchanged keeps its bound, and some aggregates have one that follows from it. Where an inexact field
decides which tuples there are, as in a filter, nothing has a bound any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

from errata.processors.expressions.expression import Expression


class Bound(NamedTuple):
    """A value is at most `absolute` plus `share` times the emitted value away from the exact one.

    Args:
        absolute: In the unit of the field; milliseconds for a timestamp.
        share: A share of the size of the emitted value.
        one_sign: Whether it holds only where no two values have different signs.
    """

    absolute: Fraction = Fraction(0)
    share: Fraction = Fraction(0)
    one_sign: bool = False

    def and_then(self, other: Bound) -> Bound:
        """Return the bound of a value that is within another one of a value within this one.

        Example:
            >>> str(Bound(share=Fraction(1, 10)).and_then(Bound(share=Fraction(1, 10))).share)
            '21/100'
        """
        absolute = self.absolute + other.absolute + self.share * other.absolute
        share = self.share + other.share + self.share * other.share
        return Bound(absolute, share, self.one_sign or other.one_sign)

    def or_else(self, other: Bound) -> Bound:
        """Return the bound of a value that is within one of the two."""
        absolute, share = max(self.absolute, other.absolute), max(self.share, other.share)
        return Bound(absolute, share, self.one_sign or other.one_sign)


@dataclass(frozen=True)
class Bounds:
    """The bounds of an arc.

    Args:
        fields: By field that may be inexact; None: it has no bound.
        why: Why nothing has a bound; "" if there are bounds.
    """

    fields: Mapping[str, Bound | None] = field(default_factory=dict)
    why: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether nothing is inexact."""
        return not self.fields and not self.why

    def reads(self, names: Iterable[str]) -> bool:
        """Whether one of some fields is inexact."""
        return not self.fields.keys().isdisjoint(names)

    def of(self, expression: Expression) -> tuple[Bound | None, bool]:
        """Return the bound of an expression, and whether it is inexact.

        Only a field by itself has a bound.
        """
        if not self.reads(expression.columns):
            return None, False
        return (self.fields[expression.text] if expression.is_field else None), True

    def computed(self, expressions: Mapping[str, Expression]) -> Bounds:
        """Return the bounds of the results of expressions, by name."""
        found = {name: self.of(expression) for name, expression in expressions.items()}
        return Bounds({name: bound for name, (bound, is_inexact) in found.items() if is_inexact})

    def only(self, names: Iterable[str]) -> Bounds:
        """Return the bounds of some fields."""
        return Bounds({name: self.fields[name] for name in names if name in self.fields})


EXACT = Bounds()


def both(one: Bounds, other: Bounds) -> Bounds:
    """Return the bounds where tuples come from one of two arcs."""
    fields = dict(one.fields)
    for name, bound in other.fields.items():
        known = fields.get(name, bound)
        fields[name] = None if bound is None or known is None else bound.or_else(known)
    return Bounds(fields)


def either(several: Iterable[Bounds]) -> Bounds:
    """Return the bounds where tuples come from one of several arcs."""
    return reduce(both, several, EXACT)
