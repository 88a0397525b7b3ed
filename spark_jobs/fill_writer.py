"""Writes the content of a new arc, and its sinks, under the names of the tasks that will own it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec, Meta
from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.plan import Plan
from errata.processors.tasks.takeover import ROWS_A_TRANSACTION, Filled, NewArc
from errata.processors.wire.report import INTERVAL_MS
from errata.processors.wire.task_id import ScopeId
from errata.schemas import revisions as frames
from errata.schemas.fields import Fields
from errata.spark_jobs.registered import Registered
from errata.topics.cluster import Cluster, Transactions

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

    plan: Plan
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
        return ArcCodec(self.plan.arcs[name], self.plan.topic(name), Registered(self.ids))

    @cached_property
    def _spread(self) -> Spread:
        return Spread(self.plan.arcs[self.new.name], self.plan.partition_count(self.new.name))

    @cached_property
    def _sinks(self) -> list[tuple[Outgoing, int]]:
        plan, registry = self.plan, Registered(self.ids)
        arc = plan.arcs[self.new.name]
        return [
            (Outgoing(arc, s.topic, s.envelope, s.format, registry), plan.sink_partitions[s.topic])
            for s in plan.sinks_of(self.new.name)
        ]

    def write(self, cluster: Cluster, blocks: Iterable[pl.DataFrame], *, number: int) -> Filled:
        """Write tuples as inserts; tuples of partitions without an attempt are left out.

        Args:
            cluster: Where to.
            blocks: Frames of tuples.
            number: Which of those who write at once this is.
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
                        place.partition: end
                        for place, end in written.items()
                        if place.topic == self.plan.topic(self.new.name)
                    }
        finally:
            transactions.close()
        return Filled(total, ends)

    def _produce(self, transactions: Transactions, tuples: pl.DataFrame) -> None:
        name, epoch = self.new.name, self.new.epoch
        revisions = inserts(tuples, self.plan.arcs[name].fields)
        if name in self.plan.topics:
            for (partition,), part in parted(revisions, self._spread.places(tuples)):
                task = str(ScopeId.parse(self.plan.scope_of(name)).task(partition))
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
    held = list[pl.DataFrame]()
    for block in blocks:
        held.append(block)
        if sum(frame.height for frame in held) >= ROWS_A_TRANSACTION:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)


def inserts(tuples: pl.DataFrame, fields: Fields) -> pl.DataFrame:
    """Return an insert for each tuple."""
    return tuples.select(
        pl.lit(frames.INSERT, pl.UInt8).alias("op"),
        *(pl.lit(None, kind.dtype).alias(frames.BEFORE + name) for name, kind in fields.items()),
        *(pl.col(name).alias(frames.AFTER + name) for name in fields),
    )
