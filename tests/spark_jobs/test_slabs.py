"""Slabs: every window is in one, and none is forgotten when it closes."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.windows.time_windows import History, Hopping, Sliding
from errata.spark_jobs.slabs import Slabs

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
    of_window = slabs.of(starts).to_list()
    for row, slab, start in zip(wanted.to_list(), of_window, starts.to_list(), strict=True):
        assert (row, slab) in came
        first, end = slabs.bounds(slab)
        assert first <= start < end


@given(st.builds(Sliding, st.integers(1, 60)), TIMES, st.integers(0, 59))
def test_a_sliding_window_is_in_the_slabs_of_the_tuples_it_holds_and_those_behind(
    window, times, later
):
    slabs, later = Slabs(window), later % window.size_ms
    _, own = window.touched(pl.Series(times, dtype=pl.Int64))
    _, others = window.touched(pl.Series(times, dtype=pl.Int64) + later)
    rows, numbers = slabs.touched(pl.Series(times, dtype=pl.Int64))
    came = set(zip(rows.to_list(), numbers.to_list(), strict=True))
    pairs = zip(slabs.of(own).to_list(), slabs.of(others).to_list(), strict=True)
    for row, (slab, of_later) in enumerate(pairs):
        assert (row, of_later) in came
        assert slab in slabs.behind(of_later)


@given(WINDOWS, TIMES, st.integers(-6_000, 6_000), st.integers(0, 4_000))
def test_slabs_with_a_window_that_closes_are_visited(window, times, after, more):
    slabs = Slabs(window)
    _, starts = window.touched(pl.Series(times, dtype=pl.Int64))
    ends = window.ends(starts).to_list()
    for slab, end in zip(slabs.of(starts).to_list(), ends, strict=True):
        assert slabs.may_close(slab, after, after + more) or not after < end <= after + more
        assert not slabs.is_past(slab, end - 1)


@pytest.mark.parametrize(("upto", "may"), [(10, True), (5, False)])
def test_a_whole_history_may_close_when_the_watermark_moves(upto, may):
    assert Slabs(History()).may_close(0, 5, upto) == may
