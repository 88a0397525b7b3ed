"""Backfill: what boxes would have written by an epoch, had they existed from the start.

It is recomputed from the connection points of the previous version on executors, which write it,
and its sinks, as inserts of that epoch under the names of the tasks that will own it: the first
reports of these tasks cover all of it, or none. If a backfill is interrupted, the next one writes
the same tuples again, after the first ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa

from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.takeover import ROWS_A_TRANSACTION, Filled, NewArc
from errata.processors.wire.replay import unpack
from errata.processors.wire.report import INTERVAL_MS
from errata.processors.wire.task_id import ScopeId
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields
from errata.spark_jobs.executor import Recorder, Registered, connected
from errata.spark_jobs.reading import Arcs
from errata.spark_jobs.recompute import Recomputation, starts, ways_to
from errata.spark_jobs.session import collected
from errata.topics.cluster import Cluster, Transactions
from errata.topics.registry import Registry

BUCKETS = 64
"""Number of hash buckets of the groups; one bucket is in memory at a time."""

_WRITTEN = pa.schema([(name, pa.int64()) for name in ("partition", "end", "tuples")])
_SQL = "partition long, end long, tuples long"


class CannotBackfillError(ErrataError):
    """The content that a new box would have by now can't be computed."""


class BackfillFailedError(ErrataError):
    """Spark stopped during a backfill."""


def before(old: CompiledPlan, new: CompiledPlan) -> CompiledPlan:
    """Return the new plan's boxes over the old one's topics: new arcs must be recomputed."""
    arcs = {
        n: arc if n in old.topology.arcs else replace(arc, keep_ms=None)
        for n, arc in new.topology.arcs.items()
    }
    counts = new.placement.partitions | old.placement.partitions
    topology = replace(new.topology, arcs=arcs, topics=old.topology.topics)
    deployment = replace(new.deployment, generations=old.deployment.generations)
    placement = replace(new.placement, topology=topology, partitions=counts)
    return replace(new, placement=placement, deployment=deployment)


def check(old: CompiledPlan, new: CompiledPlan, arc: str) -> None:
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
        if start in old.topology.bound:
            raise CannotBackfillError(
                f"arc {arc!r} can't be filled: it comes from {start!r}, which is an arc of another "
                "network; run the network under another name, or add the boxes there"
            )
        if not old.topology.arcs[start].is_connection_point:
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
    plan: CompiledPlan
    buckets: int = BUCKETS

    @classmethod
    def of(
        cls,
        session: Any,
        view: View,
        old: CompiledPlan,
        new: CompiledPlan,
        *,
        kafka: Mapping[str, str | int],
        registry: Registry,
    ) -> Backfill:
        """Return the backfill for a new plan's arcs, with its schemas looked up.

        Args:
            session: The Spark session.
            view: What the tasks of the version before have reported.
            old: The deployed plan.
            new: The new plan.
            kafka: librdkafka settings.
            registry: The registry with the schemas.
        """
        return cls(
            session,
            Arcs(before(old, new), kafka, schema_ids(old, new, registry)),
            view,
            new,
        )

    def __call__(self, new: NewArc) -> Filled:
        """Recompute an arc and write it.

        Raises:
            BackfillFailedError: If Spark stops.
        """
        plan, kind = self.arcs.plan, self.plan.topology.arcs[new.name]
        ways = ways_to(plan, new.name)
        parts = {name: self.arcs.parts(self.view, name) for name in starts(plan, ways)}
        recomputation = Recomputation(
            self.session, self.arcs, parts, new.epoch, new.watermarks, self.buckets
        )
        blocks = recomputation.blocks(ways, kind, by=kind.partition_by, columns=list(kind.fields))
        writer, kafka = FillWriter(self.plan, new, self.arcs.ids), self.arcs.kafka
        writer.fence(self.view.cluster)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext  # PySpark may be missing where this module is imported

            packed = (block for rows in batches for block in rows["block"].to_pylist())
            number = TaskContext.get().partitionId()
            yield _rows_of(writer.write(connected(kafka), map(unpack, packed), number=number))

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


def schema_ids(old: CompiledPlan, new: CompiledPlan, registry: Registry) -> dict[str, int]:
    """Return the ids of the schemas of all arcs of two plans, and of the new one's sinks."""
    recorder = Recorder(registry)
    for plan in (old, new):
        recorder.look_up(plan, plan.topology.topics)
    for sink in new.topology.sinks:
        Outgoing(new.topology.arcs[sink.arc], sink.topic, sink.envelope, sink.format, recorder)
    return recorder.ids


def _rows_of(filled: Filled) -> pa.RecordBatch:
    """Return what was written as rows: one with the number of tuples, and one per partition."""
    rows = [{"partition": -1, "end": 0, "tuples": filled.tuples}]
    rows += [{"partition": p, "end": end, "tuples": 0} for p, end in filled.ends.items()]
    return pa.RecordBatch.from_pylist(rows, schema=_WRITTEN)


WRITERS = 16
"""Largest number of concurrent writers of an arc: constant, so that each of them can be fenced."""


@dataclass(frozen=True)
class FillWriter:
    """Writes tuples to a new arc and its sinks, in any process: pickled to executors.

    Args:
        plan: The plan that has the arc.
        new: The arc.
        ids: Schema ids by subject.
    """

    plan: CompiledPlan
    new: NewArc
    ids: Mapping[str, int]

    def transactional_id(self, number: int) -> str:
        """Return the transactional id of one concurrent writer."""
        return f"{self.plan.network}.{self.new.name}.fill.{number}"

    def fence(self, cluster: Cluster) -> None:
        """Fence all writers of an older attempt."""
        for number in range(WRITERS):
            cluster.transactions(self.transactional_id(number)).close()

    @cached_property
    def _codec(self) -> ArcCodec:
        name = self.new.name
        return ArcCodec(
            self.plan.topology.arcs[name], self.plan.deployment.topic(name), Registered(self.ids)
        )

    @cached_property
    def _spread(self) -> Spread:
        return Spread(
            self.plan.topology.arcs[self.new.name], self.plan.placement.partitions[self.new.name]
        )

    @cached_property
    def _sinks(self) -> list[tuple[Outgoing, int]]:
        plan, registry = self.plan, Registered(self.ids)
        arc = plan.topology.arcs[self.new.name]
        return [
            (
                Outgoing(arc, s.topic, s.envelope, s.format, registry),
                plan.placement.sink_partitions[s.topic],
            )
            for s in plan.topology.sinks_of(self.new.name)
        ]

    def write(self, cluster: Cluster, blocks: Iterable[pl.DataFrame], *, number: int) -> Filled:
        """Write tuples as inserts; tuples of partitions without an attempt are left out.

        Args:
            cluster: The cluster.
            blocks: Frames of tuples.
            number: The number of this writer, in [0, WRITERS).
        """
        ends, total = dict[int, int](), 0
        transactions = cluster.transactions(self.transactional_id(number))
        try:
            for tuples in gathered(blocks):
                wanted = self._spread.places(tuples).is_in(list(self.new.attempts))
                for part in tuples.filter(wanted).iter_slices(ROWS_A_TRANSACTION):
                    transactions.begin()
                    self._produce(transactions, part)
                    written = transactions.flush()
                    transactions.commit()
                    total += part.height
                    ends |= {
                        place.partition: own.stop
                        for place, own in written.items()
                        if place.topic == self.plan.deployment.topic(self.new.name)
                    }
        finally:
            transactions.close()
        return Filled(total, ends)

    def _produce(self, transactions: Transactions, tuples: pl.DataFrame) -> None:
        name, epoch = self.new.name, self.new.epoch
        revisions = inserts(tuples, self.plan.topology.arcs[name].fields)
        if name in self.plan.topology.topics:
            for (partition,), part in parted(revisions, self._spread.places(tuples)):
                task = str(ScopeId.parse(self.plan.topology.scope_of(name)).task(partition))
                meta = Meta(task, self.new.attempts[partition], epoch)
                keys, values = self._codec.encode(part, meta)
                places = [partition] * len(keys)
                transactions.produce(self._codec.topic, partitions=places, keys=keys, values=values)
        for sink, count in self._sinks:
            sink.produce(
                transactions,
                revisions,
                epoch=epoch,
                time_ms=epoch * INTERVAL_MS,
                partition_count=count,
            )


def gathered(blocks: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield small frames merged up to the size of a transaction."""
    pending = list[pl.DataFrame]()
    for block in blocks:
        pending.append(block)
        if sum(frame.height for frame in pending) >= ROWS_A_TRANSACTION:
            yield pl.concat(pending)
            pending = []
    if pending:
        yield pl.concat(pending)


def inserts(tuples: pl.DataFrame, fields: Fields) -> pl.DataFrame:
    """Return an insert for each tuple."""
    return tuples.select(
        pl.lit(frames.INSERT, pl.UInt8).alias("op"),
        *(pl.lit(None, kind.dtype).alias(frames.BEFORE + name) for name, kind in fields.items()),
        *(pl.col(name).alias(frames.AFTER + name) for name in fields),
    )
