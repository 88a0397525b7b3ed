"""An arc's tuple type: the fields of its tuples, its identity, and its event time.

Users and sinks see revisions without the hidden fields, and no revision that changes only those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.fields import FieldType

HIDDEN_PREFIX = "__"


WINDOW_END = "window_end"
"""The event-time field of an aggregate's results; hidden if they have no windows."""


def usual_shift_ms(event_time: str) -> int:
    """Return the `Arc.event_time_shift_ms` that almost all arcs with this event-time field have."""
    return -1 if event_time in (WINDOW_END, HIDDEN_PREFIX + WINDOW_END) else 0


@dataclass(frozen=True)
class Arc:
    """One arc of a network.

    Args:
        name: The arc's name; unique in its network.
        fields: Type by field name, in wire order.
        identity: The fields that name a tuple; never null.
        event_time: The timestamp field that says when a tuple happened.
        event_time_shift_ms: Added to that field to give the event time: 0, or -1 where the field is
            an exclusive window end.
        partition_by: The fields whose hash gives the partition; may be none (one partition is
            used).
        keep_ms: How much event time can be replayed; None if the arc is not a connection point.
        exchange: Whether all tasks of its scope write to each of its partitions; its readers then
            compute the net revisions.
        sink: Whether it is only written to sinks, and has no topic of its own.
    """

    name: str
    fields: Mapping[str, FieldType]
    identity: tuple[str, ...]
    event_time: str
    partition_by: tuple[str, ...]
    event_time_shift_ms: int = 0
    keep_ms: int | None = None
    exchange: bool = False
    sink: bool = False

    @property
    def is_connection_point(self) -> bool:
        """Whether the arc's history can be replayed."""
        return self.keep_ms is not None

    @property
    def visible(self) -> list[str]:
        """Names of the fields that users and sinks see."""
        return [name for name in self.fields if not name.startswith(HIDDEN_PREFIX)]

    def event_times(self, tuples: pl.DataFrame) -> pl.Series:
        """Event time of each tuple in ms, null where the field is null."""
        times = tuples[self.event_time]
        return times + self.event_time_shift_ms if self.event_time_shift_ms else times


def visible(arc: Arc, revisions: pl.DataFrame) -> pl.DataFrame:
    """Drop the hidden fields, and the revisions that change only hidden fields.

    Args:
        arc: The arc of the revisions.
        revisions: A frame of revisions; all its columns stay.
    """
    same = pl.all_horizontal(
        pl.col(frames.BEFORE + name).eq_missing(pl.col(frames.AFTER + name)) for name in arc.visible
    )
    return revisions.filter((pl.col("op") != frames.REPLACE) | ~same)
