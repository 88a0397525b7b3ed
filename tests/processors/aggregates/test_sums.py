"""Counting rows and values."""

import polars as pl

from errata.processors.aggregates.sums import ROWS, TRUE, VALUES, Count

GROUPS = pl.Series([0, 2, 0], dtype=pl.UInt32)
VALUES_OF_X = pl.DataFrame({"x": ["a", None, None]})


def test_the_star_counts_rows_and_an_argument_counts_values() -> None:
    for what, expected in ((ROWS, [2, 0, 1]), (VALUES, [1, 0, 0])):
        count = Count(what)
        states = count.accumulate(count.init(3), GROUPS, VALUES_OF_X)
        assert count.emit(states).to_list() == expected
        assert count.emit(count.compensate(states, GROUPS, VALUES_OF_X)).to_list() == [0, 0, 0]


def test_count_if_counts_neither_false_nor_null() -> None:
    count = Count(TRUE)
    states = count.accumulate(count.init(3), GROUPS, pl.DataFrame({"p": [True, None, False]}))
    assert count.emit(states).to_list() == [1, 0, 0]
