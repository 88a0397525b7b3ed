"""``covar_samp(x, y)``, ``covar_pop(x, y)`` and ``corr(x, y)``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from itertools import repeat

import numpy as np
import polars as pl

from errata.processors.aggregates.double_moments import DoubleMoments
from errata.processors.aggregates.grouping import counted, laid_out
from errata.processors.aggregates.signed import Signed
from errata.processors.aggregates.squares import carried, joined, limb_count, products
from errata.processors.aggregates.variance import digits, quotients, roots
from errata.schemas.fields import FieldType

SUMS = {"x": (0,), "y": (1,), "xx": (0, 0), "xy": (0, 1), "yy": (1, 1)}
"""The sums in the state: of an argument, or of the product of two."""

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
        about = self.centred(states, "xy", "x", "y")
        if self.what == CORR:
            one, other = (
                np.sqrt(np.maximum(self.centred(states, square, name, name), 0.0))
                for name, square in (("x", "xx"), ("y", "yy"))
            )
            constant = (one == 0) | (other == 0)
            one, other = (np.where(constant, 1.0, spread) for spread in (one, other))
            values = pl.Series(np.clip(about / one / other, -1.0, 1.0)).set(
                pl.Series(constant), None
            )
        else:
            rows = count.astype(np.float64)
            divisor = np.maximum(rows * (rows - (self.what == SAMPLE)), 1.0)
            values = pl.Series(about / divisor)
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
        return self._carried(states, self._sums(groups, values, states.height), step)

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and sums."""
        return self._carried(one, other, operator.add)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the covariances or correlations."""
        at = (states["count"] >= _least(self.what)).arg_true()
        some = states[at]
        counts = some["count"].to_list()
        sums = {name: joined([some[part] for part in reversed(self._limbs(name))]) for name in SUMS}

        def about(product: str, one: str, other: str) -> list[int]:
            """Return the centred sums of products, times the count."""
            means = map(operator.mul, sums[one], sums[other])
            return list(map(operator.sub, map(operator.mul, counts, sums[product]), means))

        both = about("xy", "x", "y")
        if self.what == CORR:
            spreads = list(map(operator.mul, about("xx", "x", "x"), about("yy", "y", "y")))
            sizes = roots(map(operator.mul, both, both), map(max, spreads, repeat(1)))
            values = pl.Series(list(map(math.copysign, sizes, both)), dtype=pl.Float64)
            values = values.set(pl.Series(map(operator.not_, spreads), dtype=pl.Boolean), None)
        else:
            divisor = map(operator.sub, counts, repeat(int(self.what == SAMPLE)))
            unit = repeat(10 ** sum(kind.scale for kind in self.argument_types))
            below = map(operator.mul, map(operator.mul, counts, divisor), unit)
            values = pl.Series(list(quotients(both, below)), dtype=pl.Float64)
        return laid_out(values, at, states.height)

    def _sums(self, groups: pl.Series, values: pl.DataFrame, height: int) -> pl.DataFrame:
        """Return the states of the given rows only."""
        rows = values.with_columns(groups.alias("@group")).drop_nulls()
        groups = rows["@group"]
        numbers = [column.cast(pl.Int128) for column in rows.drop("@group").get_columns()]
        one = pl.repeat(1, rows.height, dtype=pl.Int128, eager=True)
        columns = {"count": pl.Series(counted(groups, height))}
        for name, places in SUMS.items():
            left, right = [*(numbers[place] for place in places), one][:2]
            limbs = products(groups, left, right, height, limbs=self.limbs[name])
            columns |= dict(zip(self._limbs(name), limbs, strict=True))
        return pl.DataFrame(columns)

    def _carried(
        self,
        one: pl.DataFrame,
        other: pl.DataFrame,
        step: Callable[[pl.Series, pl.Series], pl.Series],
    ) -> pl.DataFrame:
        """Return the states of sums or differences, with limbs normalized."""
        columns = {name: step(one[name], other[name]) for name in self.parts}
        for name in SUMS:
            parts = self._limbs(name)
            limbs = carried([columns[part] for part in parts])
            columns |= dict(zip(parts, limbs, strict=True))
        return pl.DataFrame(columns)

    def _limbs(self, name: str) -> list[str]:
        """Return the names of the parts that hold a sum, the lowest limb first."""
        return [f"{name}_{number}" for number in range(self.limbs[name])]


def _least(what: str) -> int:
    """Return the least number of rows for which the result is not null."""
    return 1 if what == POPULATION else 2
