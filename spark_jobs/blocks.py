"""Blocks: many tuples in one Spark row, so that no tuple is processed as a row of its own.

A block holds the entering and leaving tuples of one share of the groups: one hash bucket, in the
windows of one slab. A batch reads stretches of topics, which become rows of blocks; the shuffle
moves them. None of this depends on Spark or its data sources.

Dead letters are blocks too, sent from executors to the driver. The driver sends them in the
transaction of their batch's report: once, however often the batch is rerun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

import polars as pl
import pyarrow as pa

from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.boxes.base import Refused
from errata.processors.reports.progress_view import covered
from errata.processors.tasks.dead_letters import dead_letters_of_tuples, fail_on_refused
from errata.processors.tasks.scope_run import EpochResult, Memory
from errata.processors.tasks.shared import STOP
from errata.processors.wire.dead_letter import DeadLetter
from errata.processors.wire.replay import pack, unpack
from errata.processors.wire.report import Report
from errata.schemas import revisions as frames
from errata.spark_jobs import reading
from errata.spark_jobs.epochs import Batch, Bound, Epochs
from errata.spark_jobs.job import Job
from errata.topics.cluster import Cluster, TopicPartition

SIGN = "@sign"
"""Column of a block: 1 for a tuple that enters, -1 for one that leaves."""

TUPLES, RESULTS, TICK, HEADER, DEAD_LETTERS = range(5)
"""The content of a row.

Input tuples; results of the job's own arc; only the time (windows may close); the batch's metadata
(for the report); dead letters (sent with the report).
"""

SCHEMA = "bucket int, slab long, kind int, origin long, batch string, block binary"
_ARROW = pa.schema(
    [
        ("bucket", pa.int32()),
        ("slab", pa.int64()),
        ("kind", pa.int32()),
        ("origin", pa.int64()),
        ("batch", pa.string()),
        ("block", pa.binary()),
    ]
)


def record(
    bucket: int, slab: int, kind: int, origin: int, block: bytes, *, batch: str
) -> pa.RecordBatch:
    """Return one Spark row."""
    values = [[bucket], [slab], [kind], [origin], [batch], [block]]
    arrays = [pa.array(v, f.type) for v, f in zip(values, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


@dataclass(frozen=True)
class Shares:
    """Divides tuples and results among the shares of a job."""

    job: Job

    @cached_property
    def _spread(self) -> Spread:
        by_group = replace(self.job.box.input, partition_by=self.job.box.by)
        return Spread(by_group, self.job.buckets)

    def of_tuples(
        self, leaving: pl.DataFrame, entering: pl.DataFrame
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield bucket, slab and block of the tuples that leave and enter the input."""
        parts = [
            frame.select(self.job.box.columns_read).with_columns(pl.lit(sign, pl.Int8).alias(SIGN))
            for frame, sign in ((leaving, -1), (entering, 1))
        ]
        tuples = pl.concat(parts)
        rows, slabs = self.job.slabs.touched(self.job.box.input.event_times(tuples))
        buckets = self._spread.places(tuples)
        yield from _packed(tuples[rows], buckets.gather(rows), slabs)

    def of_results(self, results: pl.DataFrame) -> Iterator[tuple[int, int, bytes]]:
        """Yield bucket, slab and block of emitted results."""
        slabs = self.job.slabs
        starts = results[self.job.box.start]
        numbers = starts.clone() * 0 if slabs.is_one else starts // slabs.length_ms
        yield from _packed(results, self._spread.places(results), numbers)


def _packed(
    frame: pl.DataFrame, buckets: pl.Series, slabs: pl.Series
) -> Iterator[tuple[int, int, bytes]]:
    for (bucket, slab), part in parted(frame, buckets, slabs):
        yield bucket, slab, pack(part)


class Row(NamedTuple):
    """A row of blocks, without its batch.

    Args:
        bucket: The hash bucket of the groups.
        slab: The slab of their windows.
        kind: `TUPLES`, `RESULTS`, `TICK`, `HEADER` or `DEAD_LETTERS`.
        origin: The partition it is from; rows of a share are processed in this order.
        block: The tuples, or other content of its kind.
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
        committed: By writing task and attempt: the last epoch that counts.
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
    report = epochs.view.of(job.task(0))
    batch = Batch(
        start.epoch,
        end.epoch,
        start.watermark,
        end.watermark,
        report.settled_ms,
        end.settled,
    )
    result = [Stretch(batch, HEADER), Stretch(batch, TICK, slabs=epochs.ticks(start, end))]
    for partition in range(job.partition_count):
        offsets = end.starts.get(partition, 0), end.ends[partition]
        writers = epochs.view.writers(job.input, partition)
        result.append(Stretch(batch, TUPLES, partition, offsets, epochs.view.committed(writers)))
        if batch.is_whole:
            task, topic = job.task(partition), job.plan.deployment.topic(job.name)
            last, _ = epochs.view.of(task).ends.get(TopicPartition(topic, partition), (0, 0))
            committed = epochs.view.committed([task])
            result.append(Stretch(batch, RESULTS, partition, (0, last), committed))
    return [stretch for stretch in result if stretch.is_something]


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
    revisions = pl.concat(parts)
    committed = covered(revisions, stretch.committed or {})
    if stretch.kind == RESULTS:
        emitted = reading.content([committed], job.plan.topology.arcs[arc])
        for bucket, slab, block in Shares(job).of_results(emitted):
            yield Row(bucket, slab, RESULTS, stretch.partition, block)
        return
    batch, (_, end) = stretch.batch, stretch.offsets
    later = cast(int | None, revisions.filter(pl.col("epoch") > batch.epoch)["offset"].min())
    resume = f"{stretch.partition}:{end if later is None else later}"
    yield Row(0, 0, HEADER, stretch.partition, resume.encode())
    of_batch = committed.filter(pl.col("epoch").is_between(batch.after + 1, batch.epoch))
    leaving, entering, refused = _sides(job, of_batch, is_whole=batch.is_whole)
    for bucket, slab, block in Shares(job).of_tuples(leaving, entering):
        yield Row(bucket, slab, TUPLES, stretch.partition, block)
    if refused and batch.is_whole:  # dead letters up to the last report were sent with it
        unreported = of_batch.filter(pl.col("epoch") > job.done[stretch.partition])
        *_, refused = _sides(job, unreported, is_whole=False)
    for box, refusals in refused.items():
        for block in pack_dead_letters(job, batch, box, refusals, partition=stretch.partition):
            yield Row(0, 0, DEAD_LETTERS, stretch.partition, block)


def _sides(
    job: Job, revisions: pl.DataFrame, *, is_whole: bool
) -> tuple[pl.DataFrame, pl.DataFrame, Mapping[str, Sequence[Refused]]]:
    """Return the tuples that leave and enter the aggregate's windows, and those that boxes refuse.

    Args:
        job: The job.
        revisions: Revisions of its input.
        is_whole: Whether these are all revisions, whose remaining tuples enter.
    """
    arc, names = job.plan.topology.arcs[job.input], list(job.box.input.fields)
    if is_whole:
        content = reading.content([revisions], arc)
        all_rows = pl.repeat(True, content.height, dtype=pl.Boolean, eager=True)
        net = frames.between(content, ~all_rows, content, all_rows)
    else:
        net = frames.coalesced(revisions, arc.identity, list(arc.fields))
    refused: dict[str, Sequence[Refused]] = {}
    for box in job.chain:
        outcome = box.revise(net)
        refused[box.arc.name], net = outcome.refused, outcome.revisions
    # checked here, not in each of the slabs of a tuple
    leaving, _ = job.box.accepted(frames.leaving(net, names))
    entering, refused[job.name] = job.box.accepted(frames.entering(net, names))
    return leaving, entering, {box: refusals for box, refusals in refused.items() if refusals}


_BOX = "@box"


def pack_dead_letters(
    job: Job, batch: Batch, box: str, refused: Sequence[Refused], *, partition: int
) -> list[bytes]:
    """Return a block with a box's dead letters; none if the batch is already reported.

    Args:
        job: The job.
        batch: The batch.
        box: The box, one of the job's.
        refused: The tuples that it refuses.
        partition: The partition of the tuples.

    Raises:
        BoxError: If a tuple is refused, and `on_error` is ``stop``.
    """
    if not refused or batch.epoch <= job.done[partition]:
        return []
    memory = Memory(batch.epoch, batch.wm, {}, {})
    result = EpochResult(memory, {}, refused={box: list(refused)})
    if job.on_error == STOP:
        fail_on_refused(job.plan, result)
    report = Report(job.task(partition), attempt=job.attempts[partition])
    dead_letters = dead_letters_of_tuples(job, [result], partition=partition, report=report)
    return [pack(pl.DataFrame(dead_letters).with_columns(pl.lit(box).alias(_BOX)))]


def unpack_dead_letters(blocks: Iterable[bytes]) -> list[tuple[str, DeadLetter]]:
    """Return the dead letters in blocks, each with the box that refused its tuple."""
    return [
        (row.pop(_BOX), DeadLetter(**row))
        for block in blocks
        for row in unpack(block).iter_rows(named=True)
    ]
