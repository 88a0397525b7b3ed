"""Records that readers believe, and that the cleaner would take: dead ones stand behind them.

The broker's cleaner keeps the last record of a key whether anybody believes it or not
(``docs/protocol.md#10-compaction-and-tombstones``).
Dead records become visible by a late EndTxn only, behind the last end that their task reported.
"""

from __future__ import annotations

from collections.abc import Generator

import polars as pl

from errata.processors.arcs.arc_topic import Meta, history
from errata.processors.arcs.tombstones import last_of
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import Report
from errata.topics.cluster import TopicPartition

Copies = list[tuple[Meta, pl.DataFrame]]
"""Revisions to write again as they are, with what their records tell of themselves."""


def orphaned(
    shared: Shared, report: Report, arc: str, partition: int
) -> Generator[bool, None, Copies]:
    """Return the last believed records of a task whose keys have visible dead ones behind them.

    Args:
        shared: Of the task's process.
        report: Of the task.
        arc: A connection point that it writes.
        partition: Of the arc.
    """
    codec = shared.codec(arc)
    place = TopicPartition(codec.topic, partition)
    offset, _ = report.ends.get(place, (0, 0))
    found = yield from history(shared.cluster, codec, place, offset)
    dead = found.filter(pl.col("task") == report.task)
    if dead.is_empty():
        return []
    found = yield from history(shared.cluster, codec, place, 0)
    own = shared.view.believed(found.filter(pl.col("task") == report.task))
    last = last_of(own, codec.identities(dead).unique(), identity=list(codec.arc.identity))
    return [
        (Meta(task, attempt, epoch), copies)
        for (task, attempt, epoch), copies in last.group_by("task", "attempt", "epoch")
    ]
