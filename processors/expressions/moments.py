"""Formats dates and timestamps as text in Spark's forms, and parses them.

The parsed form is ``[+-]yyyy[-[m]m[-[d]d]]``. For a timestamp, a blank or ``T`` follows and
``[h]h[:[m]m[:[s]s[.fraction]]]``, and after seconds optionally a zone: ``Z``, ``UTC`` or
``+hh:mm``. Spark also accepts zones by name, offsets in other forms, and a time without a date
(today's). Here these are null, as is any other text.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from errata.processors.expressions import civil
from errata.processors.expressions.columns import null, where_known

BLANKS = "".join(map(chr, range(33))) + "\x7f"
"""The characters that Spark trims from a text before it parses a value."""
SECONDS = 9_223_372_036_854
"""Spark's timestamps are less than this from 1970: 64 bits of microseconds."""

_DATE = r"^(?<sign>[+-])?(?<year>\d{4,%d})(?:-(?<month>\d\d?)(?:-(?<day>\d\d?)(?:[ T]%s)?)?)?$"
_ZONE = rf"[{re.escape(BLANKS)}]*(?:Z|UTC|(?<side>[+-])(?<east>\d\d):(?<past>\d\d))?"
_TIME = rf"(?<hour>\d\d?)(?::(?<minute>\d\d?)(?::(?<second>\d\d?)(?:\.(?<part>\d*))?{_ZONE})?)?"
_DATE_FORM = (_DATE % (7, r"(?s:.)*")).replace(r"\d", "[0-9]")
_TIMESTAMP_FORM = (_DATE % (6, _TIME)).replace(r"\d", "[0-9]")


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
    days: np.ndarray = civil.make_day(sign * year, month, day)
    return days
