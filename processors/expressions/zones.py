"""Timestamps moved between UTC and the clocks of a time zone.

Spark has no type for what clocks show: it moves the timestamp itself. A zone's rules are those that
polars brings, in Spark those of its Java: where the two are of different years they may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions.clock import TICKS
from errata.processors.expressions.columns import Kernel, by_array
from errata.processors.expressions.function import UnfitError, plain
from errata.processors.expressions.part import Part
from errata.processors.windows import wall_time


def from_utc(value: Part, name: str) -> Part:
    """Return what clocks in a zone show at a timestamp, as if it were UTC."""
    return _moved(value, None, _zone(name, argument=1))


def to_utc(value: Part, name: str) -> Part:
    """Return the timestamp at which clocks in a zone show another, taken as if it were UTC.

    What clocks show twice is the first time; what they jump over is later by the jump.
    """
    return _moved(value, _zone(name, argument=1), None)


def convert(source: str, target: str, value: Part) -> Part:
    """Return what clocks in one zone show when those in another show a timestamp."""
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
    before = instants - 1  # the jump comes at `instants` then
    return np.where(skipped, walls - (zone.walls(before) - before), instants)
