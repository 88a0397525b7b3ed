"""Exact sums of squares and products of whole numbers, by group.

A product of 38 digits has 76, so a sum is cut into limbs of 96 bits, each a number of 128 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.grouping import whole, words_of
from errata.schemas.fields import MAX_PRECISION

LIMB = 2**96
_WORD_BITS, _WORDS_A_LIMB = 32, 3
_BLOCK_ROWS = 2**20  # so many words add up to less than 2**53: a double holds the sum as it is
_ROOM_DIGITS = 11  # for 10**11 rows


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
    used, with_them = (np.flatnonzero(words.any(axis=0)) for words in (one, other))
    for start in range(0, len(index), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for low in used:
            for high in with_them[with_them <= low] if left is right else with_them:
                product = one[block, low].astype(np.uint64) * other[block, high]
                twice = 2 if left is right and low != high else 1
                for half, part in enumerate((product & 0xFFFFFFFF, product >> np.uint64(32))):
                    found = np.bincount(index[block], weights=part * signs[block], minlength=height)
                    sums[low + high + half] += twice * found.astype(np.int64)
    return _packed(sums, limbs)


def carried(limbs: Sequence[pl.Series]) -> list[pl.Series]:
    """Return limbs of the same numbers, all but the highest in [0, 2**96)."""
    *lower, carry = limbs
    done: list[pl.Series] = []
    up = whole(0)
    for limb in lower:
        total = limb + up
        up = total // whole(LIMB)
        done.append(total - up * whole(LIMB))
    return [*done, carry + up]


def joined(limbs: Sequence[pl.Series], *, limb: int = LIMB) -> list[int]:
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
