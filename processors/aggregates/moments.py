"""The states of variances and correlations: sums of squares and of products.

Those of whole numbers are exact. A product of 38 digits has 76, so a sum is cut into limbs of 96
bits, each a number of 128 bits. Those of doubles are held as three doubles each.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.compensating import Signed
from errata.processors.aggregates.grouping import whole, words_of
from errata.processors.aggregates.totals import Doubles, exact_sums, two_sum
from errata.processors.expressions.decimals import to_double
from errata.schemas.fields import MAX_PRECISION, FieldType

LIMB = 2**96
_WORD_BITS, _WORDS_A_LIMB = 32, 3
_BLOCK_ROWS = 2**20  # so many words add up to less than 2**53: a double holds the sum as it is
_ROOM_DIGITS = 11  # for 10**11 rows

TOO_LARGE = 2.0**460
"""From this value on products could overflow; such a value counts as infinite."""
_SPLITTER = 2.0**27 + 1
_PLACES = ("high", "middle", "low")


def limb_count(digits: int) -> int:
    """Return how many limbs hold the sum of 10**11 products with a number of digits.

    Example:
        >>> limb_count(20), limb_count(38), limb_count(76)
        (1, 2, 3)
    """
    most = 10 ** (digits + _ROOM_DIGITS)
    count = 1
    while most >= 10**MAX_PRECISION:
        most, count = most // LIMB, count + 1
    return count


def products(
    groups: pl.Series, left: pl.Series, right: pl.Series, height: int, *, limbs: int
) -> list[pl.Series]:
    """Return the sums of the products by group as limbs, the lowest first; exact.

    Numbers are split into words of 32 bits. A product of two words has 64 bits; its halves are
    summed separately, with the sign of the whole.

    Args:
        groups: Index of a row's group.
        left: Int128 of at most 38 digits, never null; fewer than 2**27.
        right: The same number of values; the same values for sums of squares.
        height: The number of groups.
        limbs: How many limbs to return, from `limb_count`.

    Returns:
        Limbs, all but the highest in [0, 2**96).

    Example:
        >>> left = pl.Series([3, -4, 10**20], dtype=pl.Int128)
        >>> low, high = products(pl.Series([0, 0, 1]), left, left, 2, limbs=2)
        >>> low[0], low[1] + high[1] * 2**96 == 10**40
        (25, True)
    """
    one, other = words_of(left.abs()), words_of(right.abs())
    signs = (left.sign() * right.sign()).cast(pl.Float64).to_numpy()
    index = groups.to_numpy().astype(np.int64)
    count = one.shape[1]
    sums = np.zeros((max(2 * count, _WORDS_A_LIMB * limbs) + 1, height), dtype=np.int64)
    left_words, right_words = (np.flatnonzero(words.any(axis=0)) for words in (one, other))
    for start in range(0, len(index), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for low in left_words:
            for high in right_words[right_words <= low] if left is right else right_words:
                product = one[block, low].astype(np.uint64) * other[block, high]
                factor = 2 if left is right and low != high else 1
                for half, part in enumerate((product & 0xFFFFFFFF, product >> np.uint64(32))):
                    part_sums = np.bincount(
                        index[block], weights=part * signs[block], minlength=height
                    )
                    sums[low + high + half] += factor * part_sums.astype(np.int64)
    return _packed(sums, limbs)


def normalize_limbs(limbs: Sequence[pl.Series]) -> list[pl.Series]:
    """Return limbs of the same numbers, all but the highest in [0, 2**96)."""
    *lower, carry = limbs
    normalized: list[pl.Series] = []
    carried_up = whole(0)
    for limb in lower:
        total = limb + carried_up
        carried_up = total // whole(LIMB)
        normalized.append(total - carried_up * whole(LIMB))
    return [*normalized, carry + carried_up]


def join_limbs(limbs: Sequence[pl.Series], *, limb: int = LIMB) -> list[int]:
    """Return the numbers that limbs represent, the highest limb first."""
    high, *lower = (column.to_list() for column in limbs)
    for low in lower:
        high = list(map(operator.add, map(operator.mul, high, repeat(limb)), low))
    return high


def _packed(sums: npt.NDArray[np.int64], limbs: int) -> list[pl.Series]:
    """Return sums by word as limbs of three words; the highest has the rest and the sign."""
    top = _WORDS_A_LIMB * limbs  # no product of numbers that `limb_count` is of reaches further
    for word in range(top):
        sums[word + 1] += sums[word] >> _WORD_BITS
        sums[word] &= 2**_WORD_BITS - 1
    packed = []
    for limb in range(limbs):
        low, middle, high = (
            pl.Series(sums[_WORDS_A_LIMB * limb + word]).cast(pl.Int128)
            for word in range(_WORDS_A_LIMB)
        )
        packed.append(low + middle * whole(2**_WORD_BITS) + high * whole(2 ** (2 * _WORD_BITS)))
    packed[-1] += pl.Series(sums[top]).cast(pl.Int128) * whole(LIMB)
    return packed


def two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded product and the exact rounding error (Dekker), below 2**996."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


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
        is_usual = np.all([np.abs(argument) < TOO_LARGE for argument in doubles], axis=0)
        count_by_group = partial(np.bincount, minlength=states.height)
        counts = {
            "count": states["count"] + sign * count_by_group(index),
            "special": states["special"] + sign * count_by_group(index[~is_usual]),
        }
        if not is_usual.all():
            index, doubles = index[is_usual], [argument[is_usual] for argument in doubles]
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
        is_empty = (counts["count"] == counts["special"]).to_numpy()
        columns = {
            part: np.where(is_empty, 0.0, column)
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
