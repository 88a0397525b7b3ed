"""``realised_volatility(x)``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from errata.processors.aggregates.bag import VALUES, Bag
from errata.processors.aggregates.grouping import laid_out
from errata.processors.aggregates.ladder import Key
from errata.processors.expressions.casts import cast
from errata.schemas.fields import FieldType

_DOUBLE = FieldType("double")


class RealisedVolatility(Bag):
    """The root of the sum of the squared logarithmic returns from each price to the next.

    Null prices are ignored. The result is null for less than two prices, and if one is 0 or below;
    it is NaN if one is NaN or infinite. A return is the difference of two logarithms of doubles;
    squares are summed exactly, and the sum is rounded once, then its root.

    Andersen and Bollerslev, *Answering the skeptics* (1998).

    Args:
        argument: A number, the price.
        order: The keys that prices are ordered by; the last key identifies a tuple.

    Example:
        >>> at = Key(FieldType("timestamp-millis"), largest=False)
        >>> volatility = RealisedVolatility(FieldType("double"), [at])
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"price": [100.0, 102.0, 101.0], "at": [1, 3, 2]})
        >>> states = volatility.accumulate(volatility.init(1), groups, rows)
        >>> root = math.hypot(math.log(101 / 100), math.log(102 / 101))
        >>> math.isclose(volatility.emit(states)[0], root)
        True
    """

    def __init__(self, argument: FieldType, order: Sequence[Key]) -> None:
        keys = {f"by_{number}": key for number, key in enumerate(order)}
        super().__init__(
            {**keys, VALUES: Key(argument.required, largest=False)},
            columns=(VALUES, *keys),
            needed=(VALUES,),
            result=_DOUBLE.nullable,
        )
        self.argument = argument

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the volatilities."""
        contents = self.contents(states)
        prices = cast(self.argument, _DOUBLE)(contents.rows[VALUES]).to_numpy()
        undefined = prices <= 0
        # The C library's logarithm: numpy's may depend on a value's position in the array.
        logs = np.fromiter(map(math.log, np.where(undefined, 1.0, prices).tolist()), np.float64)
        follows = contents.group[1:] == contents.group[:-1]
        with np.errstate(invalid="ignore"):
            squares = np.square(np.diff(logs))[follows]
        returns = (
            pl.DataFrame({"group": contents.group[1:][follows], "square": squares})
            .group_by("group", maintain_order=True)
            .agg("square")
        )
        sums = np.fromiter(map(math.fsum, returns["square"].to_list()), np.float64)
        roots = np.where(np.isfinite(sums), np.sqrt(sums), np.nan)
        result = laid_out(pl.Series(roots), returns["group"], states.height)
        return result.scatter(contents.group[undefined], None)
