"""Takes what a step emits to the steps that read it, and to the tasks that write it to topics.

Everything travels as blocks: many tuples in one Spark row, so that no tuple is a row of its own.
A block to a grouped step holds tuples that enter or leave its windows, with the columns that it
reads, of the groups of one writer. A block to any other step holds revisions of an arc in one of
its partitions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import NamedTuple

import polars as pl

from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.boxes.base import Refused
from errata.processors.tasks.dead_letters import dead_letters_of_tuples, fail_on_refused
from errata.processors.tasks.on_error import STOP
from errata.processors.tasks.scope_run import EpochResult, Memory
from errata.processors.wire.dead_letter import DeadLetter
from errata.processors.wire.replay import pack, size_of, unpack
from errata.processors.wire.report import Report
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.state_map import PLACE, PLACE_BITS
from errata.spark_jobs.steps import Step

SIGN = "@sign"
"""Column of a block to a grouped step: 1 for a tuple that enters, -1 for one that leaves."""

TUPLES, RESULTS, TICK, HEADER, DEAD_LETTERS, REVISIONS, COUNTS, REFUSED = range(8)
"""The content of a row.

For the steps: what changes of an arc that they read; the content of an arc that they write, as its
topic has it; only the time (windows may close). For the writers: how far an input is read (where
the next batch resumes, and the newest event time of a source's partition); dead letters; revisions
of an arc; running totals; records of a source that are refused.
"""

ORIGIN_BITS = 32
BLOCK_BYTES = 1_000_000
"""About how many bytes of tuples a block has at most."""


class Row(NamedTuple):
    """A row of blocks, without its batch.

    Args:
        key: The key of the part of a step that it goes to; of rows for the writers, any.
        kind: What it holds.
        origin: The rows of an arc are processed in this order.
        block: The tuples, or other content of its kind.
        arc: The arc of the tuples.
        partition: Of `REVISIONS`: the partition of the arc's topic.
    """

    key: int
    kind: int
    origin: int = 0
    block: bytes = b""
    arc: str = ""
    partition: int = 0


def origins(part: int) -> Iterator[int]:
    """Return the origins of the rows of one task, or of one part of a step."""
    return count(part << ORIGIN_BITS)


@dataclass(frozen=True)
class Shares:
    """Divides tuples and results among the writers of a grouped step.

    Args:
        job: The job.
        step: The step.
    """

    job: Job
    step: Step

    @cached_property
    def _spread(self) -> Spread:
        box = self.step.aggregate
        return Spread(replace(box.input, partition_by=box.by), 1 << PLACE_BITS)

    def placed(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the place of their group."""
        return by_column.beside(groups, self._spread.places(groups).alias(PLACE))

    def of_tuples(
        self, leaving: pl.DataFrame, entering: pl.DataFrame
    ) -> Iterator[tuple[int, bytes]]:
        """Yield writer and block of the tuples that leave and enter the input."""
        columns = self.step.aggregate.columns_read
        parts = [
            frame.select(columns).with_columns(pl.lit(sign, pl.Int8).alias(SIGN))
            for frame, sign in ((leaving, -1), (entering, 1))
        ]
        yield from self._packed(pl.concat(parts))

    def of_results(self, results: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        """Yield writer and block of emitted results."""
        yield from self._packed(results)

    def _packed(self, rows: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        placed = self.placed(rows)
        for (writer,), part in parted(placed, placed[PLACE] % self.step.slots):
            yield from ((writer, block) for block in blocks_of(part))


def blocks_of(rows: pl.DataFrame) -> Iterator[bytes]:
    """Yield rows as blocks; none for no rows."""
    if rows.height:
        fitting = BLOCK_BYTES * rows.height // max(1, size_of(rows))
        for block in rows.iter_slices(max(1, fitting)):
            yield pack(block, is_small=True)


Refusals = dict[str, list[Refused]]
"""By box, the tuples that it refused."""


def rows_to_readers(
    job: Job,
    arc: str,
    partition: int,
    revisions: pl.DataFrame,
    *,
    number: Iterator[int],
    refused: Refusals,
) -> Iterator[Row]:
    """Yield the rows that take revisions of an arc to the steps that read it.

    Args:
        job: The job.
        arc: The arc.
        partition: The partition of the tuples; of an exchange, which they come from.
        revisions: At most one for each identity.
        number: The origins of the rows.
        refused: Gets the tuples that aggregates refuse.
    """
    if revisions.is_empty():
        return
    for step in job.readers[arc]:
        if step.is_grouped:
            box, names = step.aggregate, list(step.aggregate.input.fields)
            leaving, _ = box.accepted(frames.leaving(revisions, names))
            entering, refusals = box.accepted(frames.entering(revisions, names))
            if refusals:
                refused[box.arc.name].extend(refusals)
            for writer, block in Shares(job, step).of_tuples(leaving, entering):
                yield Row(job.key(step, writer), TUPLES, next(number), block, arc)
        else:
            for slot, part in in_partitions(job, arc, partition, revisions):
                for block in blocks_of(part):
                    yield Row(job.key(step, slot), TUPLES, next(number), block, arc)


def in_partitions(
    job: Job, arc: str, partition: int | None, revisions: pl.DataFrame
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield revisions of an arc by partition.

    Args:
        job: The job.
        arc: The arc.
        partition: The partition in which they were computed; None: in no single one.
        revisions: The revisions.
    """
    known = job.plan.topology.arcs[arc]
    if partition is not None and not known.exchange:
        yield partition, revisions
        return
    spread = Spread(known, job.plan.placement.partitions[arc])
    for emission in spread.emissions(revisions, 0):
        for (place,), part in parted(emission.revisions, emission.partitions):
            yield place, part


@dataclass(frozen=True)
class StepResult:
    """What a part of a step has done in a batch.

    Args:
        revisions: By arc: its revisions, for the steps that read it.
        written: By arc with a topic: the revisions that are written there.
        counts: Running totals to add.
        dead_letters: Blocks of dead letters.
        refused_records: Blocks of refusals of a source's records.
    """

    revisions: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    written: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Sequence[bytes] = ()
    refused_records: Sequence[bytes] = ()


def result_rows(
    job: Job, batch: Batch, step: Step, slot: int, results: Iterable[StepResult]
) -> Iterator[Row]:
    """Yield the rows of what a part of a step has done: for later steps, and for the writers."""
    number, key = origins(slot), job.key(step, slot)
    partition = None if step.is_grouped else slot
    for result in results:
        for arc, revisions in result.written.items():
            for place, part in in_partitions(job, arc, partition, revisions):
                for block in blocks_of(part):
                    yield Row(key, REVISIONS, next(number), block, arc, place)
        for arc, revisions in result.revisions.items():
            whole = [(slot, revisions)]  # its readers have it divided, where it is an exchange
            parts = in_partitions(job, arc, None, revisions) if step.is_grouped else whole
            for place, part in parts if job.readers[arc] else ():
                refused: Refusals = defaultdict(list)
                yield from rows_to_readers(job, arc, place, part, number=number, refused=refused)
                for block in packed_refusals(job, batch, refused, partition=place):
                    yield Row(key, DEAD_LETTERS, next(number), block)
        for block in result.dead_letters:
            yield Row(key, DEAD_LETTERS, next(number), block)
        for block in result.refused_records:
            yield Row(key, REFUSED, next(number), block)
        if result.counts:
            yield Row(key, COUNTS, next(number), json.dumps(dict(result.counts)).encode())


_BOX = "@box"


def packed_refusals(
    job: Job, batch: Batch, refused: Mapping[str, Sequence[Refused]], *, partition: int
) -> Iterator[bytes]:
    """Yield blocks of the dead letters of refused tuples; none if the batch is already reported.

    Args:
        job: The job.
        batch: The batch.
        refused: By box of the job, the tuples that it refuses.
        partition: The partition of the tuples.

    Raises:
        BoxError: If a tuple is refused, and `on_error` is ``stop``.
    """
    for box, refusals in refused.items():
        yield from pack_dead_letters(job, batch, box, refusals, partition=partition)


def pack_dead_letters(
    job: Job, batch: Batch, box: str, refused: Sequence[Refused], *, partition: int
) -> list[bytes]:
    """Return a block with a box's dead letters; see `packed_refusals`."""
    partition %= job.task_count  # within a job an arc may have more
    if not refused or batch.epoch <= job.done[partition]:
        return []
    memory = Memory(batch.epoch, batch.wm, {}, {})
    result = EpochResult(memory, {}, refused={box: list(refused)})
    if job.on_error == STOP:
        fail_on_refused(job.plan, result)
    report = Report(job.task(partition), attempt=job.attempts[partition])
    dead_letters = dead_letters_of_tuples(job, [result], partition=partition, report=report)
    return [pack(pl.DataFrame(dead_letters).with_columns(pl.lit(box).alias(_BOX)))]


def unpack_dead_letters(block: bytes) -> list[tuple[str, DeadLetter]]:
    """Return the dead letters in a block, each with the box that refused its tuple."""
    rows = unpack(block).iter_rows(named=True)
    return [(row.pop(_BOX), DeadLetter(**row)) for row in rows]
