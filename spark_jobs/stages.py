"""The stages of a batch, as Spark runs them on executors: source, stateful operator, writer.

The source is a Python data source that reads an arc in whole epochs, as blocks.

The operator has one share of the groups for each Spark task, under one key, with its states in
Spark's store (`state_map`). Blocks arrive in any order; they are processed in the order of their
origin, so that a rerun of a batch returns bit-identical results. The executor sends replay requests
over topics for tuples that the states don't hold.

The writer writes a batch's revisions to the job's arc, one transaction for each task. The
transactional id is that of the task's place in the batch. A new attempt of the driver fences all of
them before it looks for the last records written, so no late write of an older attempt follows. If
a batch is rerun within one attempt, it writes exact copies: readers use one of them.
"""

from __future__ import annotations

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
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.partitioner import Spread, parted
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
from errata.spark_jobs import blocks
from errata.spark_jobs.blocks import (
    DEAD_LETTERS,
    HEADER,
    RESULTS,
    TICK,
    TUPLES,
    Stretch,
    unpack_dead_letters,
)
from errata.spark_jobs.epochs import Batch, Bound, Epochs
from errata.spark_jobs.job import Job
from errata.spark_jobs.share import Share, ShareResult
from errata.spark_jobs.state_map import Cache, Cached, Key
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
        self._upto: int | None = None

    @property
    def epochs(self) -> Epochs:
        """The epochs, which follow the reports; created in the driver process that uses them."""
        if self._epochs is None:
            self._epochs = Epochs(self.job, View(self.job.cluster(), plan=self.job.plan))
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
                yield blocks.record(*row, batch=text)


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

    def inputs(self, need: Need, batch: Batch) -> list[pl.DataFrame]:
        """Return the aggregate's inputs in some event-time ranges of groups, as of the batch.

        Raises:
            ReplayRefusedError: If a sweeper can't give a complete answer.
        """
        requests = replay_requests(self.job, need, batch)
        replies = self._open().fetch(
            requests, task=self.job.task(0), attempt=self.job.attempts[0], epoch=batch.epoch
        )
        try:
            while True:
                next(replies)
                time.sleep(IDLE_S)
        except StopIteration as stop:
            replayed: list[pl.DataFrame] = stop.value
        return self.job.plan.paths[self.job.name].inputs(replayed, wm=batch.wm)


def replay_requests(job: Job, need: Need, batch: Batch) -> list[ReplayQuery]:
    """Return the replay requests of a need: groups may be in any partition."""
    return [
        ReplayQuery(anchor.arc.name, batch.epoch, anchor.ranges(need.ranges), everywhere=True)
        for anchor in job.plan.paths[job.name].anchors
    ]


_REPLAYS: dict[tuple[str, int], Replays] = {}


def run_with_replays(
    job: Job, batch: Batch, run: Generator[Need, Sequence[pl.DataFrame], ShareResult | None]
) -> ShareResult | None:
    """Run a share to its end; this process replays the tuples that it needs."""
    replays = _REPLAYS.setdefault((job.transactional_id, job.attempts[0]), Replays(job))
    try:
        need = next(run)
        while True:
            need = run.send(replays.inputs(need, batch))
    except StopIteration as stop:
        result: ShareResult | None = stop.value
        return result


CACHE_BYTES = 128_000_000
"""How many bytes of states, as they are stored, a worker of Spark's keeps in memory."""
_CACHE = Cache(CACHE_BYTES)

OUTPUT = "kind int, batch string, block binary, counts map<string, long>"
"""Revisions of one share; the batch's metadata; dead letters."""


class Stored:
    """Blobs in a map of Spark's store."""

    def __init__(self, states: Any) -> None:
        self._states = states

    def get(self, key: Key) -> bytes | None:
        """Return a blob; None if there is none."""
        found = self._states.getValue(key)
        return None if found is None else bytes(found[0])

    def put(self, key: Key, blob: bytes) -> None:
        """Write a blob."""
        self._states.updateValue(key, (blob,))

    def remove(self, key: Key) -> None:
        """Remove a blob."""
        self._states.removeKey(key)


class Operator(StatefulProcessor):  # type: ignore[misc]
    """Runs the aggregate of a job.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._states = handle.getMapState("states", "slab long, number long", "blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Process the rows of one share."""
        first = next(rows)  # a row for each block
        text, rows = first.batch, chain([first], rows)
        batch, owner = Batch.of(text), (self.job.transactional_id, key)
        share = Share(self.job, Cached(Stored(self._states), owner, _CACHE))
        passed = list[Row]()
        blocks = _blocks(rows, passed)
        if batch.is_whole:
            results: Iterable[ShareResult | None] = share.rebuild(batch, blocks)
        else:
            in_order = (block for *_, block in sorted(blocks))
            results = [run_with_replays(self.job, batch, share.process(batch, in_order))]
        for result in results:
            if result is not None:
                yield _row(TUPLES, text, result.block(), counts=result.counts)
                for block in result.dead_letters:
                    yield _row(DEAD_LETTERS, text, block)
        for row in passed:
            yield _row(row.kind, text, bytes(row.block))

    def close(self) -> None:
        """Do nothing: connections live as long as the process."""


def _blocks(rows: Iterable[Row], passed: list[Row]) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, origin and block of tuples and results; rows for the report go to `passed`."""
    for row in rows:
        if row.kind in (TUPLES, RESULTS):
            yield row.kind, row.origin, bytes(row.block)
        elif row.kind != TICK:
            passed.append(row)


def _row(kind: int, batch: str, block: bytes, *, counts: Mapping[str, int] | None = None) -> Row:
    return Row(kind=kind, batch=batch, block=block, counts=dict(counts or {}))


WRITTEN = (
    "batch string, resume string, ends map<int, long>, counts map<string, long>, "
    "refused map<int, map<string, long>>"
)
"""What a task of a batch returns to the driver: one row, without any data."""
_WRITTEN = pa.schema(
    [
        ("batch", pa.string()),
        ("resume", pa.string()),
        ("ends", pa.map_(pa.int32(), pa.int64())),
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
        batch, resume, revisions = "", "", list[bytes]()
        counts, dead_letters = Counter[str](), list[bytes]()
        for records in rows:
            for row in records.to_pylist():  # a row for each block
                batch = row["batch"]
                if row["kind"] == HEADER:
                    resume += row["block"].decode() + ","
                elif row["kind"] == DEAD_LETTERS:
                    dead_letters.append(row["block"])
                else:
                    if row["block"]:
                        revisions.append(row["block"])
                    counts.update(dict(row["counts"]))
        if not batch:
            return
        number = TaskContext.get().partitionId()
        content = revisions, dead_letters
        made = write(self.job, self.job.cluster(), Batch.of(batch), *content, number=number)
        written = {
            "batch": batch,
            "resume": resume,
            "ends": list(made.ends.items()),
            "counts": list(counts.items()),
            "refused": [(p, list(tally.items())) for p, tally in made.refused.items()],
        }
        yield pa.RecordBatch.from_pylist([written], schema=_WRITTEN)


class Written(NamedTuple):
    """What a writer has written.

    Args:
        ends: By partition of the arc, the offset behind the last record.
        refused: By partition, the counts of its dead letters.
    """

    ends: Mapping[int, int]
    refused: Mapping[int, Mapping[str, int]]


def write(
    job: Job,
    cluster: Cluster,
    batch: Batch,
    revisions: Sequence[bytes],
    dead_letters: Sequence[bytes],
    *,
    number: int,
) -> Written:
    """Write revisions and dead letters in one transaction, but those that a report covers.

    Args:
        job: The job.
        cluster: The cluster.
        batch: The batch of the revisions.
        revisions: Blocks of revisions of the job's arc; one is unpacked at a time.
        dead_letters: Blocks of dead letters.
        number: The number of this writer in the batch, in [0, writers).
    """
    refused = defaultdict[int, Counter[str]](Counter)
    if not (revisions or dead_letters) or batch.epoch <= min(job.done):
        return Written({}, refused)
    arc, codec = job.plan.topology.arcs[job.name], job.codec(job.name)
    spread, written = Spread(arc, job.partition_count), set[int]()
    transactions = cluster.transactions(job.writer_id(number))
    try:
        transactions.begin()
        for block in revisions:
            for emission in spread.emissions(unpack(block), batch.epoch):
                for (partition,), part in parted(emission.revisions, emission.partitions):
                    if batch.epoch <= job.done[partition]:
                        continue
                    meta = Meta(job.task(partition), job.attempts[partition], batch.epoch)
                    keys, values = codec.encode(part, meta)
                    places = [partition] * len(keys)
                    transactions.produce(codec.topic, partitions=places, keys=keys, values=values)
                    written.add(partition)
        for block in dead_letters:
            told = unpack_dead_letters([block])
            letters = [letter for _, letter in told]
            produce_records(transactions, dead_letter_records(job, letters))
            partition = TaskId.parse(letters[0].task).partition
            refused[partition].update(str(CountKey("refused", box)) for box, _ in told)
            refused[partition].update(tally_dead_letters(letters))
        flushed = transactions.flush()
        transactions.commit()
    finally:
        transactions.close()
    ends = {p: flushed[TopicPartition(codec.topic, p)].stop for p in written}
    return Written(ends, refused)
