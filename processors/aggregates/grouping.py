"""Reductions by a dense group index, which the states of all aggregates are built from."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.schemas.fields import MAX_PRECISION

Counts: TypeAlias = npt.NDArray[np.int64]

_LIMB_COUNT, _LIMB_BITS = 4, 32
_BLOCK_ROWS = 2**20  # so many limbs add up to less than 2**53: a double holds the sum exactly


def whole(number: int) -> pl.Series:
    """Return a number as a series of one value, the form in which 128-bit series take an operand.

    Example:
        >>> (pl.Series([7], dtype=pl.Int128) * whole(10**30)).to_list()
        [7000000000000000000000000000000]
    """
    return pl.Series([number], dtype=pl.Int128)


def drop_nulls(groups: pl.Series, values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the rows whose value is not null.

    Example:
        >>> groups, values = drop_nulls(pl.Series([0, 0, 1]), pl.Series([7, None, 9]))
        >>> groups.to_list(), values.to_list()
        ([0, 1], [7, 9])
    """
    if not values.has_nulls():
        return groups, values
    has_value = values.is_not_null()
    return groups.filter(has_value), values.filter(has_value)


def count_rows(groups: pl.Series, height: int) -> Counts:
    """Return the number of rows of each of `height` groups.

    Example:
        >>> count_rows(pl.Series([2, 0, 2]), 4).tolist()
        [1, 0, 2, 0]
    """
    return np.bincount(groups.to_numpy(), minlength=height)


def scatter_to_groups(values: pl.Series, groups: pl.Series | Counts, height: int) -> pl.Series:
    """Return a column of `height` groups with values for some, null for the others.

    Example:
        >>> scatter_to_groups(pl.Series([7.0, 9.0]), pl.Series([2, 0]), 4).to_list()
        [9.0, None, 7.0, None]
    """
    nulls = pl.Series([None], dtype=values.dtype).new_from_index(0, height)
    return nulls.scatter(groups, values)


def words_of(numbers: pl.Series) -> npt.NDArray[np.uint32]:
    """Return 128-bit integers of at most 38 digits as words of 32 bits, the lowest first.

    Example:
        >>> words_of(pl.Series([2**32 + 7, -1], dtype=pl.Int128)).tolist()
        [[7, 1, 0, 0], [4294967295, 4294967295, 4294967295, 4294967295]]
    """
    if numbers.is_empty():
        return np.zeros((0, _LIMB_COUNT), dtype=np.uint32)
    arrow = numbers.cast(pl.Decimal(MAX_PRECISION, 0)).to_arrow()
    return np.frombuffer(
        arrow.buffers()[1],
        dtype="<u4",
        count=_LIMB_COUNT * len(arrow),
        offset=arrow.offset * _LIMB_COUNT * _LIMB_BITS // 8,
    ).reshape(-1, _LIMB_COUNT)


def sum_by_group(groups: pl.Series, numbers: pl.Series, height: int) -> pl.Series:
    """Return the exact sum by group of 128-bit integers.

    Numbers are split into limbs of 32 bits, whose sums can't overflow, and joined again.

    Args:
        groups: Index of a number's group.
        numbers: Int128 of at most 38 digits, never null, one row per group index.
        height: The number of groups.

    Returns:
        Sums as Int128; a sum outside its range would be wrong by a multiple of 2**128.

    Example:
        >>> numbers = pl.Series([10**30, -1, 5], dtype=pl.Int128)
        >>> sum_by_group(pl.Series([1, 1, 0]), numbers, 3).to_list()
        [5, 999999999999999999999999999999, 0]
    """
    sums = np.zeros((_LIMB_COUNT, height), dtype=np.int64)
    index = groups.to_numpy().astype(np.int64)
    words = words_of(numbers)
    for start in range(0, len(index), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for limb in range(_LIMB_COUNT):
            part = np.bincount(index[block], weights=words[block, limb], minlength=height)
            sums[limb] += part.astype(np.int64)
    for limb in range(_LIMB_COUNT - 1):
        sums[limb + 1] += sums[limb] >> _LIMB_BITS
        sums[limb] &= 2**_LIMB_BITS - 1
    low, high = sums[0::2].astype(np.uint64) | sums[1::2].astype(np.uint64) << _LIMB_BITS
    upper = pl.Series(high.view(np.int64)).cast(pl.Int128)
    return upper * whole(2**64) + pl.Series(low).cast(pl.Int128)
