"""The rows of a batch: what its tasks read from topics, as blocks for the steps.

None of this depends on Spark or its data sources.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import polars as pl
import pyarrow as pa

from errata.processors.arcs.partitioner import Spread
from errata.processors.boxes.base import Refused, Stateless
from errata.processors.reports.progress_view import covered
from errata.processors.wire.report import NEVER
from errata.schemas import revisions as frames
from errata.spark_jobs import ingest, reading
from errata.spark_jobs.epochs import Batch, Bound, Epochs
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.routing import (
    DEAD_LETTERS,
    HEADER,
    RESULTS,
    TICK,
    TUPLES,
    Refusals,
    Row,
    Shares,
    blocks_of,
    origins,
    packed_refusals,
    rows_to_readers,
)
from errata.spark_jobs.spool import spooled
from errata.spark_jobs.steps import Step
from errata.topics.cluster import Cluster, TopicPartition

PART_ROWS = 64_000
"""About how many revisions one task has in memory at once, where it takes the whole content."""
_JOINED_ROWS = 20_000

SCHEMA = "key int, kind int, origin long, batch string, block binary, arc string, partition int"
_ARROW = pa.schema(
    [
        ("key", pa.int32()),
        ("kind", pa.int32()),
        ("origin", pa.int64()),
        ("batch", pa.string()),
        ("block", pa.binary()),
        ("arc", pa.string()),
        ("partition", pa.int32()),
    ]
)


def record(row: Row, *, batch: str) -> pa.RecordBatch:
    """Return one Spark row."""
    content = row._asdict() | {"batch": batch}
    arrays = [pa.array([content[f.name]], f.type) for f in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


NOWHERE = Place("", 0)


@dataclass(frozen=True)
class Stretch:
    """The input of one task of a batch.

    Args:
        batch: The batch.
        kind: `TUPLES` or `RESULTS`: a stretch of an input, or of an arc of the job; `TICK`: each
            step is to look for windows that close; `HEADER`.
        place: The partition of the arc.
        offsets: Of the stretch, half-open.
        committed: By writing task and attempt: the last epoch that counts.
        newest: Of a source's topic: the newest event time before it, less lateness.
    """

    batch: Batch
    kind: int
    place: Place = NOWHERE
    offsets: tuple[int, int] = (0, 0)
    committed: Mapping[str, Mapping[int, int]] | None = None
    newest: int = NEVER


def stretches(epochs: Epochs, start: Bound, end: Bound) -> list[Stretch]:
    """Return the stretches of the batch between two bounds.

    Args:
        epochs: What follows the reports; it has seen the one of the batch before.
        start: The bound before it.
        end: The bound behind it.
    """
    job, view = epochs.job, epochs.view
    report = view.of(job.task(0))
    batch = Batch(
        start.epoch,
        end.epoch,
        start.watermark,
        end.watermark,
        report.settled_ms if end.settled_before is None else end.settled_before,
        end.settled,
        idle=end.idle,
        settles=end.settles,
        lowered=end.lowered,
    )
    read = list[Stretch]()
    for place in job.places:
        offsets = end.starts.get(place, 0), end.ends[place]
        committed = None if job.source else view.committed(view.writers(*place))
        newest = end.newest.get(place, NEVER)
        read.append(Stretch(batch, TUPLES, place, offsets, committed, newest))
    for arc in job.outputs if batch.is_whole else ():
        topic = job.plan.deployment.topic(arc)
        for partition in range(job.plan.placement.partitions[arc]):
            writers, at = view.writers(arc, partition), TopicPartition(topic, partition)
            last = max(view.of(task).ends.get(at, (0, 0))[0] for task in writers)
            place, committed = Place(arc, partition), view.committed(writers)
            read.append(Stretch(batch, RESULTS, place, (0, last), committed))
    result = [Stretch(batch, HEADER)]
    if (batch.wm > batch.wm_before or batch.settles) and not batch.is_whole:
        result.append(Stretch(batch, TICK))
    result += [stretch for stretch in read if stretch.offsets[0] < stretch.offsets[1]]
    if not batch.is_whole:
        return result
    batch = replace(batch, parts=_parts(job, result))
    return [replace(stretch, batch=batch) for stretch in result]


def _parts(job: Job, stretches: Sequence[Stretch]) -> int:
    """Return how many parts the stretches are processed in, so that each fits into memory."""
    heights = [stretch.offsets[1] - stretch.offsets[0] for stretch in stretches]
    most = max(*heights, sum(heights) // job.writers)
    return max(1, -(-most // PART_ROWS))


def read(job: Job, stretch: Stretch, cluster: Cluster) -> Iterator[Row | None]:
    """Yield the rows of a stretch, and None while it waits."""
    if stretch.kind == HEADER:
        yield Row(job.keys[0], HEADER, block=b"{}")
    elif stretch.kind == TICK:
        yield from (Row(key, TICK) for key in job.keys)
    elif stretch.kind == TUPLES and job.source is not None:
        at = stretch.place, stretch.offsets, stretch.newest
        yield from ingest.read_source(job, stretch.batch, *at, cluster)
    else:
        yield from _read_arc(job, stretch, cluster)


def _read_arc(job: Job, stretch: Stretch, cluster: Cluster) -> Iterator[Row | None]:
    """Yield the rows of a stretch of an arc, and None while it waits."""
    batch, resume = stretch.batch, stretch.offsets[1]
    name, partition = stretch.place
    arc = job.plan.topology.arcs[name]
    spread = Spread(replace(arc, partition_by=arc.identity), batch.parts)
    codec, identity = job.codec(name), arc.identity
    joined = [codec.empty]
    with spooled(batch.parts, lambda r: spread.places(frames.identities(r, identity))) as spool:
        for polled in reading.revisions(cluster, codec, partition, stretch.offsets):
            later = polled.filter(pl.col("epoch") > batch.epoch)
            if later.height:
                resume = min(resume, cast(int, later["offset"].min()))
            joined.append(_of_batch(polled, stretch))
            if sum(frame.height for frame in joined) > _JOINED_ROWS:
                spool.add(pl.concat(joined))
                joined.clear()
            yield None
        spool.add(pl.concat([codec.empty, *joined]))
        number = origins(partition)
        if stretch.kind == TUPLES:
            block = json.dumps({str(stretch.place): (resume, NEVER)}).encode()
            yield Row(job.keys[0], HEADER, next(number), block)
        for part in range(batch.parts):
            revisions = pl.concat([codec.empty, *spool.take(part)])
            if stretch.kind == TUPLES:
                yield from _tuple_rows(job, stretch, revisions, number)
            else:
                yield from _result_rows(job, stretch, revisions, number)


def _of_batch(revisions: pl.DataFrame, stretch: Stretch) -> pl.DataFrame:
    """Return the committed revisions of a stretch's batch; of emitted results, all committed."""
    committed = covered(revisions, stretch.committed or {})
    if stretch.kind == RESULTS:
        return committed
    batch = stretch.batch
    return committed.filter(pl.col("epoch").is_between(batch.after + 1, batch.epoch))


def _result_rows(
    job: Job, stretch: Stretch, revisions: pl.DataFrame, number: Iterator[int]
) -> Iterator[Row]:
    """Yield the rows of what the topic of an arc of the job holds: for the step that writes it."""
    name, partition = stretch.place
    emitted, step = reading.content([revisions], job.plan.topology.arcs[name]), job.writing[name]
    if job.source is not None:
        yield from ingest.held_rows(job, emitted, number)
    elif step.is_grouped:
        for writer, block in Shares(job, step).of_results(emitted):
            yield Row(job.key(step, writer), RESULTS, next(number), block, name)
    else:
        for block in blocks_of(emitted):
            yield Row(job.key(step, partition), RESULTS, next(number), block, name)


def _tuple_rows(
    job: Job, stretch: Stretch, revisions: pl.DataFrame, number: Iterator[int]
) -> Iterator[Row]:
    """Yield the rows of revisions of an input: for the steps that read it, and dead letters."""
    batch, (name, partition) = stretch.batch, stretch.place
    step = next(step for step in job.steps if step.inputs == (name,))
    changes, refused = _changes(job, step, revisions, is_whole=batch.is_whole)
    for arc, net in changes.items():
        yield from rows_to_readers(job, arc, partition, net, number=number, refused=refused)
    if batch.is_whole and refused:  # dead letters up to the last report were sent with it
        unreported = revisions.filter(pl.col("epoch") > job.done[partition])
        changes, refused = _changes(job, step, unreported, is_whole=False)
        for arc, net in changes.items():
            for _ in rows_to_readers(job, arc, partition, net, number=number, refused=refused):
                pass
    for block in packed_refusals(job, batch, refused, partition=partition):
        yield Row(job.keys[0], DEAD_LETTERS, next(number), block)


def _changes(
    job: Job, step: Step, revisions: pl.DataFrame, *, is_whole: bool
) -> tuple[dict[str, pl.DataFrame], Refusals]:
    """Return by arc what changes of an input, and behind the boxes that its readers run.

    Args:
        job: The job.
        step: The boxes directly behind the input.
        revisions: Revisions of the input.
        is_whole: Whether these are all revisions, whose remaining tuples enter.
    """
    (name,) = step.inputs
    arc = job.plan.topology.arcs[name]
    if is_whole:
        net = frames.inserts(reading.content([revisions], arc))
    else:
        net = frames.coalesced(revisions, arc.identity, list(arc.fields))
    changes, refused = {name: net}, defaultdict[str, list[Refused]](list)
    for box in step.boxes:
        assert isinstance(box, Stateless)  # see `steps`
        outcome = box.revise(*(changes[above] for above in box.inputs))
        changes[box.arc.name] = outcome.revisions
        if outcome.refused:
            refused[box.arc.name].extend(outcome.refused)
    return changes, refused
