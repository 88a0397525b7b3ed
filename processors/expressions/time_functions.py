"""Functions of dates and timestamps, intervals, and conversions between UTC and a zone's time.

The zone of the session is UTC. Spark has no type for local times: it shifts the timestamp itself. A
zone's rules come with polars, in Spark with its Java: if these are of different years, results may
differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from sqlglot import exp

from errata.processors.expressions import rules, times
from errata.processors.expressions.columns import Kernel, by_array
from errata.processors.expressions.function import (
    DATE,
    INSTANT,
    INT,
    LONG,
    SOME_TEXT,
    TIMESTAMP,
    Function,
    Parameter,
    UnfitError,
    plain,
)
from errata.processors.expressions.part import Part, apply
from errata.processors.expressions.rules import INT as WHOLE
from errata.processors.windows import wall_time
from errata.schemas.fields import FieldType

_UNIT_MICROS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": times.DAY_MS * 1000,
    "week": 7 * times.DAY_MS * 1000,
}
_UNIT_MONTHS = {"month": 1, "year": 12}


@dataclass(frozen=True)
class Interval:
    """A length of time: months, or microseconds; ``in_days`` if it was written in days or weeks."""

    months: int = 0
    micros: int = 0
    in_days: bool = False


def interval(node: exp.Interval) -> Interval | None:
    """Return the interval of ``INTERVAL 'count' unit``, None if the node is not one."""
    unit = node.args.get("unit")
    unit = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    count = node.this.name if isinstance(node.this, exp.Literal) else ""
    fraction = r"(\.[0-9]{1,6})?" if unit == "second" else ""
    if not re.fullmatch(r"[+-]?[0-9]{1,9}" + fraction, count):
        return None
    if unit in _UNIT_MONTHS:
        return Interval(months=int(count) * _UNIT_MONTHS[unit])
    if unit not in _UNIT_MICROS:
        return None
    micros = int(Decimal(count) * _UNIT_MICROS[unit])
    return Interval(micros=micros, in_days=unit in ("day", "week"))


def shifted(part: Part, by: Interval, *, sign: int) -> Part:
    """Return a date or timestamp moved by an interval; null if the result is out of range.

    A date moved by an interval in units below days becomes a timestamp.
    """
    if part.type.kind not in rules.TEMPORAL:
        raise UnfitError("a date or timestamp next to the interval", found=str(part.type.required))
    if part.type.kind == "date" and by.micros and not by.in_days:
        part = part.cast(rules.TIMESTAMP)
    if part.type.kind == "timestamp-millis" and by.micros % 1000:
        part = part.cast(rules.MICROS)
    kernel = times.shift(part.type, months=sign * by.months, micros=sign * by.micros)
    return apply(kernel, part.type.nullable, part)


def add_days(part: Part, days: Part, *, sign: int) -> Part:
    """Return a date some days later, null beyond the last date."""
    kind = replace(rules.DATE, optional=True)
    plus = by_array(lambda d, n: d.astype("int64") + sign * n.astype("int64"), dtype=pl.Int32)
    return apply(plus, kind, part, days)


def from_utc(value: Part, name: str) -> Part:
    """Return the local time in a zone at a timestamp, as if it were UTC."""
    return _moved(value, None, _zone(name, argument=1))


def to_utc(value: Part, name: str) -> Part:
    """Return the timestamp of a local time in a zone, which is given as if it were UTC.

    A local time that occurs twice is the first one; one that clocks skip is later by the jump.
    """
    return _moved(value, _zone(name, argument=1), None)


def convert(source: str, target: str, value: Part) -> Part:
    """Convert a local time in the source zone to the local time in the target zone."""
    return _moved(value, _zone(source, argument=0), _zone(target, argument=1))


def _zone(name: str, *, argument: int) -> wall_time.Zone:
    try:
        return wall_time.zone(name)
    except wall_time.TimeZoneError as error:
        raise UnfitError(
            "an IANA time zone such as 'Europe/Berlin'", found=repr(name), argument=argument
        ) from error


def _moved(value: Part, source: wall_time.Zone | None, target: wall_time.Zone | None) -> Part:
    per_ms = times.TICKS[value.type.kind] // 1000

    def move(ticks: Any) -> Any:
        in_ms = ticks // per_ms
        moved = in_ms if source is None else _instants(source, in_ms)
        moved = moved if target is None else target.walls(moved)
        return ticks + (moved - in_ms) * per_ms

    kernel: Kernel = by_array(move, dtype=pl.Int64)
    return plain(kernel, value.type)(value)


def _instants(zone: wall_time.Zone, walls: Any) -> Any:
    instants = zone.instants(walls)
    skipped = zone.walls(instants) != walls
    before = instants - 1  # the jump is then at `instants`
    return np.where(skipped, walls - (zone.walls(before) - before), instants)


_DATE_UNITS = {
    "year": "year yyyy yy",
    "quarter": "quarter",
    "month": "month mon mm",
    "week": "week",
}
_UNITS = _DATE_UNITS | {
    "day": "day dd",
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}


def _unit(word: str, units: dict[str, str], *, argument: int) -> str:
    for unit, words in units.items():
        if word.lower() in words.split():
            return unit
    names = ", ".join(units)
    raise UnfitError(f"one of {names}", found=repr(word), argument=argument)


def _date_trunc(unit: str, value: Part) -> Part:
    kernel = times.truncate(_unit(unit, _UNITS, argument=0), value.type)
    return apply(kernel, value.type, value)


def _trunc(value: Part, unit: str) -> Part:
    unit = _unit(unit, _DATE_UNITS, argument=1)
    return apply(times.truncate_date(unit), value.type.nullable, value)


def _time_field(unit: str, value: Part) -> Part:
    kind = FieldType("int", optional=value.type.optional)
    return apply(times.field_of_time(unit, value.type), kind, value)


def _count(unit: int, value: Part) -> Part:
    ticks = times.TICKS[value.type.kind]
    kind = FieldType("long", optional=value.type.optional or ticks < unit)
    return apply(times.to_count(unit, value.type), kind, value)


def _instant(unit: int, count: Part) -> Part:
    kind = rules.MICROS if unit == 1_000_000 else rules.TIMESTAMP
    kind = FieldType(kind.kind, optional=count.type.optional or unit < 1_000_000)
    return apply(times.from_count(kind, unit=unit), kind, count)


def _day_field(function: Callable[..., object]) -> Callable[..., Part]:
    return plain(times.of_day(function), WHOLE)


def _cast_to(target: FieldType) -> Callable[[Part], Part]:
    return lambda part: part.cast(target)


def _or_text(target: FieldType, parameter: Parameter) -> Parameter:
    def fit(part: Part) -> Part | None:
        return part.cast(target) if part.type.kind == "string" else parameter.fit(part)

    return Parameter(f"{parameter.word} or string", fit)


_MAYBE_DATE = rules.DATE.nullable

FUNCTIONS: tuple[Function, ...] = (
    Function("year", (DATE,), "int", _day_field(times.year), "year(at)"),
    Function("quarter", (DATE,), "int", _day_field(times.quarter), "quarter(at)"),
    Function("month", (DATE,), "int", _day_field(times.month), "month(at)"),
    Function(
        "day", (DATE,), "int", _day_field(times.day_of_month), "day(at)", aliases=("dayofmonth",)
    ),
    Function(
        "dayofweek", (DATE,), "int, 1 is Sunday", _day_field(times.day_of_week), "dayofweek(at)"
    ),
    Function("weekday", (DATE,), "int, 0 is Monday", _day_field(times.weekday), "weekday(at)"),
    Function("dayofyear", (DATE,), "int", _day_field(times.day_of_year), "dayofyear(at)"),
    Function("weekofyear", (DATE,), "int, ISO", _day_field(times.week_of_year), "weekofyear(at)"),
    Function("hour", (TIMESTAMP,), "int", partial(_time_field, "hour"), "hour(at)"),
    Function("minute", (TIMESTAMP,), "int", partial(_time_field, "minute"), "minute(at)"),
    Function("second", (TIMESTAMP,), "int", partial(_time_field, "second"), "second(at)"),
    Function(
        "date_trunc",
        (SOME_TEXT, TIMESTAMP),
        "timestamp; units year to microsecond",
        _date_trunc,
        "date_trunc('hour', at)",
    ),
    Function(
        "trunc",
        (DATE, SOME_TEXT),
        "date; units year, quarter, month, week",
        _trunc,
        "trunc(day, 'month')",
    ),
    Function(
        "last_day",
        (DATE,),
        "date",
        plain(times.of_day(times.last_day), _MAYBE_DATE),
        "last_day(day)",
    ),
    Function(
        "date_add",
        (DATE, INT),
        "date",
        partial(add_days, sign=1),
        "date_add(day, 30)",
        aliases=("dateadd",),
    ),
    Function("date_sub", (DATE, INT), "date", partial(add_days, sign=-1), "date_sub(day, 30)"),
    Function(
        "datediff",
        (DATE, DATE),
        "int, days from the second to the first",
        plain(times.of_day(np.subtract), WHOLE.nullable),
        "datediff(day, '2026-01-01')",
        aliases=("date_diff",),
    ),
    Function(
        "add_months",
        (DATE, INT),
        "date; the last day if the month is too short",
        plain(times.of_day(times.add_months), _MAYBE_DATE),
        "add_months(day, 2)",
    ),
    Function(
        "make_date",
        (INT, INT, INT),
        "date",
        plain(times.of_day(times.make_day), _MAYBE_DATE),
        "make_date(2026, 2, 28)",
    ),
    Function(
        "to_date",
        (_or_text(rules.DATE, DATE),),
        "date",
        _cast_to(rules.DATE),
        "to_date('2026-07-15')",
        aliases=("date",),
    ),
    Function(
        "to_timestamp",
        (_or_text(rules.TIMESTAMP, TIMESTAMP),),
        "timestamp",
        lambda part: part,
        "to_timestamp('2026-07-15T09:30:00Z')",
        aliases=("timestamp",),
    ),
    Function(
        "timestamp_seconds",
        (LONG,),
        "timestamp-millis",
        partial(_instant, 1),
        "timestamp_seconds(1)",
    ),
    Function(
        "timestamp_millis",
        (LONG,),
        "timestamp-millis",
        partial(_instant, 1000),
        "timestamp_millis(1500)",
    ),
    Function(
        "timestamp_micros",
        (LONG,),
        "timestamp-micros",
        partial(_instant, 1_000_000),
        "timestamp_micros(1500)",
    ),
    Function(
        "from_utc_timestamp",
        (TIMESTAMP, SOME_TEXT),
        "timestamp, what clocks in a zone show",
        from_utc,
        "from_utc_timestamp(at, 'America/New_York')",
    ),
    Function(
        "to_utc_timestamp",
        (TIMESTAMP, SOME_TEXT),
        "timestamp, from what clocks in a zone show",
        to_utc,
        "to_utc_timestamp(at, 'America/New_York')",
    ),
    Function(
        "convert_timezone",
        (SOME_TEXT, SOME_TEXT, TIMESTAMP),
        "timestamp, from one zone's clocks to another's",
        convert,
        "convert_timezone('Europe/Berlin', 'Asia/Tokyo', at)",
    ),
    Function("unix_seconds", (INSTANT,), "long", partial(_count, 1), "unix_seconds(at)"),
    Function("unix_millis", (INSTANT,), "long", partial(_count, 1000), "unix_millis(at)"),
    Function("unix_micros", (INSTANT,), "long", partial(_count, 1_000_000), "unix_micros(at)"),
)
