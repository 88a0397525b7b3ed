"""The job of a source: its records are decoded where they are read, and reconciled by identity.

The tasks that read decode the records of a partition of the user's topic. Spark's shuffle divides
the identities among the writers. The step of the job keeps the source's tuples, as the index of an
ingest task does, and makes one net revision of all that a batch brings for an identity
(`ingest.intake`). Records of one identity may lie in several partitions.

A batch is an epoch that the driver has chosen, with offsets that Spark's log pins. What a batch
writes follows from its records, its bound and the states alone. So a batch that is run again writes
the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic

import numpy as np
import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.arcs.partitioner import parted
from errata.processors.boxes.base import Need
from errata.processors.compile.sources_and_sinks import originals
from errata.processors.envelopes.batch import ROW, Decoded, Refusal
from errata.processors.ingest.intake import (
    KEY,
    NEWEST,
    Intake,
    key_encoder,
    not_expired,
    owners,
    reconcile,
    refuse_ahead,
)
from errata.processors.plan.topology import Source
from errata.processors.wire.dead_letter import DeadLetter
from errata.processors.wire.replay import unpack
from errata.processors.wire.report import INTERVAL_MS, NEVER
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.fields import physical
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.executor import ReadingRegistry
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.reading import records_in
from errata.spark_jobs.routing import (
    COUNTS,
    HEADER,
    REFUSED,
    RESULTS,
    TUPLES,
    Row,
    StepResult,
    blocks_of,
    origins,
)
from errata.spark_jobs.state_map import PLACE, PLACE_BITS, Blobs, StateMap
from errata.spark_jobs.steps import Step
from errata.topics.cluster import Cluster, Records, TopicPartition
from errata.topics.registry import RegistryAwayError

AWAY_S = 60.0
"""How long a registry may not answer."""
PART_ROWS = 64_000
"""About how many tuples are written to the states at once, where these are made anew."""

_PARTITION, _OFFSET, _SLAB = "@partition", "@offset", 0


# ---------------------------------------------------------------- where records are read


def read_source(
    job: Job, batch: Batch, place: Place, offsets: tuple[int, int], newest: int, cluster: Cluster
) -> Iterator[Row | None]:
    """Yield the rows of a stretch of a source's topic, and None while it waits.

    Args:
        job: The job.
        batch: The batch.
        place: The partition of the topic.
        offsets: Of the stretch, half-open.
        newest: The newest event time that the partition had before it, less lateness.
        cluster: The cluster.
    """
    source, step = _source(job), job.stateful[0]
    topic = job.plan.deployment.topic(source.arc.name)
    registry = ReadingRegistry(job.ids, job.schemas(cluster))
    intake = Intake(source, ArcCodec(source.arc, topic, registry))
    at, number = job.topic_partition(place), origins(place.partition)
    read = passed = 0
    told = newest
    for records in records_in(cluster, at, offsets):
        if records is None:
            yield None
            continue
        decoded = yield from _decoded(intake, records)
        decoded = refuse_ahead(decoded, source, [records], now_ms=batch.epoch * INTERVAL_MS)
        frame, read, passed = decoded.frame, read + len(records), passed + decoded.passed
        latest: int | None = frame[frames.AFTER + source.arc.event_time].max()  # type: ignore[assignment]
        told = max(told, NEVER if latest is None else latest - source.lateness_ms)
        origin = by_column.beside(
            frame.drop(ROW),
            by_column.constant(place.partition, frame.height, pl.Int32).alias(_PARTITION),
            pl.Series(_OFFSET, np.array(records.offsets, np.int64)[frame[ROW].to_numpy()]),
            by_column.constant(newest, frame.height, pl.Int64).alias(NEWEST),
        )
        for slot, block in _divided(step, origin):
            yield Row(job.key(step, slot), TUPLES, next(number), block, source.arc.name)
        for block in blocks_of(_refusals(records, decoded.refused)):
            yield Row(job.keys[0], REFUSED, next(number), block)
    header = {str(place): (offsets[1], told)}
    yield Row(job.keys[0], HEADER, next(number), json.dumps(header).encode())
    counts = {"read": read, "passed": passed}
    yield Row(job.keys[0], COUNTS, next(number), json.dumps(counts).encode())


_REFUSALS = {
    _PARTITION: pl.Int32,
    _OFFSET: pl.Int64,
    "reason": pl.String,
    "detail": pl.String,
}


def _refusals(records: Records, refused: Sequence[Refusal]) -> pl.DataFrame:
    """Return which records are refused, and why."""
    columns = {
        _PARTITION: [records.source.partition] * len(refused),
        _OFFSET: [records.offsets[each.row] for each in refused],
        "reason": [each.reason for each in refused],
        "detail": [each.detail for each in refused],
    }
    return pl.DataFrame(columns, schema=_REFUSALS)


def _source(job: Job) -> Source:
    assert job.source is not None
    return job.source


def _decoded(intake: Intake, records: Records) -> Generator[None, None, Decoded]:
    """Decode records; yields None while the registry does not answer."""
    deadline = monotonic() + AWAY_S
    while True:
        try:
            return intake.decode(list(records.values), list(records.keys))
        except RegistryAwayError:
            if monotonic() > deadline:
                raise
            time.sleep(1.0)
            yield None


def _divided(step: Step, rows: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
    """Yield slot and block of rows with `KEY`, by the hash of their identity."""
    placed = by_column.beside(rows, _places(rows).alias(PLACE))
    for (slot,), part in parted(placed, placed[PLACE] % step.slots):
        yield from ((slot, block) for block in blocks_of(part))


def _places(rows: pl.DataFrame) -> pl.Series:
    return owners(rows, 1 << PLACE_BITS)


def held_rows(job: Job, tuples: pl.DataFrame, number: Iterator[int]) -> Iterator[Row]:
    """Yield the rows of what the arc of a source holds, for the states that are made anew."""
    step, arc = job.stateful[0], _source(job).arc
    keys = key_encoder(arc).series(by_column.pick(tuples, arc.identity))
    for slot, block in _divided(step, by_column.beside(tuples, keys.alias(KEY))):
        yield Row(job.key(step, slot), RESULTS, next(number), block, arc.name)


# ---------------------------------------------------------------- where tuples are kept


@dataclass(frozen=True)
class SourceShare:
    """The tuples of some identities of a source.

    Args:
        job: The job.
        blobs: Where they are kept.
    """

    job: Job
    blobs: Blobs

    @cached_property
    def source(self) -> Source:
        """The source."""
        return _source(self.job)

    @cached_property
    def states(self) -> StateMap:
        """Its tuples by identity."""
        fields = physical(self.source.arc.fields)
        nothing = pl.DataFrame(schema={KEY: pl.Binary(), **fields, PLACE: pl.Int32()})
        return StateMap(self.blobs, nothing, [KEY])

    def run(
        self, batch: Batch, rows: Iterable[Row]
    ) -> Generator[Need, Sequence[pl.DataFrame], Iterable[StepResult]]:
        """Process a batch; yields nothing.

        Args:
            batch: The batch; it follows the states.
            rows: Revisions of the records, and what the arc holds, in any order.
        """
        yield from ()
        for slab in self.states.slabs if batch.is_whole else ():
            self.states.drop(slab)
        brought, held = list[Row](), [self.states.nothing]
        for row in rows:
            if row.kind == TUPLES:
                brought.append(row)
            elif row.kind == RESULTS:
                held.append(by_column.pick(unpack(row.block), self.states.nothing.columns))
                if sum(tuples.height for tuples in held) >= PART_ROWS:
                    self._write(batch, pl.concat(held), self.states.nothing)
                    held.clear()
        if held:
            self._write(batch, pl.concat(held), self.states.nothing)
        if not brought:
            return []
        blocks = [row.block for row in sorted(brought, key=lambda row: row.origin)]
        return [self._reconciled(batch, pl.concat(map(unpack, blocks)))]

    def _write(self, batch: Batch, rows: pl.DataFrame, gone: pl.DataFrame) -> None:
        """Write tuples, and remove others; forget those that no revision may concern any more."""
        event_times = self.source.arc.event_times

        def kept(tuples: pl.DataFrame) -> pl.Series:
            return event_times(tuples) >= batch.settled

        self.states.write(_SLAB, rows, by_column.pick(gone, [KEY, PLACE]), kept=kept)

    def _reconciled(self, batch: Batch, brought: pl.DataFrame) -> StepResult:
        """Reconcile the revisions of a batch with the tuples that are held."""
        arc = self.source.arc
        row = pl.int_range(brought.height, dtype=pl.Int64, eager=True).alias(ROW)
        revisions = by_column.beside(brought, row)
        held = self.states.read(_SLAB, revisions[PLACE].unique()).drop(PLACE)
        held = by_column.kept(held, held[KEY].is_in(revisions[KEY].unique().implode()))
        reach_ms = self.job.plan.reach_ms.get(arc.name)
        young = not_expired(arc, held, revisions, reach_ms=reach_ms)
        reconciled = reconcile(arc, revisions, young)
        net, keys = reconciled.revisions, reconciled.keys.alias(KEY)
        placed = by_column.beside(net, keys, owners(keys.to_frame(), 1 << PLACE_BITS).alias(PLACE))
        is_gone = net["op"] == frames.DELETE
        stays = by_column.kept(placed, ~is_gone)
        entering = by_column.beside(
            frames.entering(stays, list(arc.fields)), stays[KEY], stays[PLACE]
        )
        rows = by_column.pick(entering, self.states.nothing.columns)
        self._write(batch, rows, by_column.kept(placed, is_gone))
        refusals = reconciled.refused.unique(ROW, keep="first", maintain_order=True)
        origin = by_column.rows(by_column.pick(brought, [_PARTITION, _OFFSET]), refusals[ROW])
        refused = by_column.beside(origin, refusals["reason"], refusals["detail"])
        return StepResult(
            written={arc.name: net},
            counts=reconciled.counts,
            refused_records=list(blocks_of(refused)),
        )


# ---------------------------------------------------------------- where dead letters are written


def dead_letters(
    job: Job, batch: Batch, blocks: Iterable[bytes], cluster: Cluster
) -> list[DeadLetter]:
    """Return the dead letters of refused records, which are read once more, but reported ones.

    Args:
        job: The job.
        batch: The batch.
        blocks: The refusals, as `read_source` and `SourceShare` pack them.
        cluster: The cluster.
    """
    refused = pl.concat([pl.DataFrame(schema=_REFUSALS), *map(unpack, blocks)])
    refused = refused.unique([_PARTITION, _OFFSET], keep="first", maintain_order=True)
    topic, letters = _source(job).topic, list[DeadLetter]()
    for (partition,), part in parted(refused, refused[_PARTITION]):
        if batch.epoch <= job.done[partition]:
            continue
        reasons = {row[_OFFSET]: row for row in part.iter_rows(named=True)}
        place = TopicPartition(topic, partition)
        for record in _records(cluster, place, sorted(reasons)).iter_rows(named=True):
            reason = reasons[record["offset"]]
            letters.append(
                DeadLetter(
                    task=job.task(partition),
                    attempt=job.attempts[partition],
                    epoch=batch.epoch,
                    reason=reason["reason"],
                    detail=reason["detail"],
                    topic=topic,
                    **record,
                )
            )
    return letters


def _records(cluster: Cluster, place: TopicPartition, offsets: Sequence[int]) -> pl.DataFrame:
    """Return the records of some offsets, in order; at least one."""
    found = [originals([])]
    for records in records_in(cluster, place, (offsets[0], offsets[-1] + 1)):
        if records is not None and len(records):
            wanted = np.isin(np.array(records.offsets, np.int64), offsets)
            found.append(originals([records]).filter(pl.Series(wanted)))
    return pl.concat(found)
