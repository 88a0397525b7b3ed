"""The source of a job: a Python data source that reads an arc in whole epochs, as blocks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from processors.view import View, believed
from schemas import revisions as frames
from schemas.arc import Arc
from spark_jobs import blocks
from spark_jobs.blocks import HEADER, RESULTS, TICK, TUPLES, Shares
from spark_jobs.epochs import Batch, Bound, Epochs
from spark_jobs.job import Job
from topics.cluster import TopicPartition

WAIT_S = 0.05
"""How long to wait for reports before saying that there is nothing new."""


@dataclass
class Stretch(InputPartition):  # type: ignore[misc]
    """What one task of Spark reads.

    Args:
        batch: The batch, as rows have it.
        kind: `TUPLES` or `RESULTS`: a stretch of the input, or of the job's own arc; `TICK`: slabs
            to visit; `HEADER`.
        partition: Of the arc.
        offsets: Of the stretch, half-open.
        committed: By task that writes there, and attempt: the last epoch to be believed.
        slabs: To visit.
    """

    batch: str
    kind: int
    partition: int = 0
    offsets: tuple[int, int] = (0, 0)
    committed: Mapping[str, Mapping[int, int]] | None = None
    slabs: range = range(0)


class EpochReader(DataSourceStreamReader):  # type: ignore[misc]
    """Gives a job's input in whole epochs.

    The engine calls ``partitions(end, end)`` with the last bound of its log before anything else
    when it goes on from a checkpoint.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._epochs: Epochs | None = None
        self._now = Bound()

    @property
    def epochs(self) -> Epochs:
        """What follows the reports: in the one process of the driver's that asks."""
        if self._epochs is None:
            self._epochs = Epochs(self.job, View(self.job.cluster(), plan=self.job.plan))
            self._epochs.catch_up()
        return self._epochs

    def initialOffset(self) -> dict[str, Any]:
        """Return the bound before everything."""
        return Bound().plain()

    def latestOffset(self) -> dict[str, Any]:
        """Return the bound up to which the input is complete."""
        self.epochs.view.poll()
        return self.epochs.next(self._now).plain()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Stretch]:
        """Return what to read between two bounds."""
        first, last = Bound.of(start), Bound.of(end)
        self._now = last
        if first.epoch == last.epoch:
            return []
        epochs, job = self.epochs, self.job
        while epochs.reported < first.epoch:
            epochs.view.poll()  # the report of the batch before is on its way
        batch = Batch(first.epoch, last.epoch, first.watermark, last.watermark)
        text = batch.text()
        found = [
            Stretch(text, HEADER),
            Stretch(text, TICK, slabs=epochs.ticks(first, last)),
        ]
        for partition in range(job.partition_count):
            offsets = last.starts.get(partition, 0), last.ends[partition]
            writers = epochs.view.writers(job.input, partition)
            found.append(Stretch(text, TUPLES, partition, offsets, self._committed(writers)))
            if batch.is_whole:
                found.append(self._own(text, partition))
        return [stretch for stretch in found if _is_something(stretch)]

    def _own(self, batch: str, partition: int) -> Stretch:
        """Return what the job itself has emitted."""
        task, topic = self.job.task(partition), self.job.plan.topic(self.job.name)
        end, _ = self.epochs.view.of(task).ends.get(TopicPartition(topic, partition), (0, 0))
        return Stretch(batch, RESULTS, partition, (0, end), self._committed([task]))

    def _committed(self, tasks: list[str]) -> dict[str, dict[int, int]]:
        return {task: dict(self.epochs.view.of(task).committed) for task in tasks}

    def read(self, partition: Stretch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch; runs on an executor."""
        job, batch, text = self.job, Batch.of(partition.batch), partition.batch
        if partition.kind == HEADER:
            yield blocks.row(0, 0, HEADER, batch=text)
        elif partition.kind == TICK:
            for slab in partition.slabs:
                for bucket in range(job.buckets):
                    yield blocks.row(bucket, slab, TICK, batch=text)
        elif partition.kind == RESULTS:
            found = believed(_revisions(job, job.name, partition), partition.committed or {})
            emitted = _content(found, job.plan.arcs[job.name])
            for bucket, slab, block in Shares(job).of_results(emitted):
                yield blocks.row(bucket, slab, RESULTS, batch=text, block=block)
        else:
            found = _revisions(job, job.input, partition)
            later = found.filter(pl.col("epoch") > batch.epoch)["offset"].min()
            oldest = cast(int | None, later)
            resume = f"{partition.partition}:{partition.offsets[1] if oldest is None else oldest}"
            yield blocks.row(0, 0, HEADER, batch=text, block=resume.encode())
            found = believed(found, partition.committed or {})
            found = found.filter(pl.col("epoch").is_between(batch.after + 1, batch.epoch))
            for bucket, slab, block in Shares(job).of_tuples(*_sides(job, batch, found)):
                yield blocks.row(
                    bucket, slab, TUPLES, batch=text, origin=partition.partition, block=block
                )


def _sides(job: Job, batch: Batch, found: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tuples that leave and enter the aggregate's input in a batch."""
    arc, names = job.plan.arcs[job.input], list(job.box.input.fields)
    if batch.is_whole:
        content = _content(found, arc)
        for box in job.chain:
            content = box.recompute(content, wm=batch.wm)
        return content.clear(), content
    net = frames.coalesced(found, arc.identity, list(arc.fields))
    for box in job.chain:
        net = box.revise(net)
    return frames.leaving(net, names), frames.entering(net, names)


def _content(revisions: pl.DataFrame, arc: Arc) -> pl.DataFrame:
    return frames.fold(revisions, arc.identity, list(arc.fields))


def _revisions(job: Job, arc: str, stretch: Stretch) -> pl.DataFrame:
    """Return the revisions of a stretch, whether they are believed or not."""
    codec, cluster = job.codec(arc), job.cluster()
    place, (first, end) = TopicPartition(codec.topic, stretch.partition), stretch.offsets
    parts = [codec.empty]
    if first < end:
        reader = cluster.reader({place: first})
        try:
            while reader.position(place) < end:
                parts += [codec.decode(records) for records in reader.poll(timeout_s=WAIT_S)]
        finally:
            reader.close()
    return pl.concat(parts).filter(pl.col("offset") < end)


def _is_something(stretch: Stretch) -> bool:
    if stretch.kind == TICK:
        return len(stretch.slabs) > 0
    return stretch.kind == HEADER or stretch.offsets[0] < stretch.offsets[1]


def source_of(job: Job) -> type[DataSource]:
    """Return the data source of a job, to be registered with a session under its `name_of`."""

    class EpochSource(DataSource):  # type: ignore[misc]
        """One arc in whole epochs."""

        @classmethod
        def name(cls) -> str:
            return name_of(job)

        def schema(self) -> str:
            return blocks.SCHEMA

        def streamReader(self, schema: Any) -> EpochReader:
            return EpochReader(job)

    return EpochSource


def name_of(job: Job) -> str:
    """Return the format under which a job's source is registered."""
    return f"errata-epochs-{zlib.crc32(job.transactional_id.encode()):08x}"
