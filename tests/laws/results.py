"""The oracle's other aggregate functions: of a list of tuples, exact, rounded once."""

import math
from collections import Counter
from collections.abc import Callable
from decimal import Context
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from operator import or_
from typing import Any

from tests.laws.oracle import Tuple

Result = Callable[[list[Tuple]], Any]
Order = tuple[tuple[str, bool], ...]
"""Fields, and whether the largest value comes first."""

_MANY_DIGITS = Context(prec=80)


def ordered(tuples: list[Tuple], order: Order) -> list[Tuple]:
    """Return tuples in an order; null sorts below all values."""
    found = list(tuples)
    for name, largest in reversed(order):
        found.sort(key=partial(_rank, name=name), reverse=largest)
    return found


def _rank(t: Tuple, name: str) -> tuple[Any, ...]:
    return () if t[name] is None else (t[name],)


def first(name: str, order: Order, *, at: int = 0, ignore_nulls: bool = False) -> Result:
    """Return a function for a field of the tuple that comes first or, with ``at=-1``, last."""

    def of(tuples: list[Tuple]) -> Any:
        some = [t for t in tuples if t[name] is not None or not ignore_nulls]
        return ordered(some, order)[at][name] if some else None

    return of


def extreme_by(name: str, key: str, order: Order, *, largest: bool) -> Result:
    """Return ``max_by`` or ``min_by``; of tuples with equal keys the first in an order counts."""

    def of(tuples: list[Tuple]) -> Any:
        some = ordered([t for t in tuples if t[key] is not None], ((key, largest), *order))
        return some[0][name] if some else None

    return of


def smallest(name: str) -> Result:
    return lambda tuples: min((t[name] for t in tuples if t[name] is not None), default=None)


def filtered(predicate: Callable[[Tuple], Any], result: Result) -> Result:
    """Return a result over only those tuples for which a predicate is true."""
    return lambda tuples: result([t for t in tuples if predicate(t)])


def variance(name: str, *, sample: bool, root: bool, of_doubles: bool) -> Result:
    """Return the double nearest to the variance, or to its root; for doubles the root of that."""

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


def bits(name: str) -> Result:
    """Return the bits that are set in some value."""

    def of(tuples: list[Tuple]) -> int | None:
        values = [t[name] for t in tuples if t[name] is not None]
        return reduce(or_, values) if values else None

    return of


def _all(values: list[bool]) -> bool | None:
    return all(values) if values else None


def around(make: Callable[..., Any], *results: Result) -> Result:
    """Return an expression over results; null if one of them is."""

    def of(tuples: list[Tuple]) -> Any:
        values = [result(tuples) for result in results]
        return None if None in values else make(*values)

    return of


# -------------------------------------------------------------------------------- whole contents


def _sorted(name: str, tuples: list[Tuple]) -> list[Any]:
    return sorted(t[name] for t in tuples if t[name] is not None)


def percentile(name: str, share: Fraction) -> Result:
    """Return the double nearest to the interpolation between the closest ranks."""

    def of(tuples: list[Tuple]) -> float | None:
        values = list(map(Fraction, _sorted(name, tuples)))
        if not values:
            return None
        rank, rest = divmod(share * (len(values) - 1), 1)
        upper = values[math.ceil(rank + rest)]
        return float(values[int(rank)] * (1 - rest) + upper * rest)

    return of


def distinct(*names: str) -> Result:
    def of(tuples: list[Tuple]) -> int:
        rows = {tuple(t[name] for name in names) for t in tuples}
        return sum(None not in row for row in rows)

    return of


def _common(name: str, tuples: list[Tuple]) -> list[tuple[Any, int]]:
    # Sorted by value; a stable sort by count keeps that order.
    return Counter(_sorted(name, tuples)).most_common()


def mode(name: str) -> Result:
    return lambda tuples: next((value for value, _ in _common(name, tuples)), None)


def top_k(name: str, most: int, text: Callable[[Any], str]) -> Result:
    def of(tuples: list[Tuple]) -> str | None:
        values = _sorted(name, tuples)
        return f"[{','.join(map(text, values[::-1][:most]))}]" if values else None

    return of


def most_common(name: str, most: int, text: Callable[[Any], str]) -> Result:
    def of(tuples: list[Tuple]) -> str | None:
        pairs = _common(name, tuples)[:most]
        items = [f'{{"item":{text(value)},"count":{count}}}' for value, count in pairs]
        return f"[{','.join(items)}]" if items else None

    return of


def volatility(price: Callable[[Tuple], Any], order: Order) -> Result:
    """Return the root of the exact sum of squared returns between consecutive prices."""

    def of(tuples: list[Tuple]) -> float | None:
        given = [value for t in ordered(tuples, order) if (value := price(t)) is not None]
        if len(given) < 2 or min(given) <= 0:
            return None
        logs = [math.log(float(value)) for value in given]
        returns = [after - before for before, after in pairwise(logs)]
        return math.sqrt(sum(Fraction(one * one) for one in returns))

    return of


# -------------------------------------------------------------------------------- two arguments


def covariance(what: str, name: str, other: str, *, of_doubles: bool) -> Result:
    """Return ``corr``, ``covar_samp`` or ``covar_pop``: the nearest double, or close for doubles.

    For doubles the sums about the means are exact, and each later step is rounded.
    """

    def exact(value: Any) -> Fraction:
        return Fraction(float(value) if of_doubles else value)

    def of(tuples: list[Tuple]) -> float | None:
        rows = [(t[name], t[other]) for t in tuples if None not in (t[name], t[other])]
        count = len(rows)
        if count < 2 - (what == "covar_pop"):
            return None
        xs, ys = ([exact(row[place]) for row in rows] for place in (0, 1))
        both, one, two = (_about(*pair) for pair in ((xs, ys), (xs, xs), (ys, ys)))
        if what != "corr":
            return float(both / (count * (count - (what == "covar_samp"))))
        if not one * two:
            return None
        if of_doubles:
            found = float(both) / math.sqrt(float(one)) / math.sqrt(float(two))
            return max(-1.0, min(found, 1.0))
        square = both * both / (one * two)
        root = _MANY_DIGITS.sqrt(_MANY_DIGITS.divide(square.numerator, square.denominator))
        return math.copysign(float(root), both)

    return of


def _about(xs: list[Fraction], ys: list[Fraction]) -> Fraction:
    """Return the sum of products about the means, times the count."""
    products = sum((x * y for x, y in zip(xs, ys, strict=True)), Fraction(0))
    return len(xs) * products - sum(xs, Fraction(0)) * sum(ys, Fraction(0))
