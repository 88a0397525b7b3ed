"""Slabs: every window is in one, and none is forgotten when it closes."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.windows.time_windows import History, Hopping, Sliding
from errata.spark_jobs.job import Slabs

WINDOWS = st.one_of(
    st.builds(
        lambda slide, more, origin: Hopping(slide + more, slide, origin),
        st.integers(1, 40),
        st.integers(0, 90),
        st.integers(-50, 50),
    ),
    st.builds(Sliding, st.integers(1, 60)),
)
TIMES = st.lists(st.integers(-5_000, 5_000), min_size=1, max_size=20)


@given(WINDOWS, TIMES)
def test_the_windows_that_hold_a_tuple_are_in_the_slabs_that_it_comes_to(window, times):
    slabs, series = Slabs(window), pl.Series(times, dtype=pl.Int64)
    rows, numbers = slabs.touched(series)
    came = set(zip(rows.to_list(), numbers.to_list(), strict=True))
    wanted, starts = window.touched(series)
    for row, start in zip(wanted.to_list(), starts.to_list(), strict=True):
        assert (row, slabs.of(start)) in came
        first, end = slabs.bounds(slabs.of(start))
        assert first <= start < end


@given(WINDOWS, TIMES, st.integers(-6_000, 6_000), st.integers(0, 4_000))
def test_slabs_with_a_window_that_closes_are_visited(window, times, after, more):
    slabs = Slabs(window)
    _, starts = window.touched(pl.Series(times, dtype=pl.Int64))
    held = [slabs.of(start) for start in starts.to_list()]
    visited = slabs.closing(after, after + more, (min(held), max(held)))
    for slab, end in zip(held, window.ends(starts).to_list(), strict=True):
        assert slab in visited or not after < end <= after + more


@pytest.mark.parametrize(("upto", "visited"), [(10, [0]), (5, [])])
def test_a_whole_history_is_visited_when_the_watermark_moves(upto, visited):
    assert list(Slabs(History()).closing(5, upto, (0, 0))) == visited
