"""The stages of a batch, as Spark runs them on executors: source, stateful operators, writer.

The source is a Python data source that reads the job's inputs in whole epochs, as blocks.

There is an operator for each level of the job's steps (`steps`), one after the other. A part of a
step has a key of its own, with its states in Spark's store (`state_map`). Blocks arrive in any
order; they are processed in the order of their origin, so that a rerun of a batch returns
bit-identical results. The executor sends replay requests over topics for tuples that the states
don't hold.

The writer writes a batch's revisions to the job's arcs, one transaction for each task. The
transactional id is that of the task's place in the batch. A new attempt of the driver fences all of
them before it looks for the last records written, so no late write of an older attempt follows. If
a batch is rerun within one attempt, it writes exact copies: readers use one of them.
"""

from __future__ import annotations

import json
import secrets
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row as SparkRow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from errata.processors.arcs.arc_topic import Meta
from errata.processors.boxes.base import Need
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.reports.progress_view import View
from errata.processors.tasks.attempt import produce_records
from errata.processors.tasks.dead_letters import dead_letter_records, tally_dead_letters
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.tasks.shared import Shared
from errata.processors.wire.replay import unpack
from errata.processors.wire.report import CountKey
from errata.processors.wire.task_id import TaskId
from errata.schemas.errors import ErrataError
from errata.spark_jobs import blocks, ingest
from errata.spark_jobs.blocks import Stretch
from errata.spark_jobs.epochs import Batch, Bound, Epochs
from errata.spark_jobs.ingest import SourceShare
from errata.spark_jobs.job import Job
from errata.spark_jobs.partition_step import PartitionStep
from errata.spark_jobs.place import Place
from errata.spark_jobs.routing import (
    COUNTS,
    DEAD_LETTERS,
    HEADER,
    REFUSED,
    RESULTS,
    REVISIONS,
    TICK,
    TUPLES,
    Row,
    StepResult,
    result_rows,
    unpack_dead_letters,
)
from errata.spark_jobs.share import Share
from errata.spark_jobs.source_epochs import epochs_of
from errata.spark_jobs.state_map import Cache, Cached, Key, Maps
from errata.spark_jobs.steps import Step
from errata.topics.cluster import Cluster, TopicPartition

REPORT_S = 60.0
"""How long the report of a batch may take to become visible."""
IDLE_S = 0.002


class LateReportError(ErrataError):
    """A batch was taken, but its report is not visible."""


class Read(InputPartition):  # type: ignore[misc]
    """The input of one Spark task."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)


class EpochReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads a job's input in whole epochs.

    On a restart from a checkpoint the engine first calls ``partitions(end, end)`` with the last
    bound of its log.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._epochs: Epochs | None = None
        self._upto: Bound | None = None

    @property
    def epochs(self) -> Epochs:
        """The epochs, which follow the reports; created in the driver process that uses them."""
        if self._epochs is None:
            self._epochs = epochs_of(self.job, View(self.job.cluster(), plan=self.job.plan))
            self._epochs.view.catch_up()
        return self._epochs

    def initialOffset(self) -> dict[str, Any]:
        """Return the bound before everything."""
        return Bound().plain()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many records a batch takes at most."""
        most = self.job.max_records
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is complete now."""
        self._upto = self.epochs.complete()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the bound up to which a batch reads; the same if there is nothing to read.

        Raises:
            LateReportError: If the report of the batch before can't be seen.
        """
        now = Bound.of(start)
        self._await_report(now.epoch)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.epochs.next(now, most=most, upto=self._upto).plain()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Read]:
        """Return the stretches to read between two bounds.

        Raises:
            LateReportError: If the report of the batch before can't be seen.
        """
        first, last = Bound.of(start), Bound.of(end)
        if first.epoch == last.epoch:
            return []
        self._await_report(first.epoch)
        return list(map(Read, blocks.stretches(self.epochs, first, last)))

    def _await_report(self, epoch: int) -> None:
        """Wait until the report of a batch can be seen."""
        deadline = monotonic() + REPORT_S
        self.epochs.view.poll()
        while self.epochs.reported < epoch:
            if monotonic() > deadline:
                raise LateReportError(
                    f"job {self.job.name!r} has no report of epoch {epoch}, which its checkpoint "
                    f"has taken, in the progress topic after {REPORT_S:g} s; if the cluster was "
                    "recreated, remove the checkpoint"
                )
            time.sleep(IDLE_S)
            self.epochs.view.poll()

    def read(self, partition: Read) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch; runs on an executor."""
        stretch: Stretch = partition.value
        text = stretch.batch.text()
        for row in blocks.read(self.job, stretch, self.job.cluster()):
            if row is not None:
                yield blocks.record(row, batch=text)


def source_of(job: Job) -> type[DataSource]:
    """Return the data source of a job, to be registered with a session under its `name_of`."""

    class EpochSource(DataSource):  # type: ignore[misc]
        """The inputs of a job in whole epochs."""

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


class Replays:
    """Sends the replay requests of one process on an executor.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._client: TopicReplayClient | None = None

    def _open(self) -> TopicReplayClient:
        if self._client is None:
            job = self.job
            cluster = job.cluster()
            view = View(cluster, plan=job.plan)
            shared = Shared(cluster, job.plan, job.registry, view, job.compaction_lag_ms)
            self._client = TopicReplayClient(shared, scope=job.scope.name, partition=0)
            self._client.number = secrets.randbits(48) << 8  # others send under the same name
        return self._client

    def inputs(self, need: Need, batch: Batch, *, box: str) -> list[pl.DataFrame]:
        """Return an aggregate's inputs in some event-time ranges of groups, as of the batch.

        Raises:
            ReplayRefusedError: If a sweeper can't give a complete answer.
        """
        requests = replay_requests(self.job, need, batch, box=box)
        replies = self._open().fetch(
            requests, task=self.job.task(0), attempt=self.job.attempts[0], epoch=batch.epoch
        )
        try:
            while True:
                next(replies)
                time.sleep(IDLE_S)
        except StopIteration as stop:
            replayed: list[pl.DataFrame] = stop.value
        return self.job.plan.paths[box].inputs(replayed, wm=batch.wm)


def replay_requests(job: Job, need: Need, batch: Batch, *, box: str) -> list[ReplayQuery]:
    """Return the replay requests of a need: groups may be in any partition."""
    return [
        ReplayQuery(anchor.arc.name, batch.epoch, anchor.ranges(need.ranges), everywhere=True)
        for anchor in job.plan.paths[box].anchors
    ]


_REPLAYS: dict[tuple[str, int], Replays] = {}


StepRun = Generator[Need, Sequence[pl.DataFrame], Iterable[StepResult]]
"""A part of a step in a batch: yields needs for tuples that its states don't hold.

Returns its results, each made when it is taken.
"""


def run_with_replays(job: Job, batch: Batch, step: Step, run: StepRun) -> Iterable[StepResult]:
    """Run a part of a step to its end; this process replays the tuples that it needs."""
    replays = _REPLAYS.setdefault((job.transactional_id, job.attempts[0]), Replays(job))
    try:
        need = next(run)
        while True:
            box = step.boxes[-1].arc.name
            need = run.send(replays.inputs(need, batch, box=box))
    except StopIteration as stop:
        results: Iterable[StepResult] = stop.value
        return results


def run_of(job: Job, batch: Batch, key: int, rows: Iterable[Row], maps: Maps) -> StepRun:
    """Return the run of a part of a step.

    Args:
        job: The job.
        batch: The batch.
        key: The key of the part.
        rows: What the step gets, in any order.
        maps: Where its states are kept.
    """
    step, slot = job.by_key[key]
    if job.source is not None:
        return SourceShare(job, maps("")).run(batch, rows)
    if step.is_grouped:
        return Share(job, step, maps("")).run(batch, rows)
    return PartitionStep(job, step, slot, maps).run(batch, rows)


CACHE_BYTES = 128_000_000
"""How many bytes of states, as they are stored, a worker of Spark's keeps in memory."""
_CACHE = Cache(CACHE_BYTES)


class Stored:
    """Blobs in a map of Spark's store.

    Args:
        states: The map.
        name: The name of the blobs' own map in it.
    """

    def __init__(self, states: Any, name: str) -> None:
        self._states, self._name = states, name

    def get(self, key: Key) -> bytes | None:
        """Return a blob; None if there is none."""
        found = self._states.getValue((self._name, *key))
        return None if found is None else bytes(found[0])

    def put(self, key: Key, blob: bytes) -> None:
        """Write a blob."""
        self._states.updateValue((self._name, *key), (blob,))

    def remove(self, key: Key) -> None:
        """Remove a blob."""
        self._states.removeKey((self._name, *key))


def run_level(
    job: Job, level: int, states: Any, key: Any, rows: Iterator[SparkRow]
) -> Iterator[SparkRow]:
    """Process the rows of one part of a step; what is for other levels passes through.

    Args:
        job: The job.
        level: The level.
        states: The map of Spark's store.
        key: The key of the part.
        rows: Its rows, a row for each block.
    """
    first = next(rows)
    (number,), text, rows = key, first.batch, chain([first], rows)
    step, slot = job.by_key[number]
    if step.level != level:
        yield from rows
        return
    batch, passed = Batch.of(text), list[SparkRow]()

    def maps(name: str) -> Cached:
        return Cached(Stored(states, name), (job.transactional_id, number, name), _CACHE)

    run = run_of(job, batch, number, _own(rows, passed), maps)
    for row in result_rows(job, batch, step, slot, run_with_replays(job, batch, step, run)):
        yield SparkRow(**row._asdict(), batch=text)
    yield from passed


def _own(rows: Iterable[SparkRow], passed: list[SparkRow]) -> Iterator[Row]:
    """Yield what a step gets; rows for the writer go to `passed`."""
    for row in rows:
        if row.kind in (TUPLES, RESULTS):
            yield Row(row.key, row.kind, row.origin, bytes(row.block), row.arc)
        elif row.kind != TICK:
            passed.append(row)


WRITTEN = (
    "batch string, read string, ends string, counts map<string, long>, "
    "refused map<int, map<string, long>>"
)
"""What a task of a batch returns to the driver: one row, without any data."""
_WRITTEN = pa.schema(
    [
        ("batch", pa.string()),
        ("read", pa.string()),
        ("ends", pa.string()),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("refused", pa.map_(pa.int32(), pa.map_(pa.string(), pa.int64()))),
    ]
)


class Writer:
    """Writes the output of one task of a batch.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write, and return what was written once the brokers have acknowledged all of it."""
        batch, read, counts = "", dict[str, tuple[int, int]](), Counter[str]()
        revisions, dead_letters, refused = list[Row](), list[bytes](), list[bytes]()
        for records in rows:
            for row in records.to_pylist():  # a row for each block
                batch = row.pop("batch")
                if row["kind"] == HEADER:
                    read |= json.loads(row["block"])
                elif row["kind"] == DEAD_LETTERS:
                    dead_letters.append(row["block"])
                elif row["kind"] == REFUSED:
                    refused.append(row["block"])
                elif row["kind"] == COUNTS:
                    counts.update(json.loads(row["block"]))
                elif row["kind"] == REVISIONS:
                    revisions.append(Row(**row))
        if not batch:
            return
        number = TaskContext.get().partitionId()
        content = revisions, dead_letters, refused
        made = write(self.job, self.job.cluster(), Batch.of(batch), *content, number=number)
        written = {
            "batch": batch,
            "read": json.dumps(read),
            "ends": json.dumps({str(place): end for place, end in made.ends.items()}),
            "counts": list(counts.items()),
            "refused": [(p, list(tally.items())) for p, tally in made.refused.items()],
        }
        yield pa.RecordBatch.from_pylist([written], schema=_WRITTEN)


class Written(NamedTuple):
    """What a writer has written.

    Args:
        ends: By partition of an arc, the offset behind the last record.
        refused: By partition, the counts of its dead letters.
    """

    ends: Mapping[Place, int]
    refused: Mapping[int, Mapping[str, int]]


def write(
    job: Job,
    cluster: Cluster,
    batch: Batch,
    revisions: Sequence[Row],
    dead_letters: Sequence[bytes],
    refused_records: Sequence[bytes],
    *,
    number: int,
) -> Written:
    """Write revisions and dead letters in one transaction, but those that a report covers.

    Args:
        job: The job.
        cluster: The cluster.
        batch: The batch of the revisions.
        revisions: Rows of revisions of the job's arcs; one is unpacked at a time.
        dead_letters: Blocks of dead letters.
        refused_records: Blocks of refusals of a source's records.
        number: The number of this writer in the batch, in [0, writers).
    """
    refused = defaultdict[int, Counter[str]](Counter)
    is_nothing = not (revisions or dead_letters or refused_records)
    if is_nothing or batch.epoch <= min(job.done):
        return Written({}, refused)
    codecs = {arc: job.codec(arc) for arc in dict.fromkeys(row.arc for row in revisions)}
    written = set[Place]()
    transactions = cluster.transactions(job.writer_id(number))
    try:
        transactions.begin()
        for row in revisions:
            partition, codec = row.partition, codecs[row.arc]
            task = job.writes(partition)
            if batch.epoch <= job.done[task]:
                continue
            meta = Meta(job.task(task), job.attempts[task], batch.epoch)
            keys, values = codec.encode(unpack(row.block), meta)
            places = [partition] * len(keys)
            transactions.produce(codec.topic, partitions=places, keys=keys, values=values)
            written.add(Place(row.arc, partition))
        for block in dead_letters:
            told = unpack_dead_letters(block)
            letters = [letter for _, letter in told]
            produce_records(transactions, dead_letter_records(job, letters))
            partition = TaskId.parse(letters[0].task).partition
            refused[partition].update(str(CountKey("refused", box)) for box, _ in told)
            refused[partition].update(tally_dead_letters(letters))
        if refused_records:
            letters = ingest.dead_letters(job, batch, refused_records, cluster)
            produce_records(transactions, dead_letter_records(job, letters))
            for letter in letters:
                refused[letter.partition].update(tally_dead_letters([letter]))
        flushed = transactions.flush()
        transactions.commit()
    finally:
        transactions.close()
    ends = {
        place: flushed[TopicPartition(codecs[place.arc].topic, place.partition)].stop
        for place in written
    }
    return Written(ends, refused)
