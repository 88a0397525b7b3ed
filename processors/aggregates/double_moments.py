"""Sums of doubles and of their products, from which variances and correlations are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from errata.processors.aggregates.double_total import Doubles, exact_sums, two_sum
from errata.processors.aggregates.signed import Signed
from errata.processors.expressions.decimals import to_double
from errata.schemas.fields import FieldType

TOO_LARGE = 2.0**460
"""From this value on products could overflow; such a value counts as infinite."""

_SPLITTER = 2.0**27 + 1
_PLACES = ("high", "middle", "low")


def two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded product and the exact rounding error (Dekker), below 2**996."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, lost


def expanded(terms: Iterable[Doubles]) -> list[Doubles]:
    """Return the sum of some doubles as three doubles, the first of which is the nearest to it.

    Each sweep passes the rounding errors one place on, as in Ogita, Rump and Oishi, *Accurate sum
    and dot product* (2005). The remainder after the third double is added to it.
    """
    parts = list(terms)
    for _ in range(3):
        for place in range(len(parts) - 1, 0, -1):
            parts[place - 1], parts[place] = two_sum(parts[place - 1], parts[place])
    return [*parts[:2], sum(reversed(parts[2:]), np.zeros(1))]


def _split(values: Doubles) -> tuple[Doubles, Doubles]:
    """Return the upper 26 bits and the rest."""
    scaled = values * _SPLITTER
    high = scaled - (scaled - values)
    return high, values - high


class DoubleMoments(Signed):
    """The state: counts, and sums of the arguments and of products of two of them.

    A sum is held as three doubles, and a product is split in two without loss. After k changes and
    merges the error of each sum is at most k * 2**-140 of the absolute values that ever entered or
    left it, plus 2**-1070 for each product of values below 2**-460. Rows in which an argument is
    null are ignored. Rows with a NaN, an infinity or a value from `TOO_LARGE` on are counted
    separately, so they can leave as well.

    Args:
        arguments: Types of the arguments; values of other types are rounded to doubles.
        sums: By name the index of the summed argument, or of the two factors.
    """

    result: FieldType

    def __init__(self, arguments: Sequence[FieldType], sums: Mapping[str, tuple[int, ...]]) -> None:
        self.argument_types = arguments
        self.sums = sums
        self.result = FieldType("double", optional=True)
        parts = [part for name in sums for part in _parts(name)]
        self.parts = {
            **dict.fromkeys(("count", "special"), FieldType("long")),
            **dict.fromkeys(parts, FieldType("double")),
        }

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Add the values that enter, and their products, or subtract those that leave."""
        rows = values.with_columns(groups.alias("@group")).drop_nulls()
        index = rows["@group"].to_numpy().astype(np.int64)
        doubles = list(map(_doubles, self.argument_types, rows.drop("@group").get_columns()))
        usual = np.all([np.abs(argument) < TOO_LARGE for argument in doubles], axis=0)
        moved = partial(np.bincount, minlength=states.height)
        counts = {
            "count": states["count"] + sign * moved(index),
            "special": states["special"] + sign * moved(index[~usual]),
        }
        if not usual.all():
            index, doubles = index[usual], [argument[usual] for argument in doubles]
        sums = {}
        for name, factors in self.sums.items():
            one, *other = (doubles[place] for place in factors)
            terms = two_product(one, *other) if other else (one,)
            change = exact_sums(
                np.tile(index, len(terms)), sign * np.concatenate(terms), states.height
            )
            sums[name] = expanded([*_sum(states, name), *change])
        return self._states(counts, sums)

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Add counts and sums."""
        counts = {name: one[name] + other[name] for name in ("count", "special")}
        sums = {name: expanded([*_sum(one, name), *_sum(other, name)]) for name in self.sums}
        return self._states(counts, sums)

    def centred(self, states: pl.DataFrame, product: str, one: str, other: str) -> Doubles:
        """Return the centred sums of products, times the count, as the nearest doubles."""
        count = states["count"].to_numpy().astype(np.float64)
        terms = [term for part in _sum(states, product) for term in two_product(part, count)]
        for left in _sum(states, one):
            for right in _sum(states, other):
                terms += two_product(left, -right)
        return expanded(terms)[0]

    def _states(
        self, counts: Mapping[str, pl.Series], sums: Mapping[str, Sequence[Doubles]]
    ) -> pl.DataFrame:
        # The sums of an empty group are exactly 0, whatever bits were lost.
        nothing = (counts["count"] == counts["special"]).to_numpy()
        columns = {
            part: np.where(nothing, 0.0, column)
            for name, total in sums.items()
            for part, column in zip(_parts(name), total, strict=True)
        }
        return pl.DataFrame({**counts, **columns})


def _parts(name: str) -> list[str]:
    return [f"{name}_{place}" for place in _PLACES]


def _sum(states: pl.DataFrame, name: str) -> list[Doubles]:
    return [states[part].to_numpy() for part in _parts(name)]


def _doubles(kind: FieldType, values: pl.Series) -> Doubles:
    if kind.kind == "decimal":
        return to_double(values, scale=kind.scale).to_numpy()
    return values.cast(pl.Float64).to_numpy()
