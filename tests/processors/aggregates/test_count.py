"""Counting rows and values."""

import polars as pl

from processors.aggregates.count import Count

GROUPS = pl.Series([0, 2, 0], dtype=pl.UInt32)
VALUES = pl.DataFrame({"x": ["a", None, None]})


def test_the_star_counts_rows_and_an_argument_counts_values() -> None:
    for star, expected in ((True, [2, 0, 1]), (False, [1, 0, 0])):
        count = Count(star=star)
        states = count.accumulate(count.init(3), GROUPS, VALUES)
        assert count.emit(states).to_list() == expected
        assert count.emit(count.compensate(states, GROUPS, VALUES)).to_list() == [0, 0, 0]
