"""Exact sums of squares of whole numbers, by group.

A square of 38 digits has 76, so a sum is cut into limbs of 96 bits, each a number of 128 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from processors.aggregates.grouping import whole, words_of
from schemas.fields import MAX_PRECISION

LIMB = 2**96
_WORD_BITS, _WORDS_A_LIMB = 32, 3
_BLOCK_ROWS = 2**20  # so many words add up to less than 2**53: a double holds the sum as it is
_ROOM_DIGITS = 11  # for 10**11 rows


def limb_count(precision: int) -> int:
    """Return how many limbs hold the sum of the squares of 10**11 numbers of so many digits.

    Example:
        >>> limb_count(10), limb_count(19), limb_count(38)
        (1, 2, 3)
    """
    most = 10 ** (2 * precision + _ROOM_DIGITS)
    count = 1
    while most >= 10**MAX_PRECISION:
        most, count = most // LIMB, count + 1
    return count


def squared(groups: pl.Series, numbers: pl.Series, height: int, *, limbs: int) -> list[pl.Series]:
    """Return the sums of the squares by group as limbs, the lowest first; exact.

    Numbers are cut into words of 32 bits; a product of two has 64, whose halves are added up apart.

    Args:
        groups: Index of a number's group.
        numbers: Int128 of at most 38 digits, never null; fewer than 2**27.
        height: How many groups there are.
        limbs: How many limbs to return, those of `limb_count`.

    Example:
        >>> numbers = pl.Series([3, -4, 10**20], dtype=pl.Int128)
        >>> low, high = squared(pl.Series([0, 0, 1]), numbers, 2, limbs=2)
        >>> low[0], low[1] + high[1] * 2**96 == 10**40
        (25, True)
    """
    words = words_of(numbers.abs())
    index = groups.to_numpy().astype(np.int64)
    count = words.shape[1]
    sums = np.zeros((max(2 * count, _WORDS_A_LIMB * limbs) + 1, height), dtype=np.int64)
    used = [number for number in range(count) if words[:, number].any()]
    for start in range(0, len(index), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for one in used:
            for other in used[: used.index(one) + 1]:
                product = words[block, one].astype(np.uint64) * words[block, other]
                twice = 1 if one == other else 2
                for half, part in enumerate((product & 0xFFFFFFFF, product >> np.uint64(32))):
                    found = np.bincount(index[block], weights=part, minlength=height)
                    sums[one + other + half] += twice * found.astype(np.int64)
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


def _packed(sums: npt.NDArray[np.int64], limbs: int) -> list[pl.Series]:
    """Return sums by word as limbs of three words; what is above them all is 0."""
    for word in range(len(sums) - 1):
        sums[word + 1] += sums[word] >> _WORD_BITS
        sums[word] &= 2**_WORD_BITS - 1
    packed = []
    for limb in range(limbs):
        low, middle, high = (
            pl.Series(sums[_WORDS_A_LIMB * limb + word]).cast(pl.Int128)
            for word in range(_WORDS_A_LIMB)
        )
        packed.append(low + middle * whole(2**_WORD_BITS) + high * whole(2 ** (2 * _WORD_BITS)))
    return packed
