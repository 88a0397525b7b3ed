"""Windows: which of them hold a tuple."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.processors.envelopes.batch import EARLIEST_MS, LATEST_MS
from errata.processors.windows.time_windows import (
    EVENT_TIME_BOUND_MS,
    HISTORY_END_MS,
    HISTORY_START_MS,
    DurationError,
    EventTimeError,
    History,
    Hopping,
    Sliding,
    WindowSpecError,
    duration_ms,
    hopping,
    sliding,
    tumbling,
)

MINUTE = 60_000


def pairs(windows: Hopping | Sliding | History, times: list[int]) -> list[tuple[int, int]]:
    rows, starts = windows.touched(pl.Series(times, dtype=pl.Int64))
    assert rows.dtype == pl.UInt32
    assert starts.dtype == pl.Int64
    return list(zip(rows, starts, strict=True))


def test_figure_1_price_of_two_o_clock_touches_two_windows() -> None:
    """Borealis figure 1: windows of 30 minutes every 20.

    1:40      2:00      2:20      2:40
      |---------------|
                |---------------|
                          |---------------|
                ^ 2:00        ^ 2:29
    """
    windows = hopping("30m", every="20m")
    touched = pairs(windows, [120 * MINUTE, 149 * MINUTE])
    assert touched == [
        (0, 100 * MINUTE),
        (0, 120 * MINUTE),
        (1, 120 * MINUTE),
        (1, 140 * MINUTE),
    ]
    assert windows.extent_ms == 30 * MINUTE


def test_an_end_is_exclusive_and_a_start_inclusive_also_before_1970() -> None:
    """Tumbling windows of 10 ms.

    -20       -10        0        10        20
      |---------|---------|---------|---------|
              ^ ^       ^ ^       ^ ^
            -11 -10    -1 0       9 10
    """
    assert pairs(tumbling(10), [-11, -10, -1, 0, 9, 10]) == [
        (0, -20),
        (1, -10),
        (2, -10),
        (3, 0),
        (4, 0),
        (5, 10),
    ]


def test_a_size_that_is_no_multiple_of_the_slide_touches_more_windows_at_some_times() -> None:
    """Windows of 5 every 3.

    -3  -2  -1   0   1   2   3   4   5   6
     |-------------------|
                 |-------------------|
                             |-----------
                     ^ 1 in two  ^ 4 in two
                         ^ 2 in one
    """
    assert pairs(hopping(5, every=3), [1, 2, 4]) == [(0, -3), (0, 0), (1, 0), (2, 0), (2, 3)]


@given(
    times=st.lists(
        st.integers(-100, 100) | st.integers(-EVENT_TIME_BOUND_MS, EVENT_TIME_BOUND_MS), max_size=8
    ),
    size=st.integers(1, 40),
    slide=st.integers(1, 40),
    origin=st.integers(-100, 100) | st.integers(-EVENT_TIME_BOUND_MS, EVENT_TIME_BOUND_MS),
)
def test_oracle_touched_windows_are_those_that_hold_the_tuple(
    times: list[int], size: int, slide: int, origin: int
) -> None:
    slide = min(slide, size)
    expected = [
        (row, start)
        for row, time in enumerate(times)
        for start in range(time - size - slide, time + slide)
        if (start - origin) % slide == 0 and start <= time < start + size
    ]
    windows = hopping(size, every=slide, origin=origin)
    assert pairs(windows, times) == expected
    starts = pl.Series([start for _, start in expected], dtype=pl.Int64)
    assert (windows.ends(starts) - starts == size).all()


@given(
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(0, 8),
    st.integers(-9, 9),
    st.lists(st.lists(st.integers(-60, 60), min_size=1, max_size=9), min_size=1, max_size=3),
)
def test_tuples_of_a_pane_are_in_the_same_windows_of_which_each_is_returned_once(
    slide: int, full: int, more: int, origin: int, groups: list[list[int]]
) -> None:
    windows = hopping(slide * full + more % slide, every=slide, origin=origin)
    starts, is_first, wanted = list[int](), list[bool](), list[tuple[int, int]]()
    for number, times in enumerate(groups):
        panes = windows.panes(pl.Series(times)).to_list()
        for time, pane in zip(times, panes, strict=True):
            assert pane <= time
            assert pairs(windows, [pane]) == pairs(windows, [time])
        distinct = sorted(set(panes))
        starts += distinct
        is_first += [True] + [False] * (len(distinct) - 1)
        wanted += sorted({(number, start) for _, start in pairs(windows, times)})
    rows, found = windows.of_panes(pl.Series(starts), np.array(is_first))
    group = np.cumsum(is_first) - 1
    assert list(zip(group[rows.to_numpy()].tolist(), found.to_list(), strict=True)) == wanted
    assert rows.dtype == pl.UInt32


def test_touched_of_no_tuples_is_empty() -> None:
    assert pairs(tumbling("1h"), []) == []


@pytest.mark.parametrize("sign", [-1, 1])
def test_event_times_are_accepted_up_to_the_bound_with_the_longest_windows(sign: int) -> None:
    edge = sign * EVENT_TIME_BOUND_MS
    longest = Hopping(EVENT_TIME_BOUND_MS, EVENT_TIME_BOUND_MS)
    assert pairs(longest, [edge]) == [(0, edge)]
    assert longest.ends(pl.Series([edge])).to_list() == [edge + EVENT_TIME_BOUND_MS]
    with pytest.raises(EventTimeError, match="within"):
        longest.touched(pl.Series([0, edge + sign]))


def test_a_null_event_time_is_refused_with_how_many_there_are() -> None:
    with pytest.raises(EventTimeError, match="1 of 2 are null"):
        tumbling("1h").touched(pl.Series([1, None], dtype=pl.Int64))


@pytest.mark.parametrize(
    ("origin", "tz", "expected"),
    [
        (7, None, 7),
        (-1, None, 19 * MINUTE + 59_999),
        ("2026-07-15T00:10", None, 10 * MINUTE),
        ("2026-07-15T00:10Z", None, 10 * MINUTE),
        ("2026-07-15T00:10+00:05", None, 5 * MINUTE),
        ("2026-07-15T00:10", "Asia/Kolkata", 10 * MINUTE),
        ("2026-07-15T00:10Z", "Asia/Kolkata", 0),  # 5:40 on the clocks
        (10 * MINUTE, "Asia/Kolkata", 0),
    ],
)
def test_an_origin_is_an_instant_or_what_the_clocks_of_the_zone_show(
    origin: str | int, tz: str | None, expected: int
) -> None:
    assert tumbling("20m", origin=origin, tz=tz).origin_ms == expected


@pytest.mark.parametrize(
    "origin", ["noon", "2026-13-01", "2026-07-15T00:00:00.0001", True, 1.5, 2**53 + 1]
)
def test_an_origin_that_cannot_be_read_is_refused(origin: object) -> None:
    with pytest.raises(WindowSpecError, match="window origin"):
        tumbling("20m", origin=origin)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------- other windows


def test_a_sliding_window_ends_with_its_tuple() -> None:
    """Sliding windows of 5: one for each instant that has a tuple.

    0   1   2   3   4   5   6   7   8
        |-------------------|
                |-------------------|
                        ^ 5     ^ 7
    """
    windows = sliding(5)
    assert pairs(windows, [5, 7, 5]) == [(0, 1), (1, 3), (2, 1)]
    assert windows.ends(pl.Series([1, 3])).to_list() == [6, 8]
    with pytest.raises(WindowSpecError, match="sliding"):
        sliding(0)


def test_a_whole_history_is_one_window_around_all_event_times() -> None:
    assert (HISTORY_START_MS, HISTORY_END_MS - 1) == (EARLIEST_MS, LATEST_MS)
    rows, starts = History().touched(pl.Series([EARLIEST_MS, LATEST_MS]))
    assert rows.to_list() == [0, 1]
    assert starts.to_list() == [EARLIEST_MS] * 2
    assert History().ends(starts).to_list() == [LATEST_MS + 1] * 2


@pytest.mark.parametrize(("size", "every"), [("1h", 0), ("1h", "61m"), (0, 0)])
def test_a_slide_outside_its_bounds_is_refused(size: str | int, every: str | int) -> None:
    with pytest.raises(WindowSpecError, match="tuples between two windows are lost"):
        hopping(size, every=every)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("30m", 1_800_000),
        (" 1 h ", 3_600_000),
        ("1d", 86_400_000),
        ("10y", 315_360_000_000),
        (0, 0),
        (7, 7),
    ],
)
def test_a_duration_is_read_in_ms(written: str | int, expected: int) -> None:
    assert duration_ms(written, what="keep") == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        "30",
        "m",
        "-1s",
        "1.5h",
        "1h30m",
        "1 week",
        "9999999999y",
        "٣s",
        -1,
        2**53 + 1,
        True,
        1.0,
    ],
)
def test_a_duration_that_cannot_be_read_is_refused_with_what_it_is_for(written: object) -> None:
    with pytest.raises(DurationError, match=r"^lateness is "):
        duration_ms(written, what="lateness")  # type: ignore[arg-type]
