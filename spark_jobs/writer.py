"""Writes a batch's revisions to the job's arc: on executors, one transaction for each task.

The transactional id is that of the task's place in the batch. A new attempt of the driver fences
all of them before it looks for the last records written, so no late write of an older attempt
follows. If a batch is rerun within one attempt, it writes exact copies: readers use one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd
import polars as pl
from pyspark import TaskContext

from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.wire.replay import unpack
from errata.schemas import revisions as frames
from errata.spark_jobs.blocks import HEADER, LETTERS
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.topics.cluster import Cluster, TopicPartition

WRITTEN = (
    "batch string, resume string, ends map<int, long>, first long, last long, "
    "counts map<string, long>, letters array<binary>"
)
"""What a task of a batch returns to the driver: one row; of the data only dead letters."""


class Writer:
    """Writes the output of one task of a batch.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Write, and return what was written once the brokers have acknowledged all of it."""
        batch, resume, found = "", "", list[pl.DataFrame]()
        counts, held, letters = Counter[str](), list[int](), list[bytes]()
        for frame in rows:
            for row in frame.itertuples():  # a row for each share
                batch = row.batch
                if row.kind == HEADER:
                    resume += row.block.decode() + ","
                    continue
                if row.kind == LETTERS:
                    letters.append(row.block)
                    continue
                if row.block:
                    found.append(unpack(row.block))
                if row.states:
                    held.append(row.slab)
                counts.update(dict(row.counts))
        if not batch:
            return
        number = TaskContext.get().partitionId()
        ends = write(self.job, self.job.cluster(), Batch.of(batch), found, number=number)
        yield pd.DataFrame(
            {
                "batch": [batch],
                "resume": [resume],
                "ends": [ends],
                "first": pd.array([min(held, default=None)], dtype="Int64"),
                "last": pd.array([max(held, default=None)], dtype="Int64"),
                "counts": [dict(counts)],
                "letters": [letters],
            }
        )


def write(
    job: Job, cluster: Cluster, batch: Batch, revisions: Sequence[pl.DataFrame], *, number: int
) -> dict[int, int]:
    """Write revisions in one transaction; skip partitions whose report is committed.

    Args:
        job: The job.
        cluster: Where to.
        batch: The batch that they are of.
        revisions: Frames of revisions of the job's arc.
        number: Which of the batch's writers this is.

    Returns:
        By partition of the arc, the offset behind the last record.
    """
    arc = job.plan.arcs[job.name]
    made = pl.concat([frames.none(arc.fields), *revisions])
    emissions = [
        (partition, part)
        for emission in Spread(arc, job.partition_count).emissions(made, batch.epoch)
        for (partition,), part in parted(emission.revisions, emission.partitions)
        if batch.epoch > job.done[partition]
    ]
    if not emissions:
        return {}
    codec = job.codec(job.name)
    transactions = cluster.transactions(job.writer_id(number))
    try:
        transactions.begin()
        for partition, part in emissions:
            meta = Meta(job.task(partition), job.attempts[partition], batch.epoch)
            keys, values = codec.encode(part, meta)
            places = [partition] * len(keys)
            transactions.produce(codec.topic, partitions=places, keys=keys, values=values)
        ends = transactions.flush()
        transactions.commit()
    finally:
        transactions.close()
    written = {partition for partition, _ in emissions}
    return {p: ends[TopicPartition(codec.topic, p)] for p in written}
