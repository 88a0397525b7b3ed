"""The kernels of date and time functions; a timestamp counts ms or us in UTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import arithmetic, civil, rules
from errata.processors.expressions.columns import Kernel, by_array
from errata.schemas.fields import FieldType

TICKS = {"timestamp-millis": 1000, "timestamp-micros": 1_000_000}
"""Ticks per second."""
_SECONDS = {"minute": 60, "hour": 3600, "second": 1}
_FINE = {"millisecond": 1000, "microsecond": 1_000_000}


def field_of_time(unit: str, kind: FieldType) -> Kernel:
    """Return the function for the ``hour``, ``minute`` or ``second`` of a timestamp."""
    width = _SECONDS[unit] * TICKS[kind.kind]
    count = 24 if unit == "hour" else 60
    return by_array(lambda t: t // width % count, dtype=pl.Int32)


def truncate(unit: str, kind: FieldType) -> Kernel:
    """Return the function for the start of a timestamp's year, ..., microsecond."""
    ticks = TICKS[kind.kind]
    if unit in _FINE or unit in _SECONDS or unit == "day":
        width = {"day": 86_400, **_SECONDS}.get(unit, 1) * ticks // _FINE.get(unit, 1)
        return by_array(lambda t: t - t % max(width, 1), dtype=pl.Int64)
    day = 86_400 * ticks
    return by_array(lambda t: civil.start_of(unit, t // day) * day, dtype=pl.Int64)


def truncate_date(unit: str) -> Kernel:
    """Return the function for the start of a date's week, month, quarter or year."""
    return by_array(lambda days: civil.start_of(unit, days.astype(np.int64)), dtype=pl.Int32)


def of_day(function: Any, *, dtype: Any = pl.Int32) -> Kernel:
    """Return a function of `civil` as a kernel on dates."""
    return by_array(lambda *days: function(*(d.astype(np.int64) for d in days)), dtype=dtype)


def shift(kind: FieldType, *, months: int, micros: int) -> Kernel:
    """Return the function that adds an interval; null if the result is out of range.

    Months are added to the date and keep the time of day.
    """
    if kind.kind == "date":
        if months:
            return of_day(lambda days: civil.add_months(days, months))
        step = micros // (civil.DAY_MS * 1000)
        return by_array(lambda days: days.astype(np.int64) + step, dtype=pl.Int32)
    if not months:
        plus = arithmetic.kernel("+", rules.LONG, rules.LONG, rules.LONG)
        ticks = pl.Series([micros * TICKS[kind.kind] // 1_000_000])
        return lambda values: plus(values, ticks)
    day = 86_400 * TICKS[kind.kind]
    return by_array(lambda t: civil.add_months(t // day, months) * day + t % day, dtype=pl.Int64)


def counted(unit: int, kind: FieldType) -> Kernel:
    """Return the function for whole units since 1970, `unit` of them per second, rounded down."""
    ticks = TICKS[kind.kind]
    if ticks >= unit:
        return by_array(lambda t: t // (ticks // unit), dtype=pl.Int64)
    times = arithmetic.kernel("*", rules.LONG, rules.LONG, rules.LONG)
    return lambda values: times(values, pl.Series([unit // ticks]))


def reach(kind: FieldType, *, unit: int) -> Kernel:
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
