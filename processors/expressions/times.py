"""Dates and timestamps on columns: the calendar, the fields of a time, and text.

A date counts days since 1970-01-01, a timestamp ms or us in UTC. The calendar is the proleptic
Gregorian one. Its functions take arrays of days; numpy's ``datetime64`` counts days and months in
64 bits, so none of them has a last year.

Text has Spark's forms. The parsed form is ``[+-]yyyy[-[m]m[-[d]d]]``. For a timestamp, a blank or
``T`` follows and ``[h]h[:[m]m[:[s]s[.fraction]]]``, and after seconds optionally a zone: ``Z``,
``UTC`` or ``+hh:mm``. Spark also accepts zones by name, offsets in other forms, and a time without
a date (today's). Here these are null, as is any other text.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import arithmetic, rules
from errata.processors.expressions.columns import Kernel, by_array, null, where_known
from errata.schemas.fields import FieldType

DAY_MS = 86_400_000
MAX_DAYS = 2**62
"""More days than a date can hold: represents a day that does not exist."""

TICKS = {"timestamp-millis": 1000, "timestamp-micros": 1_000_000}
"""Ticks per second."""
BLANKS = "".join(map(chr, range(33))) + "\x7f"
"""The characters that Spark trims from a text before it parses a value."""
SECONDS = 9_223_372_036_854
"""Spark's timestamps are less than this from 1970: 64 bits of microseconds."""
_SECONDS = {"minute": 60, "hour": 3600, "second": 1}
_SUBSECONDS = {"millisecond": 1000, "microsecond": 1_000_000}
_DATE = r"^(?<sign>[+-])?(?<year>\d{4,%d})(?:-(?<month>\d\d?)(?:-(?<day>\d\d?)(?:[ T]%s)?)?)?$"
_ZONE = rf"[{re.escape(BLANKS)}]*(?:Z|UTC|(?<side>[+-])(?<east>\d\d):(?<past>\d\d))?"
_TIME = rf"(?<hour>\d\d?)(?::(?<minute>\d\d?)(?::(?<second>\d\d?)(?:\.(?<part>\d*))?{_ZONE})?)?"
_DATE_FORM = (_DATE % (7, r"(?s:.)*")).replace(r"\d", "[0-9]")
_TIMESTAMP_FORM = (_DATE % (6, _TIME)).replace(r"\d", "[0-9]")


def months(days: Any) -> Any:
    """Return the months since January 1970 of each day.

    Example:
        >>> months(np.array([-1, 31])).tolist()
        [-1, 1]
    """
    return np.asarray(days, np.int64).view("M8[D]").astype("M8[M]").astype(np.int64)


def first_day(month: Any) -> Any:
    """Return the first day of each month, counted as in `months`."""
    return np.asarray(month, np.int64).view("M8[M]").astype("M8[D]").astype(np.int64)


def year(days: Any) -> Any:
    """Return the year, 0 for 1 BC."""
    return months(days) // 12 + 1970


def month(days: Any) -> Any:
    """Return the month, 1 to 12."""
    return months(days) % 12 + 1


def quarter(days: Any) -> Any:
    """Return the quarter, 1 to 4."""
    return months(days) % 12 // 3 + 1


def day_of_month(days: Any) -> Any:
    """Return the day of the month, from 1."""
    return days - first_day(months(days)) + 1


def day_of_year(days: Any) -> Any:
    """Return the day of the year, from 1."""
    return days - first_day(year_start(days)) + 1


def year_start(days: Any) -> Any:
    """Return the January of each day's year, counted as in `months`."""
    return months(days) // 12 * 12


def weekday(days: Any) -> Any:
    """Return 0 for Monday to 6 for Sunday."""
    return (days + 3) % 7


def day_of_week(days: Any) -> Any:
    """Return 1 for Sunday to 7 for Saturday."""
    return (days + 4) % 7 + 1


def week_of_year(days: Any) -> Any:
    """Return the ISO week, 1 to 53: the one that holds the year's first Thursday is 1.

    Example:
        >>> friday = first_day(np.array([51 * 12]))  # 2021-01-01
        >>> week_of_year(friday).tolist()
        [53]
    """
    return (day_of_year(days - weekday(days) + 3) - 1) // 7 + 1


def last_day(days: Any) -> Any:
    """Return the last day of each day's month."""
    return first_day(months(days) + 1) - 1


def add_months(days: Any, count: Any) -> Any:
    """Return the same day some months later, or the last day of a month that is too short."""
    month = months(days) + count
    return np.minimum(first_day(month) + day_of_month(days), first_day(month + 1)) - 1


def make_day(year: Any, month: Any, day: Any) -> Any:
    """Return the day of a date, `MAX_DAYS` if the date does not exist."""
    start = (np.asarray(year, np.int64) - 1970) * 12 + month - 1
    first = first_day(start)
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= first_day(start + 1) - first)
    return np.where(exists, first + day - 1, MAX_DAYS)


def start_of(unit: str, days: Any) -> Any:
    """Return the first day of the ``week``, ``month``, ``quarter`` or ``year`` of each day."""
    if unit == "week":
        return days - weekday(days)
    width = {"month": 1, "quarter": 3, "year": 12}[unit]
    return first_day(months(days) // width * width)


def field_of_time(unit: str, kind: FieldType) -> Kernel:
    """Return the function for the ``hour``, ``minute`` or ``second`` of a timestamp."""
    width = _SECONDS[unit] * TICKS[kind.kind]
    count = 24 if unit == "hour" else 60
    return by_array(lambda t: t // width % count, dtype=pl.Int32)


def truncate(unit: str, kind: FieldType) -> Kernel:
    """Return the function for the start of a timestamp's year, ..., microsecond."""
    ticks = TICKS[kind.kind]
    if unit in _SUBSECONDS or unit in _SECONDS or unit == "day":
        width = {"day": 86_400, **_SECONDS}.get(unit, 1) * ticks // _SUBSECONDS.get(unit, 1)
        return by_array(lambda t: t - t % max(width, 1), dtype=pl.Int64)
    day = 86_400 * ticks
    return by_array(lambda t: start_of(unit, t // day) * day, dtype=pl.Int64)


def truncate_date(unit: str) -> Kernel:
    """Return the function for the start of a date's week, month, quarter or year."""
    return by_array(lambda days: start_of(unit, days.astype(np.int64)), dtype=pl.Int32)


def of_day(function: Any, *, dtype: Any = pl.Int32) -> Kernel:
    """Return a function of days as a kernel on dates."""
    return by_array(lambda *days: function(*(d.astype(np.int64) for d in days)), dtype=dtype)


def shift(kind: FieldType, *, months: int, micros: int) -> Kernel:
    """Return the function that adds an interval; null if the result is out of range.

    Months are added to the date and keep the time of day.
    """
    if kind.kind == "date":
        if months:
            return of_day(lambda days: add_months(days, months))
        step = micros // (DAY_MS * 1000)
        return by_array(lambda days: days.astype(np.int64) + step, dtype=pl.Int32)
    if not months:
        plus = arithmetic.kernel("+", rules.LONG, rules.LONG, rules.LONG)
        ticks = pl.Series([micros * TICKS[kind.kind] // 1_000_000])
        return lambda values: plus(values, ticks)
    day = 86_400 * TICKS[kind.kind]
    return by_array(lambda t: add_months(t // day, months) * day + t % day, dtype=pl.Int64)


def to_count(unit: int, kind: FieldType) -> Kernel:
    """Return the function for whole units since 1970, `unit` of them per second, rounded down."""
    ticks = TICKS[kind.kind]
    if ticks >= unit:
        return by_array(lambda t: t // (ticks // unit), dtype=pl.Int64)
    times = arithmetic.kernel("*", rules.LONG, rules.LONG, rules.LONG)
    return lambda values: times(values, pl.Series([unit // ticks]))


def from_count(kind: FieldType, *, unit: int) -> Kernel:
    """Return the function from units since 1970, `unit` per second, to timestamps.

    Beyond Spark's 64 bits of microseconds it returns null.
    """
    ticks = TICKS[kind.kind]
    limit = 2**63 // 1_000_000 * unit
    if unit == TICKS["timestamp-micros"]:
        return lambda counts: counts

    def run(counts: pl.Series) -> pl.Series:
        inside = counts.is_between(-limit, limit)
        return counts.zip_with(inside, pl.Series([None], dtype=pl.Int64)) * (ticks // unit)

    return run


def dates(texts: pl.Series) -> pl.Series:
    """Parse texts as dates: days since 1970-01-01.

    Example:
        >>> dates(pl.Series(["1970-01-02", "1970-02-30"])).to_list()
        [1, None]
    """
    parts = _parts(texts, _DATE_FORM)
    return where_known(pl.Series(_days(parts)).cast(pl.Int32, strict=False), parts["known"])


def micros(texts: pl.Series) -> pl.Series:
    """Parse texts as microseconds since 1970; digits after the sixth are ignored.

    Example:
        >>> micros(pl.Series(["1970-01-01 00:00:01.5Z", "1970-01-01T01:00:00+01:00"])).to_list()
        [1500000, 0]
    """
    parts = _parts(texts, _TIMESTAMP_FORM)
    hour, minute, second, side, east, past, part = (
        parts[name].to_numpy()
        for name in ("hour", "minute", "second", "side", "east", "past", "part")
    )
    exists = (hour < 24) & (minute < 60) & (second < 60) & (past < 60) & (east * 60 + past <= 1080)
    days = np.clip(_days(parts), -SECONDS, SECONDS)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - side * (east * 60 + past) * 60
    exists &= abs(seconds) < SECONDS
    moment = np.where(exists, seconds, 0) * 1_000_000 + part
    known = parts["known"].zip_with(pl.Series(exists), null(pl.Boolean))
    return where_known(pl.Series(moment), known)


def text_of_dates(days: pl.Series) -> pl.Series:
    """Return dates as ``yyyy-MM-dd``.

    Example:
        >>> text_of_dates(pl.Series([0, 3_000_000, -800_000])).to_list()
        ['1970-01-01', '+10183-09-21', '-0221-09-04']
    """
    return _text(days.cast(pl.Int64), "D")


def text_of_instants(values: pl.Series, *, unit: str) -> pl.Series:
    """Return timestamps, counted in ``ms`` or ``us``, as ``yyyy-MM-dd HH:mm:ss[.ffffff]``."""
    texts = _text(values, unit)
    return texts.str.replace("T", " ", literal=True).str.replace(r"\.?0*$", "")


def _text(values: pl.Series, unit: str) -> pl.Series:
    """Return values formatted by numpy, but with years in Spark's form."""
    moments = values.fill_null(0).to_numpy().astype(f"M8[{unit}]")
    texts = pl.Series(np.datetime_as_string(moments).tolist(), dtype=pl.String)
    texts = texts.str.replace(r"^-([0-9]{3})-", "-0${1}-").str.replace(r"^([0-9]{5,})-", "+${1}-")
    return where_known(texts, values)


def _parts(texts: pl.Series, form: str) -> pl.DataFrame:
    """Return the numbers that a form finds in texts, one row per text; ``known`` if it matches."""
    groups = texts.str.strip_chars(BLANKS).str.extract_groups(form).struct.unnest()
    present = [name for name in _ABSENT if name in groups.columns]
    side = [
        pl.when(pl.col(name) == "-").then(-1).otherwise(1).cast(pl.Int64).alias(name)
        for name in ("sign", "side")
        if name in groups.columns
    ]
    fraction = [
        pl.col(name).str.pad_end(6, "0").str.slice(0, 6).alias(name)
        for name in ("part",)
        if name in groups.columns
    ]
    known = pl.when(pl.col("year").is_not_null()).then(True).alias("known")
    return groups.with_columns(fraction).select(
        known, *side, *(pl.col(n).cast(pl.Int64).fill_null(_ABSENT[n]) for n in present)
    )


_ABSENT = {"year": 1970, "month": 1, "day": 1} | dict.fromkeys(
    ("hour", "minute", "second", "part", "east", "past"), 0
)
"""The default of each part that a text may lack."""


def _days(parts: pl.DataFrame) -> np.ndarray:
    year, month, day, sign = (parts[name].to_numpy() for name in ("year", "month", "day", "sign"))
    days: np.ndarray = make_day(sign * year, month, day)
    return days
