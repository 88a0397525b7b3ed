"""Variance and standard deviation of whole numbers and decimals, rounded once."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import repeat

import polars as pl

from errata.processors.aggregates.grouping import laid_out, present
from errata.processors.aggregates.integer_total import TOTAL_LIMB, IntegerTotal
from errata.processors.aggregates.squares import carried, joined, limb_count, products
from errata.schemas.fields import FieldType

_LONG_DIGITS = 19
_ROOT_BITS = 400
"""Binary places of a root before rounding: with these, the least correlation, 1 / 10**98, and the
root of the least variance, 10**-76 / 10**22, have more than 64 bits."""


class IntegerVariance(IntegerTotal):
    """Variance or standard deviation of whole numbers or decimals as the nearest double.

    It is computed from the exact total and the exact sum of squares, for up to 10**11 rows. It is
    null for a sample of less than two values, and for a population without values.

    Args:
        argument: An int, a long or a decimal.
        sample: Whether to divide by count - 1 rather than count.
        root: Whether to return the standard deviation.

    Example:
        >>> spread = IntegerVariance(FieldType("long"), sample=True, root=False)
        >>> rows = pl.DataFrame({"x": [10**15 + 1, 10**15 + 2, 10**15 + 4]})
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> spread.emit(spread.accumulate(spread.init(1), groups, rows))[0]
        2.3333333333333335
    """

    def __init__(self, argument: FieldType, *, sample: bool, root: bool) -> None:
        super().__init__(argument, FieldType("double", optional=True))
        self.sample, self.root = sample, root
        limbs = limb_count(2 * digits(argument))
        limb = FieldType("decimal", 38)
        self.totals = list(self.parts)[1:]
        self.squares = [f"squares_{number}" for number in range(limbs)]
        self.parts = {**self.parts, **dict.fromkeys(self.squares, limb)}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The four functions of one argument share their state."""
        return ("integer variance", self.wide, len(self.squares))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the variances, or their roots."""
        least = 1 + self.sample
        there = states["count"] >= least
        some = states.filter(there)
        count = some["count"].to_list()
        total = joined([some[name] for name in self.totals], limb=TOTAL_LIMB)
        squares = joined([some[name] for name in reversed(self.squares)])
        # count * squares - total ** 2 over count * (count - sample) * 10 ** (2 * scale): exact,
        # and each step is one call in C per group.
        above = map(operator.sub, map(operator.mul, count, squares), map(pow, total, repeat(2)))
        divisor = map(operator.sub, count, repeat(int(self.sample)))
        unit = repeat(10 ** (2 * self.argument.scale))
        below = map(operator.mul, map(operator.mul, count, divisor), unit)
        values = list((roots if self.root else quotients)(above, below))
        return laid_out(pl.Series(values, dtype=pl.Float64), there.arg_true(), states.height)

    def _sums(self, groups: pl.Series, values: pl.DataFrame, *, height: int) -> list[pl.Series]:
        totals = super()._sums(groups, values, height=height)
        groups, numbers = present(groups, values.to_series(0))
        numbers = numbers.cast(pl.Int128)
        return totals + products(groups, numbers, numbers, height, limbs=len(self.squares))

    def _carried(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        states = super()._carried(columns)
        limbs = carried([states[name] for name in self.squares])
        return states.with_columns(
            limb.alias(name) for name, limb in zip(self.squares, limbs, strict=True)
        )


def digits(argument: FieldType) -> int:
    """Return the most digits of a whole number or decimal."""
    return argument.precision or _LONG_DIGITS


def quotients(above: Iterable[int], below: Iterable[int]) -> Iterator[float]:
    """Return the doubles nearest to quotients."""
    # Python divides integers of any size with one rounding.
    return map(operator.truediv, above, below)


def roots(above: Iterable[int], below: Iterable[int]) -> Iterator[float]:
    """Return the doubles nearest to the roots of quotients.

    Roots are truncated to `_ROOT_BITS` binary places and rounded to odd, so that the second
    rounding, to a double, is correct.

    Example:
        >>> list(roots([18, 2], [2, 1]))
        [3.0, 1.4142135623730951]
    """
    scaled = list(map(operator.lshift, above, repeat(2 * _ROOT_BITS)))
    divisors = list(below)
    whole = list(map(operator.floordiv, scaled, divisors))
    cut = list(map(math.isqrt, whole))
    exact = map(operator.eq, map(operator.mul, map(operator.mul, cut, cut), divisors), scaled)
    odd: Iterator[int] = map(operator.or_, cut, map(operator.not_, exact))
    return map(operator.truediv, odd, repeat(1 << _ROOT_BITS))
