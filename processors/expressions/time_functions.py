"""Functions of dates and timestamps, and conversions between UTC and a zone's local time.

The zone of the session is UTC. Spark has no type for local times: it shifts the timestamp itself. A
zone's rules come with polars, in Spark with its Java: if these are of different years, results may
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import civil, clock, operators, rules
from errata.processors.expressions import time_functions as zones
from errata.processors.expressions.clock import TICKS
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
    per_ms = TICKS[value.type.kind] // 1000

    def move(ticks: Any) -> Any:
        times = ticks // per_ms
        moved = times if source is None else _instants(source, times)
        moved = moved if target is None else target.walls(moved)
        return ticks + (moved - times) * per_ms

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
    kernel = clock.truncate(_unit(unit, _UNITS, argument=0), value.type)
    return apply(kernel, value.type, value)


def _trunc(value: Part, unit: str) -> Part:
    unit = _unit(unit, _DATE_UNITS, argument=1)
    return apply(clock.truncate_date(unit), value.type.nullable, value)


def _time_field(unit: str, value: Part) -> Part:
    kind = FieldType("int", optional=value.type.optional)
    return apply(clock.field_of_time(unit, value.type), kind, value)


def _count(unit: int, value: Part) -> Part:
    ticks = clock.TICKS[value.type.kind]
    kind = FieldType("long", optional=value.type.optional or ticks < unit)
    return apply(clock.counted(unit, value.type), kind, value)


def _instant(unit: int, count: Part) -> Part:
    kind = rules.MICROS if unit == 1_000_000 else rules.TIMESTAMP
    kind = FieldType(kind.kind, optional=count.type.optional or unit < 1_000_000)
    return apply(clock.reach(kind, unit=unit), kind, count)


def _day_field(function: Callable[..., object]) -> Callable[..., Part]:
    return plain(clock.of_day(function), WHOLE)


def _cast_to(target: FieldType) -> Callable[[Part], Part]:
    return lambda part: part.cast(target)


def _of_text_too(target: FieldType, given: Parameter) -> Parameter:
    def fit(part: Part) -> Part | None:
        return part.cast(target) if part.type.kind == "string" else given.fit(part)

    return Parameter(f"{given.word} or string", fit)


_MAYBE_DATE = rules.DATE.nullable

FUNCTIONS: tuple[Function, ...] = (
    Function("year", (DATE,), "int", _day_field(civil.year), "year(at)"),
    Function("quarter", (DATE,), "int", _day_field(civil.quarter), "quarter(at)"),
    Function("month", (DATE,), "int", _day_field(civil.month), "month(at)"),
    Function(
        "day", (DATE,), "int", _day_field(civil.day_of_month), "day(at)", aliases=("dayofmonth",)
    ),
    Function(
        "dayofweek", (DATE,), "int, 1 is Sunday", _day_field(civil.day_of_week), "dayofweek(at)"
    ),
    Function("weekday", (DATE,), "int, 0 is Monday", _day_field(civil.weekday), "weekday(at)"),
    Function("dayofyear", (DATE,), "int", _day_field(civil.day_of_year), "dayofyear(at)"),
    Function("weekofyear", (DATE,), "int, ISO", _day_field(civil.week_of_year), "weekofyear(at)"),
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
        plain(clock.of_day(civil.last_day), _MAYBE_DATE),
        "last_day(day)",
    ),
    Function(
        "date_add",
        (DATE, INT),
        "date",
        partial(operators.add_days, sign=1),
        "date_add(day, 30)",
        aliases=("dateadd",),
    ),
    Function(
        "date_sub", (DATE, INT), "date", partial(operators.add_days, sign=-1), "date_sub(day, 30)"
    ),
    Function(
        "datediff",
        (DATE, DATE),
        "int, days from the second to the first",
        plain(clock.of_day(np.subtract), WHOLE.nullable),
        "datediff(day, '2026-01-01')",
        aliases=("date_diff",),
    ),
    Function(
        "add_months",
        (DATE, INT),
        "date, the last of a month too short",
        plain(clock.of_day(civil.add_months), _MAYBE_DATE),
        "add_months(day, 2)",
    ),
    Function(
        "make_date",
        (INT, INT, INT),
        "date",
        plain(clock.of_day(civil.make_day), _MAYBE_DATE),
        "make_date(2026, 2, 28)",
    ),
    Function(
        "to_date",
        (_of_text_too(rules.DATE, DATE),),
        "date",
        _cast_to(rules.DATE),
        "to_date('2026-07-15')",
        aliases=("date",),
    ),
    Function(
        "to_timestamp",
        (_of_text_too(rules.TIMESTAMP, TIMESTAMP),),
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
        zones.from_utc,
        "from_utc_timestamp(at, 'America/New_York')",
    ),
    Function(
        "to_utc_timestamp",
        (TIMESTAMP, SOME_TEXT),
        "timestamp, from what clocks in a zone show",
        zones.to_utc,
        "to_utc_timestamp(at, 'America/New_York')",
    ),
    Function(
        "convert_timezone",
        (SOME_TEXT, SOME_TEXT, TIMESTAMP),
        "timestamp, from one zone's clocks to another's",
        zones.convert,
        "convert_timezone('Europe/Berlin', 'Asia/Tokyo', at)",
    ),
    Function("unix_seconds", (INSTANT,), "long", partial(_count, 1), "unix_seconds(at)"),
    Function("unix_millis", (INSTANT,), "long", partial(_count, 1000), "unix_millis(at)"),
    Function("unix_micros", (INSTANT,), "long", partial(_count, 1_000_000), "unix_micros(at)"),
)
