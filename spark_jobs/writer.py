"""Writes a batch's revisions to the job's arc and its sinks: on executors, a transaction a task.

The transactional id is that of the task's place in the batch. A new life of the driver fences all
of them before it looks at what was written last, so no late hand of an older one writes behind it.
A batch that is run again in one life writes exact copies: readers take one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pandas as pd
import polars as pl
from pyspark import TaskContext

from processors.arc_topic import Meta
from processors.desk import unpack
from processors.envelopes.outgoing import Outgoing
from processors.graves import Emission
from processors.spread import Spread
from processors.task import INTERVAL_MS
from schemas.partition import partitions
from spark_jobs.blocks import HEADER
from spark_jobs.epochs import Batch
from spark_jobs.job import Job
from topics.cluster import TopicPartition

WRITTEN = (
    "batch string, resume string, ends map<int, long>, first long, last long, "
    "counts map<string, long>"
)
"""What a task of a batch tells the driver: a row each, nothing of the stream."""


class Writer:
    """Writes what one task of a batch is given.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Write, and tell what was written once the brokers have acknowledged all of it."""
        batch, resume, found = "", "", list[pl.DataFrame]()
        counts, held = Counter[str](), list[int]()
        for frame in rows:
            for row in frame.itertuples():  # a row a share
                batch = row.batch
                if row.kind == HEADER:
                    resume += row.block.decode() + ","
                    continue
                if row.block:
                    found.append(unpack(row.block))
                if row.states:
                    held.append(row.slab)
                counts.update(dict(row.counts))
        if not batch:
            return
        ends = self._write(Batch.of(batch), pl.concat(found)) if found else {}
        yield pd.DataFrame(
            {
                "batch": [batch],
                "resume": [resume],
                "ends": [ends],
                "first": pd.array([min(held, default=None)], dtype="Int64"),
                "last": pd.array([max(held, default=None)], dtype="Int64"),
                "counts": [dict(counts)],
            }
        )

    def _write(self, batch: Batch, revisions: pl.DataFrame) -> dict[int, int]:
        """Write revisions; return by partition of the arc the offset behind the last of them."""
        job, arc = self.job, self.job.plan.arcs[self.job.name]
        emissions = [
            (partition, part)
            for emission in Spread(arc, job.partition_count).emissions(revisions, batch.epoch)
            for partition, part in _by_partition(emission)
            if batch.epoch > job.done[partition]
        ]
        if not emissions:
            return {}
        cluster, codec = job.cluster(), job.codec(job.name)
        number = TaskContext.get().partitionId()
        transactions = cluster.transactions(f"{job.transactional_id}.{number}")
        try:
            transactions.begin()
            for partition, part in emissions:
                meta = Meta(job.task(partition), job.attempts[partition], batch.epoch)
                keys, values = codec.encode(part, meta)
                transactions.produce(
                    codec.topic, partitions=[partition] * len(keys), keys=keys, values=values
                )
            for sink in job.plan.sinks_of(job.name):
                outgoing = Outgoing(arc, sink.topic, sink.envelope, sink.format, job.registry)
                time_ms = batch.epoch * INTERVAL_MS
                for _, part in emissions:
                    found = outgoing.encode(part, epoch=batch.epoch, time_ms=time_ms)
                    places = partitions(found[0], job.plan.sink_partitions[sink.topic]).tolist()
                    transactions.produce(
                        sink.topic, partitions=places, keys=found[0], values=found[1]
                    )
            ends = transactions.flush()
            transactions.commit()
        finally:
            transactions.close()
        return {
            partition: ends[TopicPartition(codec.topic, partition)]
            for partition in {partition for partition, _ in emissions}
        }


def _by_partition(emission: Emission) -> Iterable[tuple[int, pl.DataFrame]]:
    placed = emission.revisions.with_columns(emission.partitions.alias("@partition"))
    parts = placed.partition_by("@partition", as_dict=True, include_key=False)
    return [(int(partition), part) for (partition,), part in parts.items()]
