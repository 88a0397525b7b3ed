"""Blocks: many tuples in one Spark row, so that no tuple is processed as a row of its own.

A block holds entering and leaving tuples for one writer. A batch reads stretches of topics, which
become rows of blocks; the shuffle moves them. None of this depends on Spark or its data sources.

Dead letters are blocks too: a batch's writers write them with its revisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
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
from errata.processors.wire.replay import pack, size_of, unpack
from errata.processors.wire.report import Report
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.spark_jobs import reading
from errata.spark_jobs.epochs import Batch, Bound, Epochs
from errata.spark_jobs.job import Job
from errata.spark_jobs.spool import spooled
from errata.spark_jobs.state_map import PLACE, PLACE_BITS
from errata.topics.cluster import Cluster, TopicPartition

SIGN = "@sign"
"""Column of a block: 1 for a tuple that enters, -1 for one that leaves."""

TUPLES, RESULTS, TICK, HEADER, DEAD_LETTERS = range(5)
"""The content of a row.

Input tuples; results of the job's own arc; only the time (windows may close); the batch's metadata
(for the report); dead letters (sent with the report).
"""

_ORIGIN_BITS = 32
BLOCK_BYTES = 1_000_000
"""About how many bytes of tuples a block has at most."""
PART_ROWS = 64_000
"""About how many revisions one task has in memory at once, where it takes the whole content."""
_JOINED_ROWS = 20_000

SCHEMA = "key int, kind int, origin long, batch string, block binary"
_ARROW = pa.schema(
    [
        ("key", pa.int32()),
        ("kind", pa.int32()),
        ("origin", pa.int64()),
        ("batch", pa.string()),
        ("block", pa.binary()),
    ]
)


def record(key: int, kind: int, origin: int, block: bytes, *, batch: str) -> pa.RecordBatch:
    """Return one Spark row."""
    values = [[key], [kind], [origin], [batch], [block]]
    arrays = [pa.array(v, f.type) for v, f in zip(values, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


@dataclass(frozen=True)
class Shares:
    """Divides tuples and results among the writers of a job."""

    job: Job

    @cached_property
    def _spread(self) -> Spread:
        by_group = replace(self.job.box.input, partition_by=self.job.box.by)
        return Spread(by_group, 1 << PLACE_BITS)

    def placed(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the place of their group."""
        return by_column.beside(groups, self._spread.places(groups).alias(PLACE))

    def of_tuples(
        self, leaving: pl.DataFrame, entering: pl.DataFrame
    ) -> Iterator[tuple[int, bytes]]:
        """Yield writer and block of the tuples that leave and enter the input."""
        parts = [
            frame.select(self.job.box.columns_read).with_columns(pl.lit(sign, pl.Int8).alias(SIGN))
            for frame, sign in ((leaving, -1), (entering, 1))
        ]
        yield from self._packed(pl.concat(parts))

    def of_results(self, results: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        """Yield writer and block of emitted results."""
        yield from self._packed(results)

    def _packed(self, rows: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        placed = self.placed(rows)
        for (writer,), part in parted(placed, placed[PLACE] % len(self.job.keys)):
            fitting = BLOCK_BYTES * part.height // max(1, size_of(part))
            for block in part.iter_slices(max(1, fitting)):
                yield writer, pack(block, is_small=True)


class Row(NamedTuple):
    """A row of blocks, without its batch.

    Args:
        key: The key of the writer that it goes to.
        kind: `TUPLES`, `RESULTS`, `TICK`, `HEADER` or `DEAD_LETTERS`.
        origin: By the partition it is from; rows of a writer are processed in this order.
        block: The tuples, or other content of its kind.
    """

    key: int
    kind: int
    origin: int = 0
    block: bytes = b""


@dataclass(frozen=True)
class Stretch:
    """The input of one task of a batch.

    Args:
        batch: The batch.
        kind: `TUPLES` or `RESULTS`: a stretch of the input, or of the job's own arc; `TICK`: each
            writer is to look for windows that close; `HEADER`.
        partition: Of the arc.
        offsets: Of the stretch, half-open.
        committed: By writing task and attempt: the last epoch that counts.
    """

    batch: Batch
    kind: int
    partition: int = 0
    offsets: tuple[int, int] = (0, 0)
    committed: Mapping[str, Mapping[int, int]] | None = None


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
    read = list[Stretch]()
    for partition in range(job.partition_count):
        offsets = end.starts.get(partition, 0), end.ends[partition]
        writers = epochs.view.writers(job.input, partition)
        read.append(Stretch(batch, TUPLES, partition, offsets, epochs.view.committed(writers)))
        if batch.is_whole:
            task, topic = job.task(partition), job.plan.deployment.topic(job.name)
            last, _ = epochs.view.of(task).ends.get(TopicPartition(topic, partition), (0, 0))
            committed = epochs.view.committed([task])
            read.append(Stretch(batch, RESULTS, partition, (0, last), committed))
    result = [Stretch(batch, HEADER)]
    if batch.wm > batch.wm_before and not batch.is_whole:
        result.append(Stretch(batch, TICK))
    result += [stretch for stretch in read if stretch.offsets[0] < stretch.offsets[1]]
    if not batch.is_whole:
        return result
    batch = replace(batch, parts=_parts(job, result))
    return [replace(stretch, batch=batch) for stretch in result]


def _parts(job: Job, stretches: Sequence[Stretch]) -> int:
    """Return how many parts the stretches are processed in, so that each fits into memory."""
    heights = [stretch.offsets[1] - stretch.offsets[0] for stretch in stretches]
    most = max(*heights, sum(heights) // len(job.keys))
    return max(1, -(-most // PART_ROWS))


def read(job: Job, stretch: Stretch, cluster: Cluster) -> Iterator[Row | None]:
    """Yield the rows of a stretch, and None while it waits."""
    if stretch.kind == HEADER:
        yield Row(job.keys[0], HEADER)
        return
    if stretch.kind == TICK:
        yield from (Row(key, TICK) for key in job.keys)
        return
    yield from _read_arc(job, stretch, cluster)


def _read_arc(job: Job, stretch: Stretch, cluster: Cluster) -> Iterator[Row | None]:
    """Yield the rows of a stretch of an arc, and None while it waits."""
    batch, resume = stretch.batch, stretch.offsets[1]
    arc = job.plan.topology.arcs[job.input if stretch.kind == TUPLES else job.name]
    spread = Spread(replace(arc, partition_by=arc.identity), batch.parts)
    codec, identity = job.codec(arc.name), arc.identity
    joined = [codec.empty]
    with spooled(batch.parts, lambda r: spread.places(frames.identities(r, identity))) as spool:
        for polled in reading.revisions(cluster, codec, stretch.partition, stretch.offsets):
            later = polled.filter(pl.col("epoch") > batch.epoch)
            if later.height:
                resume = min(resume, cast(int, later["offset"].min()))
            joined.append(_of_batch(polled, stretch))
            if sum(frame.height for frame in joined) > _JOINED_ROWS:
                spool.add(pl.concat(joined))
                joined.clear()
            yield None
        spool.add(pl.concat([codec.empty, *joined]))
        origins = count(stretch.partition << _ORIGIN_BITS)
        if stretch.kind == TUPLES:
            text = f"{stretch.partition}:{resume}"
            yield Row(job.keys[0], HEADER, next(origins), text.encode())
        for part in range(batch.parts):
            revisions = pl.concat([codec.empty, *spool.take(part)])
            if stretch.kind == TUPLES:
                yield from _tuple_rows(job, stretch, revisions, origins)
            else:
                emitted = reading.content([revisions], arc)
                for writer, block in Shares(job).of_results(emitted):
                    yield Row(job.keys[writer], RESULTS, next(origins), block)


def _of_batch(revisions: pl.DataFrame, stretch: Stretch) -> pl.DataFrame:
    """Return the committed revisions of a stretch's batch; of emitted results, all committed."""
    committed = covered(revisions, stretch.committed or {})
    if stretch.kind == RESULTS:
        return committed
    batch = stretch.batch
    return committed.filter(pl.col("epoch").is_between(batch.after + 1, batch.epoch))


def _tuple_rows(
    job: Job, stretch: Stretch, revisions: pl.DataFrame, origins: Iterator[int]
) -> Iterator[Row]:
    """Yield the rows of revisions of the input: tuples and dead letters."""
    batch = stretch.batch
    leaving, entering, refused = _sides(job, revisions, is_whole=batch.is_whole)
    for writer, block in Shares(job).of_tuples(leaving, entering):
        yield Row(job.keys[writer], TUPLES, next(origins), block)
    if refused and batch.is_whole:  # dead letters up to the last report were sent with it
        unreported = revisions.filter(pl.col("epoch") > job.done[stretch.partition])
        *_, refused = _sides(job, unreported, is_whole=False)
    for box, refusals in refused.items():
        for block in pack_dead_letters(job, batch, box, refusals, partition=stretch.partition):
            yield Row(job.keys[0], DEAD_LETTERS, next(origins), block)


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
