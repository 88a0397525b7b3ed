"""Windows: which of them hold a tuple."""

import bisect
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.envelopes.checks import EARLIEST_MS, LATEST_MS
from processors.wall_time import TimeZoneError, zone
from processors.windows import (
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


def test_a_zone_that_does_not_exist_is_refused_with_near_ones() -> None:
    with pytest.raises(TimeZoneError, match="'America/New_York'"):
        tumbling("1d", tz="America/NewYork")


# -------------------------------------------------------------------------------- wall time

DAY, HOUR = 86_400_000, 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = (
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Europe/Dublin",  # winter time is the exception
    "Pacific/Apia",  # 30 December 2011 was left out
    "Asia/Kathmandu",
)


def at(text: str) -> int:
    return int(np.datetime64(text, "ms").astype(np.int64))


@cache
def plain_moments(tz: str) -> list[int]:
    """Return when clocks jump, found by looking at every day of some centuries."""
    clocks, found = ZoneInfo(tz), []

    def ahead(ms: int) -> timedelta:
        shown = (EPOCH + timedelta(milliseconds=ms)).astimezone(clocks).utcoffset()
        assert shown is not None
        return shown

    for first, last in (("1840", "2050"), ("2096", "2132"), ("7996", "8004")):
        days = range(at(first), at(last), DAY)
        for one, other in pairwise(days):
            if ahead(one) != ahead(other):
                goal = ahead(other)
                step = bisect.bisect_left(range(one, other), True, key=lambda m: ahead(m) == goal)
                found.append(one + step)
    return found


def plain_wall(tz: str, ms: int) -> int:
    shown = (EPOCH + timedelta(milliseconds=ms)).astimezone(ZoneInfo(tz))
    return (shown.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


def plain_instant(tz: str, wall: int) -> int:
    """Return when clocks first show a wall time, or jump past it."""
    naive = (EPOCH + timedelta(milliseconds=wall)).replace(tzinfo=ZoneInfo(tz))
    first = (naive.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)
    if plain_wall(tz, first) == wall:
        return first
    moments = plain_moments(tz)  # such a time never was: `first` counts on from before the jump
    return moments[bisect.bisect_right(moments, first) - 1]


def plain_windows(windows: Hopping, ms: int) -> list[tuple[int, int]]:
    """Return the windows in a zone that hold an instant, from all that begin within days of it."""
    assert windows.tz is not None
    around = windows.size_ms + 2 * DAY
    ends: dict[int, int] = {}
    first = (ms - around - windows.origin_ms) // windows.slide_ms
    for k in range(first, (ms + around - windows.origin_ms) // windows.slide_ms + 1):
        wall = windows.origin_ms + k * windows.slide_ms
        start, end = (plain_instant(windows.tz, w) for w in (wall, wall + windows.size_ms))
        ends[start] = max(end, ends.get(start, end))
    return sorted((start, end) for start, end in ends.items() if start <= ms < end)


@pytest.mark.parametrize("tz", ZONES)
def test_oracle_wall_time_and_back_around_every_transition(tz: str) -> None:
    clocks = zone(tz)
    moments = plain_moments(tz)
    instants = [m + d for m in moments for d in (-HOUR, -1, 0, 1, HOUR // 2, HOUR, DAY)]
    walls = [plain_wall(tz, ms) for ms in instants]
    assert clocks.walls(np.array(instants)).tolist() == walls
    assert clocks.instants(np.array(walls)).tolist() == [plain_instant(tz, w) for w in walls]
    missing = [plain_wall(tz, m) - 1 for m in moments if plain_wall(tz, m) > plain_wall(tz, m - 1)]
    wanted = [plain_instant(tz, wall) for wall in missing]
    assert clocks.instants(np.array(missing)).tolist() == wanted


@settings(deadline=None, max_examples=300)
@given(
    tz=st.sampled_from(ZONES),
    moment=st.integers(0, 10**6),
    near=st.integers(-2 * DAY, 2 * DAY) | st.integers(-2 * HOUR, 2 * HOUR),
    size=st.sampled_from([30, 60, 90, 720, 1440, 3 * 1440]),
    slide=st.sampled_from([15, 30, 45, 60, 720, 1440]),
    origin=st.sampled_from([0, 10, -5]),
)
def test_oracle_windows_in_a_zone_around_its_transitions(
    tz: str, moment: int, near: int, size: int, slide: int, origin: int
) -> None:
    moments = plain_moments(tz)
    ms = moments[moment % len(moments)] + near
    windows = Hopping(size * MINUTE, min(slide, size) * MINUTE, origin * MINUTE, tz)
    rows, starts = windows.touched(pl.Series([ms]))
    found = list(zip(starts, windows.ends(starts), strict=True))
    assert found == plain_windows(windows, ms)
    assert found  # no tuple is lost
    assert all(end - start <= windows.extent_ms for start, end in found)
    assert rows.to_list() == [0] * len(found)


@pytest.mark.parametrize(
    ("tz", "day", "hours"),
    [
        ("America/New_York", "2025-03-09", 23),
        ("America/New_York", "2025-11-02", 25),
        ("America/New_York", "8000-03-12", 23),
        ("America/New_York", "1850-03-09", 24),
        ("Australia/Lord_Howe", "2025-04-06", 24.5),
        ("Europe/Dublin", "2038-03-28", 23),
        ("Pacific/Apia", "2011-12-29", 24),
    ],
)
def test_a_day_has_the_hours_that_its_clocks_run(tz: str, day: str, hours: float) -> None:
    """The clocks go on at 2:00 in New York.

    0    1    3    4          23   24
    |----|----|----|-- ... ----|----|   23 hours
    """
    days = tumbling("1d", tz=tz)
    noon = int(zone(tz).instants(np.array([at(day) + DAY // 2]))[0])
    _, starts = days.touched(pl.Series([noon]))
    assert plain_wall(tz, starts[0]) == at(day)
    assert (days.ends(starts) - starts).to_list() == [hours * HOUR]
    _, following = days.touched(days.ends(starts))
    assert following.to_list() == days.ends(starts).to_list()


def test_a_day_that_was_left_out_has_no_window() -> None:
    """Apia went from 29 December 2011 straight to the 31st."""
    starts = tumbling("1d", tz="Pacific/Apia").touched(
        pl.Series(range(at("2011-12-28"), at("2012-01-03"), HOUR))
    )[1]
    days = [plain_wall("Pacific/Apia", start) for start in starts.unique(maintain_order=True)]
    texts = [str(np.datetime64(day, "ms"))[:10] for day in days]
    assert texts == [
        "2011-12-27", "2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01", "2012-01-02",
        "2012-01-03",
    ]  # fmt: skip


@pytest.mark.parametrize("tz", ZONES)
def test_windows_in_a_zone_cover_all_times_up_to_the_bounds(tz: str) -> None:
    times = [-EVENT_TIME_BOUND_MS, HISTORY_START_MS, HISTORY_END_MS, EVENT_TIME_BOUND_MS]
    windows = tumbling("1d", tz=tz)
    rows, starts = windows.touched(pl.Series(times))
    assert rows.to_list() == [0, 1, 2, 3]
    assert (starts <= pl.Series(times)).all()
    assert (windows.ends(starts) > pl.Series(times)).all()


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
