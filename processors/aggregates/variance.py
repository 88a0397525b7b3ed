"""Variances, standard deviations, covariances (``covar_samp``, ``covar_pop``) and ``corr``.

Those of whole numbers and decimals are rounded once. Those of doubles are computed from sums that
do not drift.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat

import numpy as np
import polars as pl

from errata.processors.aggregates.compensating import Signed
from errata.processors.aggregates.grouping import count_rows, drop_nulls, scatter_to_groups
from errata.processors.aggregates.moments import (
    DoubleMoments,
    join_limbs,
    limb_count,
    normalize_limbs,
    products,
)
from errata.processors.aggregates.totals import TOTAL_LIMB, IntegerTotal
from errata.schemas.fields import FieldType

_LONG_DIGITS = 19
_ROOT_BITS = 400
"""Binary places of a root before rounding: with these, the least correlation, 1 / 10**98, and the
root of the least variance, 10**-76 / 10**22, have more than 64 bits."""

SUMS = {"x": (0,), "y": (1,), "xx": (0, 0), "xy": (0, 1), "yy": (1, 1)}
"""The sums in the state: of an argument, or of the product of two."""


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
        least_count = 1 + self.sample
        has_result = states["count"] >= least_count
        selected = states.filter(has_result)
        count = selected["count"].to_list()
        total = join_limbs([selected[name] for name in self.totals], limb=TOTAL_LIMB)
        squares = join_limbs([selected[name] for name in reversed(self.squares)])
        # count * squares - total ** 2 over count * (count - sample) * 10 ** (2 * scale): exact,
        # and each step is one call in C per group.
        numerators = map(
            operator.sub, map(operator.mul, count, squares), map(pow, total, repeat(2))
        )
        divisor = map(operator.sub, count, repeat(int(self.sample)))
        unit = repeat(10 ** (2 * self.argument.scale))
        denominators = map(operator.mul, map(operator.mul, count, divisor), unit)
        values = list((roots if self.root else quotients)(numerators, denominators))
        return scatter_to_groups(
            pl.Series(values, dtype=pl.Float64), has_result.arg_true(), states.height
        )

    def _sums(self, groups: pl.Series, values: pl.DataFrame, *, height: int) -> list[pl.Series]:
        totals = super()._sums(groups, values, height=height)
        groups, numbers = drop_nulls(groups, values.to_series(0))
        numbers = numbers.cast(pl.Int128)
        return totals + products(groups, numbers, numbers, height, limbs=len(self.squares))

    def _normalized(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        states = super()._normalized(columns)
        limbs = normalize_limbs([states[name] for name in self.squares])
        return states.with_columns(
            limb.alias(name) for name, limb in zip(self.squares, limbs, strict=True)
        )


def digits(argument: FieldType) -> int:
    """Return the most digits of a whole number or decimal."""
    return argument.precision or _LONG_DIGITS


def quotients(numerators: Iterable[int], denominators: Iterable[int]) -> Iterator[float]:
    """Return the doubles nearest to quotients."""
    # Python divides integers of any size with one rounding.
    return map(operator.truediv, numerators, denominators)


def roots(numerators: Iterable[int], denominators: Iterable[int]) -> Iterator[float]:
    """Return the doubles nearest to the roots of quotients.

    Roots are truncated to `_ROOT_BITS` binary places and rounded to odd, so that the second
    rounding, to a double, is correct.

    Example:
        >>> list(roots([18, 2], [2, 1]))
        [3.0, 1.4142135623730951]
    """
    scaled = list(map(operator.lshift, numerators, repeat(2 * _ROOT_BITS)))
    divisors = list(denominators)
    whole = list(map(operator.floordiv, scaled, divisors))
    truncated = list(map(math.isqrt, whole))
    exact = map(
        operator.eq, map(operator.mul, map(operator.mul, truncated, truncated), divisors), scaled
    )
    odd: Iterator[int] = map(operator.or_, truncated, map(operator.not_, exact))
    return map(operator.truediv, odd, repeat(1 << _ROOT_BITS))


class DoubleVariance(DoubleMoments):
    """Variance or standard deviation of a double or float.

    The result is computed from sums with the error bound of `DoubleMoments`, 2**-130 of the mean
    square, and then rounded in two steps, three for a root.

    It is null for a sample of less than two values, and for a population without values. With a NaN
    or an infinity it is NaN. NaN and infinities can leave again, and so can a value from
    `TOO_LARGE` on, which counts as an infinity.

    Args:
        sample: Whether to divide by count - 1 rather than count.
        root: Whether to return the standard deviation.

    Example:
        >>> spread = DoubleVariance(sample=True, root=False)
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [1.0, 3.0, 1e17]})
        >>> states = spread.accumulate(spread.init(1), groups, rows)
        >>> spread.emit(spread.compensate(states, groups[:1], rows[2:]))[0]
        2.0
    """

    def __init__(self, *, sample: bool, root: bool) -> None:
        super().__init__([FieldType("double")], {"total": (0,), "square": (0, 0)})
        self.sample, self.root = sample, root

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The four functions of one argument share their state."""
        return ("double variance",)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the variances, or their roots."""
        count, special = (states[name].to_numpy() for name in ("count", "special"))
        centred = np.maximum(self.centred(states, "square", "total", "total"), 0.0)
        rows = count.astype(np.float64)
        divisor = np.maximum(rows * (rows - self.sample), 1.0)
        values = np.where(special > 0, np.nan, centred / divisor)
        roots = np.sqrt(values) if self.root else values
        return pl.Series(roots).set(states["count"] < 1 + self.sample, None)


CORR, SAMPLE, POPULATION = "corr", "covar_samp", "covar_pop"


class DoubleCovariance(DoubleMoments):
    """Covariance or correlation of two numbers, at least one of them a double or float.

    Covariances are computed from sums with the error bound of `DoubleMoments`, 2**-130 of the
    product of the root mean squares, and then rounded in two steps; a correlation in seven.

    Results are null as in `IntegerCovariance`, with one exception: values that are all the same
    have a correlation while the rounding errors that far larger values left in the sums are not 0.
    With a NaN or an infinity the result is NaN. NaN and infinities can leave again, and so can a
    value from `TOO_LARGE` on, which counts as an infinity.

    Args:
        arguments: Types of the arguments.
        what: ``corr``, ``covar_samp`` or ``covar_pop``.

    Example:
        >>> both = DoubleCovariance([FieldType("double"), FieldType("long")], CORR)
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [1.0, 2.5, 1e17], "y": [3, 2, 1]})
        >>> states = both.accumulate(both.init(1), groups, rows)
        >>> both.emit(both.compensate(states, groups[:1], rows[2:]))[0]
        -1.0
    """

    def __init__(self, arguments: Sequence[FieldType], what: str) -> None:
        super().__init__(arguments, SUMS)
        self.what = what

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The three functions of the same arguments share their state."""
        return ("double covariance",)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the covariances or correlations."""
        count, special = (states[name].to_numpy() for name in ("count", "special"))
        centred = self.centred(states, "xy", "x", "y")
        if self.what == CORR:
            one, other = (
                np.sqrt(np.maximum(self.centred(states, square, name, name), 0.0))
                for name, square in (("x", "xx"), ("y", "yy"))
            )
            constant = (one == 0) | (other == 0)
            one, other = (np.where(constant, 1.0, spread) for spread in (one, other))
            values = pl.Series(np.clip(centred / one / other, -1.0, 1.0)).set(
                pl.Series(constant), None
            )
        else:
            rows = count.astype(np.float64)
            divisor = np.maximum(rows * (rows - (self.what == SAMPLE)), 1.0)
            values = pl.Series(centred / divisor)
        values = values.set(pl.Series(special > 0), np.nan)
        return values.set(states["count"] < _least(self.what), None)


class IntegerCovariance(Signed):
    """Covariance or correlation of whole numbers or decimals as the nearest double.

    It is computed from exact sums, for up to 10**11 rows. Rows in which an argument is null are
    ignored. A population covariance is null without rows; a sample covariance and a correlation are
    null for less than two rows. A correlation is also null if all values of one argument are the
    same: there Spark fails with a division by zero or, outside ANSI mode, returns null.

    Args:
        arguments: Types of the arguments.
        what: ``corr``, ``covar_samp`` or ``covar_pop``.

    Example:
        >>> both = IntegerCovariance([FieldType("long"), FieldType("int")], SAMPLE)
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [1, 2, 3], "y": [10, 20, 60]})
        >>> states = both.accumulate(both.init(1), groups, rows)
        >>> both.emit(states)[0], both.emit(both.compensate(states, groups[:1], rows[2:]))[0]
        (25.0, 5.0)
    """

    result: FieldType
    parts: dict[str, FieldType]

    def __init__(self, arguments: Sequence[FieldType], what: str) -> None:
        self.argument_types = arguments
        self.what = what
        self.result = FieldType("double", optional=True)
        self.limbs = {
            name: limb_count(sum(digits(arguments[place]) for place in places))
            for name, places in SUMS.items()
        }
        names = [part for name in SUMS for part in self._limbs(name)]
        self.parts = {"count": FieldType("long"), **dict.fromkeys(names, FieldType("decimal", 38))}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The three functions of the same arguments share their state."""
        return ("integer covariance", *self.limbs.values())

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Add the values that enter, and their products, or subtract those that leave."""
        step = operator.add if sign > 0 else operator.sub
        return self._normalized(states, self._sums(groups, values, states.height), step)

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and sums."""
        return self._normalized(one, other, operator.add)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the covariances or correlations."""
        rows = (states["count"] >= _least(self.what)).arg_true()
        selected = states[rows]
        counts = selected["count"].to_list()
        sums = {
            name: join_limbs([selected[part] for part in reversed(self._limbs(name))])
            for name in SUMS
        }

        def centred(product: str, one: str, other: str) -> list[int]:
            """Return the centred sums of products, times the count."""
            means = map(operator.mul, sums[one], sums[other])
            return list(map(operator.sub, map(operator.mul, counts, sums[product]), means))

        products = centred("xy", "x", "y")
        if self.what == CORR:
            spreads = list(map(operator.mul, centred("xx", "x", "x"), centred("yy", "y", "y")))
            sizes = roots(map(operator.mul, products, products), map(max, spreads, repeat(1)))
            values = pl.Series(list(map(math.copysign, sizes, products)), dtype=pl.Float64)
            values = values.set(pl.Series(map(operator.not_, spreads), dtype=pl.Boolean), None)
        else:
            divisor = map(operator.sub, counts, repeat(int(self.what == SAMPLE)))
            unit = repeat(10 ** sum(kind.scale for kind in self.argument_types))
            denominators = map(operator.mul, map(operator.mul, counts, divisor), unit)
            values = pl.Series(list(quotients(products, denominators)), dtype=pl.Float64)
        return scatter_to_groups(values, rows, states.height)

    def _sums(self, groups: pl.Series, values: pl.DataFrame, height: int) -> pl.DataFrame:
        """Return the states of the given rows only."""
        rows = values.with_columns(groups.alias("@group")).drop_nulls()
        groups = rows["@group"]
        numbers = [column.cast(pl.Int128) for column in rows.drop("@group").get_columns()]
        one = pl.repeat(1, rows.height, dtype=pl.Int128, eager=True)
        columns = {"count": pl.Series(count_rows(groups, height))}
        for name, places in SUMS.items():
            left, right = [*(numbers[place] for place in places), one][:2]
            limbs = products(groups, left, right, height, limbs=self.limbs[name])
            columns |= dict(zip(self._limbs(name), limbs, strict=True))
        return pl.DataFrame(columns)

    def _normalized(
        self,
        one: pl.DataFrame,
        other: pl.DataFrame,
        step: Callable[[pl.Series, pl.Series], pl.Series],
    ) -> pl.DataFrame:
        """Return the states of sums or differences, with limbs normalized."""
        columns = {name: step(one[name], other[name]) for name in self.parts}
        for name in SUMS:
            parts = self._limbs(name)
            limbs = normalize_limbs([columns[part] for part in parts])
            columns |= dict(zip(parts, limbs, strict=True))
        return pl.DataFrame(columns)

    def _limbs(self, name: str) -> list[str]:
        """Return the names of the parts that hold a sum, the lowest limb first."""
        return [f"{name}_{number}" for number in range(self.limbs[name])]


def _least(what: str) -> int:
    """Return the least number of rows for which the result is not null."""
    return 1 if what == POPULATION else 2
