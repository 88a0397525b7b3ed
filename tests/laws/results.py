"""More aggregate functions as the oracle knows them: of a list of tuples, exact, rounded once."""

import math
from collections.abc import Callable
from decimal import Context
from fractions import Fraction
from functools import partial
from typing import Any

from tests.laws.oracle import Tuple

Result = Callable[[list[Tuple]], Any]
Order = tuple[tuple[str, bool], ...]
"""Fields, and whether the largest comes first."""

_MANY_DIGITS = Context(prec=80)


def ordered(tuples: list[Tuple], order: Order) -> list[Tuple]:
    """Return tuples in an order; null is below all values."""
    found = list(tuples)
    for name, largest in reversed(order):
        found.sort(key=partial(_rank, name=name), reverse=largest)
    return found


def _rank(t: Tuple, name: str) -> tuple[Any, ...]:
    return () if t[name] is None else (t[name],)


def first(name: str, order: Order, *, at: int = 0, ignore_nulls: bool = False) -> Result:
    """Return what gives a field of the tuple that comes first or, with ``at=-1``, last."""

    def of(tuples: list[Tuple]) -> Any:
        some = [t for t in tuples if t[name] is not None or not ignore_nulls]
        return ordered(some, order)[at][name] if some else None

    return of


def extreme_by(name: str, key: str, order: Order, *, largest: bool) -> Result:
    """Return ``max_by`` or ``min_by``: of tuples with the same key the first in an order."""

    def of(tuples: list[Tuple]) -> Any:
        some = ordered([t for t in tuples if t[key] is not None], ((key, largest), *order))
        return some[0][name] if some else None

    return of


def smallest(name: str) -> Result:
    return lambda tuples: min((t[name] for t in tuples if t[name] is not None), default=None)


def filtered(predicate: Callable[[Tuple], Any], result: Result) -> Result:
    """Return a result of the tuples alone that a predicate is true of."""
    return lambda tuples: result([t for t in tuples if predicate(t)])


def variance(name: str, *, sample: bool, root: bool, of_doubles: bool) -> Result:
    """Return the double nearest to the variance, or to its root; of doubles the root of that."""

    def of(tuples: list[Tuple]) -> float | None:
        values = [Fraction(t[name]) for t in tuples if t[name] is not None]
        if len(values) < 1 + sample:
            return None
        mean = sum(values, Fraction(0)) / len(values)
        squares = [(value - mean) * (value - mean) for value in values]
        exact = sum(squares, Fraction(0)) / (len(values) - sample)
        if not root:
            return float(exact)
        if of_doubles:
            return math.sqrt(float(exact))
        quotient = _MANY_DIGITS.divide(exact.numerator, exact.denominator)
        return float(_MANY_DIGITS.sqrt(quotient))

    return of


def every(name: str) -> Result:
    return lambda tuples: _all([t[name] for t in tuples if t[name] is not None])


def some(name: str) -> Result:
    def of(tuples: list[Tuple]) -> bool | None:
        none = _all([not t[name] for t in tuples if t[name] is not None])
        return None if none is None else not none

    return of


def _all(values: list[bool]) -> bool | None:
    return all(values) if values else None


def around(make: Callable[..., Any], *results: Result) -> Result:
    """Return an expression around results; null if one of them is."""

    def of(tuples: list[Tuple]) -> Any:
        values = [result(tuples) for result in results]
        return None if None in values else make(*values)

    return of
