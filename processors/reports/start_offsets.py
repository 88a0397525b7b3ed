"""Start offsets in an arc's topic for readers that want future epochs only, not its history."""

from __future__ import annotations

import time

from errata.processors.reports.progress_view import View
from errata.topics.cluster import TopicPartition
from errata.topics.transactions import TIMEOUT_S

_LONGEST_MS = int(2 * TIMEOUT_S * 1000)
"""No transaction stays open this long."""


def settled(view: View, arc: str, *, now_ms: int | None = None) -> tuple[int, list[int]]:
    """Return an epoch, and by partition an offset; records of later epochs lie at or after it.

    The epoch is the newest that a writer of the arc has reported. Records so old that their
    transaction must have ended are reported by now.

    Args:
        view: The tasks' reports; it is caught up here.
        arc: The arc.
        now_ms: The time in ms since 1970; None: the clock's.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    partitions, starts = range(view.plan.partition_count(arc)), []
    for partition in partitions:
        place = TopicPartition(view.plan.topic(arc), partition)
        end = view.cluster.end(place)  # asked first: offset_at may return a later one
        starts.append(min(end, view.cluster.offset_at(place, now_ms - _LONGEST_MS)))
    view.catch_up()
    writers = {writer for partition in partitions for writer in view.writers(arc, partition)}
    return max(view.of(writer).done for writer in writers), starts
