"""What a batch reads: stretches of topics, which become rows of blocks.

Does not depend on Spark or its data sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import polars as pl

from errata.processors.boxes.base import Refused
from errata.processors.reports.progress_view import believed
from errata.schemas import revisions as frames
from errata.spark_jobs import letters, reading
from errata.spark_jobs.blocks import HEADER, LETTERS, RESULTS, TICK, TUPLES, Shares
from errata.spark_jobs.epochs import Batch, Bound, Epochs
from errata.spark_jobs.job import Job
from errata.topics.cluster import Cluster, TopicPartition


class Row(NamedTuple):
    """A row of blocks, without its batch.

    Args:
        bucket: The hash bucket of the groups.
        slab: The slab of their windows.
        kind: `TUPLES`, `RESULTS`, `TICK`, `HEADER` or `LETTERS`.
        origin: Where it is from: rows of a share are taken in this order.
        block: The tuples, or what else it brings.
    """

    bucket: int
    slab: int
    kind: int
    origin: int = 0
    block: bytes = b""


@dataclass(frozen=True)
class Stretch:
    """The input of one task of a batch.

    Args:
        batch: The batch.
        kind: `TUPLES` or `RESULTS`: a stretch of the input, or of the job's own arc; `TICK`: slabs
            to visit; `HEADER`.
        partition: Of the arc.
        offsets: Of the stretch, half-open.
        committed: By task that writes there, and attempt: the last epoch to be believed.
        slabs: To visit.
    """

    batch: Batch
    kind: int
    partition: int = 0
    offsets: tuple[int, int] = (0, 0)
    committed: Mapping[str, Mapping[int, int]] | None = None
    slabs: range = range(0)

    @property
    def is_something(self) -> bool:
        """Whether there is anything to read."""
        if self.kind == TICK:
            return len(self.slabs) > 0
        return self.kind == HEADER or self.offsets[0] < self.offsets[1]


def stretches(epochs: Epochs, start: Bound, end: Bound) -> list[Stretch]:
    """Return the stretches of the batch between two bounds.

    Args:
        epochs: What follows the reports; it has seen the one of the batch before.
        start: The bound before it.
        end: The bound behind it.
    """
    job = epochs.job
    own = epochs.view.of(job.task(0))
    batch = Batch(
        start.epoch,
        end.epoch,
        start.watermark,
        end.watermark,
        own.settled_ms,
        end.settled,
    )
    found = [Stretch(batch, HEADER), Stretch(batch, TICK, slabs=epochs.ticks(start, end))]
    for partition in range(job.partition_count):
        offsets = end.starts.get(partition, 0), end.ends[partition]
        writers = epochs.view.writers(job.input, partition)
        found.append(Stretch(batch, TUPLES, partition, offsets, epochs.view.committed(writers)))
        if batch.is_whole:
            task, topic = job.task(partition), job.plan.topic(job.name)
            last, _ = epochs.view.of(task).ends.get(TopicPartition(topic, partition), (0, 0))
            committed = epochs.view.committed([task])
            found.append(Stretch(batch, RESULTS, partition, (0, last), committed))
    return [stretch for stretch in found if stretch.is_something]


def read(job: Job, stretch: Stretch, cluster: Cluster) -> Iterator[Row | None]:
    """Yield the rows of a stretch, and None while it waits."""
    if stretch.kind == HEADER:
        yield Row(0, 0, HEADER)
        return
    if stretch.kind == TICK:
        for slab in stretch.slabs:
            for bucket in range(job.buckets):
                yield Row(bucket, slab, TICK)
        return
    arc = job.input if stretch.kind == TUPLES else job.name
    codec = job.codec(arc)
    parts = [codec.empty]
    for part in reading.revisions(cluster, codec, stretch.partition, stretch.offsets):
        parts.append(part)
        yield None
    found = pl.concat(parts)
    real = believed(found, stretch.committed or {})
    if stretch.kind == RESULTS:
        emitted = reading.content([real], job.plan.arcs[arc])
        for bucket, slab, block in Shares(job).of_results(emitted):
            yield Row(bucket, slab, RESULTS, stretch.partition, block)
        return
    batch, (_, end) = stretch.batch, stretch.offsets
    later = cast(int | None, found.filter(pl.col("epoch") > batch.epoch)["offset"].min())
    resume = f"{stretch.partition}:{end if later is None else later}"
    yield Row(0, 0, HEADER, stretch.partition, resume.encode())
    taken = real.filter(pl.col("epoch").is_between(batch.after + 1, batch.epoch))
    leaving, entering, refused = _sides(job, taken, is_whole=batch.is_whole)
    for bucket, slab, block in Shares(job).of_tuples(leaving, entering):
        yield Row(bucket, slab, TUPLES, stretch.partition, block)
    if refused and batch.is_whole:  # dead letters up to the last report were sent with it
        since = taken.filter(pl.col("epoch") > job.done[stretch.partition])
        *_, refused = _sides(job, since, is_whole=False)
    for box, some in refused.items():
        for block in letters.packed(job, batch, box, some, partition=stretch.partition):
            yield Row(0, 0, LETTERS, stretch.partition, block)


def _sides(
    job: Job, found: pl.DataFrame, *, is_whole: bool
) -> tuple[pl.DataFrame, pl.DataFrame, Mapping[str, Sequence[Refused]]]:
    """Return the tuples that leave and enter the aggregate's windows, and those that boxes refuse.

    Args:
        job: The job.
        found: Revisions of its input.
        is_whole: Whether these are all that there are, and enter as what they leave.
    """
    arc, names = job.plan.arcs[job.input], list(job.box.input.fields)
    if is_whole:
        content = reading.content([found], arc)
        whole = pl.repeat(True, content.height, dtype=pl.Boolean, eager=True)
        net = frames.between(content, ~whole, content, whole)
    else:
        net = frames.coalesced(found, arc.identity, list(arc.fields))
    refused: dict[str, Sequence[Refused]] = {}
    for box in job.chain:
        outcome = box.revise(net)
        refused[box.arc.name], net = outcome.refused, outcome.revisions
    # checked here, not in each of the slabs of a tuple
    leaving, _ = job.box.taken(frames.leaving(net, names))
    entering, refused[job.name] = job.box.taken(frames.entering(net, names))
    return leaving, entering, {box: some for box, some in refused.items() if some}
