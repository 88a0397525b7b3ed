"""Backfill: what boxes would have written by an epoch, had they existed from the start.

It is recomputed from the connection points of the previous version on executors, which write it as
inserts of that epoch under the names of the tasks that will own it: the first reports of these
tasks cover all of it, or none. If a backfill is interrupted, the next one writes the same tuples
again, after the first ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.takeover import Filled, NewArc
from errata.processors.wire.replay import unpack
from errata.schemas.errors import ErrataError
from errata.spark_jobs.connected import connected
from errata.spark_jobs.fill_writer import WRITERS, FillWriter
from errata.spark_jobs.reading import Arcs
from errata.spark_jobs.recompute import Recomputation, starts, ways_to
from errata.spark_jobs.registered import Recorder
from errata.spark_jobs.session import collected
from errata.topics.registry import Registry

BUCKETS = 64
"""Number of hash buckets of the groups; one bucket is in memory at a time."""

_WRITTEN = pa.schema([(name, pa.int64()) for name in ("partition", "end", "tuples")])
_SQL = "partition long, end long, tuples long"


class CannotBackfillError(ErrataError):
    """The content that a new box would have by now can't be computed."""


class BackfillFailedError(ErrataError):
    """Spark stopped during a backfill."""


def before(old: Plan, new: Plan) -> Plan:
    """Return the new plan's boxes over the old one's topics: new arcs must be recomputed."""
    arcs = {n: arc if n in old.arcs else replace(arc, keep_ms=None) for n, arc in new.arcs.items()}
    counts = new.partitions | old.partitions
    return replace(
        new, arcs=arcs, topics=old.topics, partitions=counts, generations=old.generations
    )


def check(old: Plan, new: Plan, arc: str) -> None:
    """Check that everything is retained from which an arc is recomputed.

    Args:
        old: The plan that is deployed.
        new: The next one.
        arc: An arc that only the next one has.

    Raises:
        CannotBackfillError: If something is not.
    """
    plan = before(old, new)
    for start in starts(plan, ways_to(plan, arc)):
        if not old.arcs[start].is_connection_point:
            raise CannotBackfillError(
                f"arc {arc!r} can't be filled: it comes from {start!r}, which is deployed without "
                "keep= and has no history; run the network under another name, with keep= on it"
            )


@dataclass(frozen=True)
class Backfill:
    """Fills new arcs by Spark jobs: a `processors.tasks.takeover.Fill`.

    Args:
        session: The Spark session.
        arcs: Those of the version before, under the new plan's boxes (`before`).
        view: What the tasks of the version before have reported.
        plan: The new plan.
        buckets: How many parts groups are hashed into.
    """

    session: Any
    arcs: Arcs
    view: View
    plan: Plan
    buckets: int = BUCKETS

    @classmethod
    def of(
        cls,
        session: Any,
        view: View,
        new: Plan,
        *,
        kafka: Mapping[str, str | int],
        registry: Registry,
    ) -> Backfill:
        """Return the backfill for a new plan's arcs, with its schemas looked up.

        Args:
            session: The Spark session.
            view: What the tasks of the version before have reported.
            new: The new plan.
            kafka: librdkafka settings.
            registry: Where the schemas are.
        """
        return cls(
            session,
            Arcs(before(view.plan, new), kafka, schema_ids(view.plan, new, registry)),
            view,
            new,
        )

    def __call__(self, new: NewArc) -> Filled:
        """Recompute an arc and write it.

        Raises:
            BackfillFailedError: If Spark stops.
        """
        plan, kind = self.arcs.plan, self.plan.arcs[new.name]
        ways = ways_to(plan, new.name)
        parts = {name: self.arcs.parts(self.view, name) for name in starts(plan, ways)}
        made = Recomputation(
            self.session, self.arcs, parts, new.epoch, new.watermarks, self.buckets
        )
        blocks = made.blocks(ways, kind, by=kind.partition_by, columns=list(kind.fields))
        writer, kafka = FillWriter(self.plan, new, self.arcs.ids), self.arcs.kafka
        writer.fence(self.view.cluster)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext  # PySpark may be missing where this module is imported

            packed = (block for rows in batches for block in rows["block"].to_pylist())
            number = TaskContext.get().partitionId()
            yield _told(writer.write(connected(kafka), map(unpack, packed), number=number))

        rows = collected(
            blocks.coalesce(WRITERS).mapInArrow(write, _SQL),
            failed=lambda why: BackfillFailedError(
                f"arc {new.name!r} could not be filled: {why}; run it again"
            ),
        )
        ends = Counter[int]()
        for row in rows:
            ends[row.partition] = max(ends[row.partition], row.end)
        total = sum(row.tuples for row in rows)
        return Filled(total, {p: end for p, end in ends.items() if p >= 0})


def schema_ids(old: Plan, new: Plan, registry: Registry) -> dict[str, int]:
    """Return the ids of the schemas of all arcs of two plans, and of the new one's sinks."""
    recorder = Recorder(registry)
    for plan in (old, new):
        recorder.look_up(plan, plan.topics)
    for sink in new.sinks:
        Outgoing(new.arcs[sink.arc], sink.topic, sink.envelope, sink.format, recorder)
    return recorder.ids


def _told(filled: Filled) -> pa.RecordBatch:
    """Return what was written as rows: one with the number of tuples, and one per partition."""
    rows = [{"partition": -1, "end": 0, "tuples": filled.tuples}]
    rows += [{"partition": p, "end": end, "tuples": 0} for p, end in filled.ends.items()]
    return pa.RecordBatch.from_pylist(rows, schema=_WRITTEN)
