"""Wall time: converts between instants and local times of a zone, for whole columns of times.

Wall times are ms since 1970-01-01 00:00 on the zone's clocks. They jump ahead (a gap: some wall
times do not exist) and back (some occur twice). The zone's transitions are tabulated once from the
rules in polars, which end with the year 2099. Since the Gregorian calendar repeats itself, the
table is extended from there.
"""

from __future__ import annotations

import difflib
import zoneinfo
from functools import lru_cache

import numpy as np
import polars as pl

from errata.processors.windows.event_times import Times
from errata.schemas.errors import ErrataError

_DAY_MS = 86_400_000
_FIRST_YEAR = 1800  # before any zone left its mean solar time
_KNOWN_YEARS = 2100  # the rules are known for the years before this one
_CALENDAR_CYCLE_YEARS = 28  # so many years have every possible calendar, if no leap day is skipped
_GREGORIAN_CYCLE_YEARS = 400
_LAST_YEAR = _KNOWN_YEARS + _GREGORIAN_CYCLE_YEARS + 2


class TimeZoneError(ErrataError):
    """There is no such time zone."""

    def __init__(self, name: object) -> None:
        self.name = name
        zones = sorted(zoneinfo.available_timezones())
        by_lower_case = {zone.lower(): zone for zone in reversed(zones)}
        nearest = difflib.get_close_matches(str(name).lower(), by_lower_case, n=3, cutoff=0.5)
        names = ", ".join(repr(by_lower_case[zone]) for zone in nearest)
        hint = f"; did you mean {names}?" if nearest else ""
        super().__init__(
            f"time zone {name!r}: needs an IANA name such as 'Europe/Berlin' or 'UTC'; found none "
            f"of that name{hint}"
        )


class Zone:
    """The clocks of one time zone.

    Args:
        name: Its IANA name.

    Raises:
        TimeZoneError: If there is no such zone.

    Example:
        In New York 2:30 did not exist on 9 March 2025; clocks jumped from 2:00 to 3:00:

        >>> minute, clocks = 60_000, Zone("America/New_York")
        >>> two = int(np.datetime64("2025-03-09T02:00", "ms").astype(np.int64))
        >>> walls = np.array([two - minute, two + 30 * minute, two + 60 * minute])
        >>> ((clocks.instants(walls) - clocks.instants(walls[:1])) // minute).tolist()
        [0, 1, 1]
    """

    def __init__(self, name: str) -> None:
        self.name = name
        known_years = _years(_FIRST_YEAR, _KNOWN_YEARS)
        days = np.arange(known_years[0], known_years[-1] + 1, _DAY_MS)
        offsets_by_day = self._offsets_at(days)
        changed = np.flatnonzero(np.diff(offsets_by_day))
        before, after = days[changed].copy(), days[changed + 1].copy()
        while (is_open := after - before > 1).any():
            middle = np.where(is_open, (before + after) // 2, after)
            is_before = self._offsets_at(middle) == offsets_by_day[changed]
            before, after = np.where(is_before, middle, before), np.where(is_before, after, middle)
        transitions, offsets = _extended(after, offsets_by_day[changed + 1], known_years)
        self._transitions = transitions
        self._offsets = np.concatenate([offsets_by_day[:1], offsets])
        # the wall time that clocks have not yet reached at each transition
        self._peaks = np.maximum.accumulate(transitions + self._offsets[:-1])
        self._repeats_from_ms = int(_years(_KNOWN_YEARS + 1, _KNOWN_YEARS + 1)[0])

    def _offsets_at(self, instants: Times) -> Times:
        """Return the offset from UTC at some instants, for years with known rules."""
        utc = pl.Series(instants).cast(pl.Datetime("ms", "UTC"))
        try:
            walls = utc.dt.convert_time_zone(self.name).dt.replace_time_zone(None)
        except (pl.exceptions.ComputeError, TypeError) as error:
            raise TimeZoneError(self.name) from error
        return walls.to_physical().to_numpy() - instants

    @property
    def spread_ms(self) -> int:
        """The most by which the distance of two times in UTC exceeds that of their wall times."""
        return int(self._offsets.max() - self._offsets.min())

    def walls(self, instants: Times) -> Times:
        """Return the wall times at some instants."""
        times, shift_ms = self._in_table(instants)
        walls: Times = (
            times + self._offsets[np.searchsorted(self._transitions, times, side="right")]
        )
        return walls + shift_ms

    def reached(self, instants: Times) -> Times:
        """Return the latest wall time shown up to each instant; it never decreases."""
        times, shift_ms = self._in_table(instants)
        index = np.searchsorted(self._transitions, times, side="right")
        peaks = np.concatenate([[-(2**62)], self._peaks])
        highest: Times = np.maximum(times + self._offsets[index], peaks[index] - 1)
        return highest + shift_ms

    def instants(self, walls: Times) -> Times:
        """Return when clocks first showed some wall times, or had jumped past them."""
        times, shift_ms = self._in_table(walls)
        index = np.searchsorted(self._peaks, times, side="right")
        starts = np.concatenate([[-(2**62)], self._transitions])
        first: Times = np.maximum(times - self._offsets[index], starts[index])
        return first + shift_ms

    def _in_table(self, times: Times) -> tuple[Times, Times]:
        """Return equivalent times within the table, and how much later the given times are.

        The calendar repeats itself after 400 years, which are a whole number of weeks.
        """
        cycle = 146_097 * _DAY_MS
        shift_ms = np.maximum((times - self._repeats_from_ms) // cycle, 0) * cycle
        return times - shift_ms, shift_ms


@lru_cache(maxsize=64)
def zone(name: str) -> Zone:
    """Return a zone, tabulated once.

    Raises:
        TimeZoneError: If there is no such zone.
    """
    return Zone(name)


def _years(first: int, last: int) -> Times:
    """Return the beginnings of the years from `first` to `last`."""
    years = np.arange(first, last + 1, dtype=np.int64)
    return (years - 1970).astype("datetime64[Y]").astype("datetime64[ms]").astype(np.int64)


def _extended(transitions: Times, offsets: Times, known: Times) -> tuple[Times, Times]:
    """Extend transitions to the years after the known ones.

    Each such year has the transitions of the latest known year with the same calendar: of the same
    length, and beginning on the same weekday.
    """
    years = _years(_KNOWN_YEARS - _CALENDAR_CYCLE_YEARS, _LAST_YEAR)
    length, weekday = np.diff(years), years // _DAY_MS % 7
    parts, values = [transitions], [offsets]
    for year in range(_CALENDAR_CYCLE_YEARS, len(length)):
        same_calendar = (length == length[year]) & (weekday[:-1] == weekday[year])
        model = int(np.flatnonzero(same_calendar[:_CALENDAR_CYCLE_YEARS])[-1])
        of_year = slice(*np.searchsorted(transitions, years[model : model + 2]))
        parts.append(transitions[of_year] + years[year] - years[model])
        values.append(offsets[of_year])
    return np.concatenate(parts), np.concatenate(values)
