"""Where the epochs to come begin in an arc's topic: for readers that don't want its history."""

from __future__ import annotations

import time

from errata.processors.reports.progress_view import View
from errata.topics.cluster import TopicPartition
from errata.topics.transactions import TIMEOUT_S

_LONGEST_MS = int(2 * TIMEOUT_S * 1000)
"""No transaction is open for so long."""


def settled(view: View, arc: str, *, now_ms: int | None = None) -> tuple[int, list[int]]:
    """Return an epoch, and by partition an offset before which there is nothing of later ones.

    It is the newest epoch that a writer of the arc has reported. What was written so long ago that
    its transaction has ended has been reported by now.

    Args:
        view: What the tasks have reported; it is brought up to now.
        arc: The arc.
        now_ms: The time; the clock's when None.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    partitions, starts = range(view.plan.partition_count(arc)), []
    for partition in partitions:
        place = TopicPartition(view.plan.topic(arc), partition)
        end = view.cluster.end(place)  # before asking for what may not be there yet
        starts.append(min(end, view.cluster.offset_at(place, now_ms - _LONGEST_MS)))
    view.catch_up()
    writers = {writer for partition in partitions for writer in view.writers(arc, partition)}
    return max(view.of(writer).done for writer in writers), starts
