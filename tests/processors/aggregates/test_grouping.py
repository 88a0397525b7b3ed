"""Sums by group are exact."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.aggregates.grouping import sum_by_group

NUMBERS = st.integers(-(10**37), 10**37) | st.integers(-(2**33), 2**33)


def sums_of(rows: list[tuple[int, int]], height: int) -> list[int]:
    groups = pl.Series([group for group, _ in rows], dtype=pl.UInt32)
    return sum_by_group(groups, pl.Series([n for _, n in rows], dtype=pl.Int128), height).to_list()


@given(st.lists(st.tuples(st.integers(0, 3), NUMBERS), max_size=9))
def test_oracle_sums_by_group_are_exact(rows: list[tuple[int, int]]) -> None:
    assert sums_of(rows, 5) == [sum(n for g, n in rows if g == group) for group in range(5)]


def test_sums_are_exact_over_several_blocks_of_full_limbs() -> None:
    count = 2**22 + 3
    groups = pl.Series([0], dtype=pl.UInt32).new_from_index(0, count)
    for number in (-1, 2**96 - 1, -(2**96)):
        numbers = pl.Series([number], dtype=pl.Int128).new_from_index(0, count)
        assert sum_by_group(groups, numbers, 1).to_list() == [number * count]


def test_sums_of_a_slice_are_of_that_slice() -> None:
    groups = pl.Series([0, 0, 1, 1], dtype=pl.UInt32)
    numbers = pl.Series([1, 10, 100, 1000], dtype=pl.Int128)
    assert sum_by_group(groups[1:3], numbers[1:3], 2).to_list() == [10, 100]
