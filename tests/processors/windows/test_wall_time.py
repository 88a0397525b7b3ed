"""Windows by the clocks of a zone, held against `zoneinfo`."""

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

from errata.processors.windows.time_windows import (
    EVENT_TIME_BOUND_MS,
    HISTORY_END_MS,
    HISTORY_START_MS,
    Hopping,
    tumbling,
)
from errata.processors.windows.wall_time import TimeZoneError, zone

DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000
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


@settings(max_examples=300)
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


def test_a_zone_that_does_not_exist_is_refused_with_near_ones() -> None:
    with pytest.raises(TimeZoneError, match="'America/New_York'"):
        tumbling("1d", tz="America/NewYork")
