"""``spark.read`` and ``spark.readStream`` of an arc: its table, or what happened, in whole epochs.

What happened comes as revisions, with both sides in one row, or as changes, in the columns of
Delta's change data feed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.deployed import NewVersionError, require_plan
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import settled
from errata.schemas.arrow import tuple_batch
from errata.spark_jobs.executor import Registered
from errata.spark_jobs.limits import Backlog
from errata.spark_jobs.place import Place
from errata.spark_jobs.reading import (
    NOTHING,
    PAUSE_S,
    ArcProgress,
    ArcReader,
    EpochAheadError,
    HistoryLostError,
    Piece,
    log_settings,
)
from errata.spark_jobs.rows import (
    change_batch,
    change_type,
    revision_batch,
    revision_type,
    tuple_type,
)
from errata.topics.kafka import KafkaCluster
from errata.topics.registry_server import registry

log = logging.getLogger("errata")

TABLE, REVISIONS, CHANGES = "table", "revisions", "changes"
_ROWS, _BYTES = 65_536, 1 << 28
"""Rows of a record batch, and about how many bytes, at most; a column of texts ends at 2 GiB."""
_POLL_S, _SETTLED_S = 0.2, 1.0


@dataclass
class Read(InputPartition):  # type: ignore[misc]
    """The input of one Spark task."""

    piece: Piece


@dataclass(frozen=True)
class Opened:
    """An arc of a deployed network, ready to be read.

    Args:
        plan: The plan, as deployed.
        reader: The arc.
    """

    plan: Plan
    reader: ArcReader

    @classmethod
    def of(
        cls,
        kafka: Mapping[str, str | int],
        *,
        network: str,
        arc: str,
        registry_settings: Mapping[str, str | int],
    ) -> Opened:
        """Return an arc as it is deployed.

        Raises:
            ClusterError: If the cluster can't be used.
            NotDeployedError: If the network is not deployed there.
            NoSuchArcError: If it has no such arc.
            ForeignSchemaError: If the registry is not that of its processes.
        """
        cluster = KafkaCluster(kafka)
        try:
            plan = require_plan(cluster, network).plan
            kind, ids = plan.written(arc, registry(cluster, registry_settings))
        finally:
            cluster.close()
        topic, count = plan.deployment.topic(arc), plan.placement.partitions[arc]
        is_compacted, kept_ms = log_settings(kafka, topic)
        return cls(plan, ArcReader(kind, topic, count, kafka, ids, is_compacted, kept_ms))

    def schema(self, content: str) -> StructType:
        """Return the type of the rows: of tuples, revisions or changes."""
        types = {TABLE: tuple_type, REVISIONS: revision_type, CHANGES: change_type}
        return types[content](self.reader.arc)

    def rows(self, content: str, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece; runs on an executor."""
        reader = self.reader
        if content == TABLE:
            parts = _slices(reader.content(piece))
            yield from (tuple_batch(reader.arc, part) for part in parts)
        else:
            batch = revision_batch if content == REVISIONS else change_batch
            parts = _slices(reader.revisions(piece))
            yield from (batch(reader.arc, part) for part in parts)


def _slices(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield a frame in parts for one record batch each."""
    fitting = _BYTES * frame.height // max(1, int(frame.estimated_size()))
    return frame.iter_slices(max(1, min(_ROWS, fitting)))


@dataclass
class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads an arc's table, or what happened to it, as of one epoch in all partitions.

    Args:
        opened: The arc.
        content: `TABLE`, `REVISIONS` or `CHANGES`.
        as_of: The last epoch that counts; None: the last complete one.
        first: The first epoch of revisions; None: the earliest that is retained.
    """

    opened: Opened
    content: str
    as_of: int | None
    first: int | None

    def partitions(self) -> list[Read]:
        """Return the pieces to read.

        Raises:
            EpochAheadError: If `as_of` is not complete yet.
            HistoryLostError: If it is too long ago.
        """
        with closing(ArcProgress.now(self.opened.reader, self.opened.plan)) as progress:
            return [Read(piece) for piece in self._pieces(progress)]

    def _pieces(self, progress: ArcProgress) -> list[Piece]:
        epoch, ends = progress.complete()
        if self.as_of is not None:
            if self.as_of > epoch:
                raise EpochAheadError(
                    f"arc {self.opened.reader.arc.name!r} is complete up to epoch {epoch}, but "
                    f"as_of {self.as_of} was requested; wait, or request an earlier one"
                )
            epoch = self.as_of
        after = NOTHING if self.first is None else self.first - 1
        intact = after
        if self.content == TABLE:
            intact = epoch
            progress.require_whole(epoch)
        if intact > NOTHING:
            progress.require_kept(intact)
        starts = [0] * len(ends)
        return progress.pieces(after, epoch, starts=starts, ends=ends, intact=intact)

    def read(self, partition: Read | None) -> Iterator[pa.RecordBatch]:
        """Yield rows; runs on an executor."""
        if partition is not None:  # Spark passes None if there is nothing to read
            yield from self.opened.rows(self.content, partition.piece)


@dataclass(frozen=True)
class Bound:
    """A point between two batches of a stream: the offset in Spark's log.

    Args:
        topic: The arc's topic, to which the offsets belong.
        epoch: The last epoch before it.
        starts: By partition, an offset before which no record is of a later epoch.
        ends: By partition, an offset before which all records of epochs up to it are.
    """

    topic: str
    epoch: int
    starts: list[int]
    ends: list[int]


@dataclass(frozen=True)
class Bounds:
    """Determines how far a stream can read.

    The bound also fixes where the next batch begins to read, so that a rerun reads the same. If
    each partition has one writer, epochs are in log order: a batch begins where the last one ended.
    If there are several writers, one may be epochs ahead of another.

    Args:
        progress: The progress of the arc.
        clock_ms: Returns the current time, ms since the epoch.
    """

    progress: ArcProgress
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def next(self, now: Bound, *, most: int | None = None, upto: int | None = None) -> Bound:
        """Return the bound up to which a batch reads; the same if nothing is new.

        Args:
            now: The last bound.
            most: About how many revisions the batch takes at most, in whole epochs; None: all.
            upto: The last epoch to read; None: the last complete one.
        """
        progress = self.progress
        complete, ends = progress.complete()
        epoch = complete if upto is None else min(complete, upto)
        if epoch <= now.epoch or max(map(progress.last_written, progress.partitions)) <= now.epoch:
            return now
        fits = most is None or sum(ends) - sum(now.starts) <= most
        if epoch < complete or not fits:
            bound = self._limited(now, epoch, ends, most)
            if bound.epoch < complete:
                return bound
        if all(len(progress.writers(p)) == 1 for p in progress.partitions):
            return Bound(now.topic, epoch, ends, ends)
        arc = progress.reader.arc.name
        newest, starts = settled(progress.view, arc, now_ms=self.clock_ms())
        deadline = time.monotonic() + _SETTLED_S
        while upto is None and epoch < newest and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            progress.view.poll()
            epoch, ends = progress.complete()
        return Bound(now.topic, epoch, starts if newest <= epoch else now.starts, ends)

    def _limited(self, now: Bound, epoch: int, ends: Sequence[int], most: int | None) -> Bound:
        """Return a bound at an epoch of which the topic may hold later ones already."""
        reader = self.progress.reader
        places = [Place(reader.arc.name, partition) for partition in self.progress.partitions]
        codec = ArcCodec(reader.arc, reader.topic, Registered(reader.ids))
        known = dict(zip(places, ends, strict=True))
        backlog = Backlog(self.progress.view, lambda arc: codec, known, now.epoch)
        firsts = map(backlog.first, places, now.starts)
        starts = [first.offset if first else end for first, end in zip(firsts, ends, strict=True)]
        epoch, cut, is_over = backlog.limited(epoch, dict(zip(places, starts, strict=True)), most)
        if is_over:
            log.warning(
                "arc %r: epoch %d alone has more revisions than the %d of maxRecordsPerTrigger; "
                "it is read in one batch", reader.arc.name, epoch, most,
            )  # fmt: skip
        return Bound(now.topic, epoch, starts, [cut[place] for place in places])


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads an arc's revisions in whole epochs.

    On a restart from a checkpoint the engine first calls ``partitions(end, end)`` with the last
    bound of its log; if it did not, more would be read than needed.

    Args:
        opened: The arc.
        first: The first epoch; None: the earliest that is retained.
        most: About how many revisions a batch takes at most; None: no limit.
        content: `REVISIONS` or `CHANGES`.
    """

    def __init__(
        self,
        opened: Opened,
        first: int | None,
        most: int | None = None,
        content: str = REVISIONS,
    ) -> None:
        self.opened, self.most, self.content = opened, most, content
        self._upto: int | None = None
        reader, before = opened.reader, NOTHING if first is None else first - 1
        nothing = [0] * reader.partition_count
        self._first = Bound(reader.topic, before, nothing, nothing)
        self._bounds: Bounds | None = None

    @property
    def bounds(self) -> Bounds:
        """The bounds, which follow the reports; created in the driver process that uses them."""
        if self._bounds is None:
            self._bounds = Bounds(ArcProgress.now(self.opened.reader, self.opened.plan))
        return self._bounds

    def initialOffset(self) -> dict[str, Any]:
        """Return the bound before the first requested epoch."""
        return asdict(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many revisions a batch takes at most."""
        return ReadAllAvailable() if self.most is None else ReadMaxRows(self.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is complete now."""
        self._upto = self.bounds.progress.complete()[0]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the bound up to which a batch reads; waits briefly for a new one.

        Raises:
            NewVersionError: If the network moves to another version of its plan.
        """
        view, plan, deadline = self.bounds.progress.view, self.opened.plan, time.monotonic()
        most, now = limit.max_rows if isinstance(limit, ReadMaxRows) else None, Bound(**start)
        while (bound := self.bounds.next(now, most=most, upto=self._upto)) == now:
            if time.monotonic() > deadline + _POLL_S:
                break
            time.sleep(PAUSE_S)
            view.poll()
        if view.version > plan.deployment.version:
            raise NewVersionError(
                f"network {plan.network!r} moves to version {view.version} of its plan; start the "
                "query again when `errata deploy` has ended"
            )
        return asdict(bound)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Read]:
        """Return the pieces to read between two bounds.

        Raises:
            HistoryLostError: If the stream is so far behind that some of it may be gone.
        """
        first, last, reader = Bound(**start), Bound(**end), self.opened.reader
        if last.topic != reader.topic:
            raise HistoryLostError(
                f"the checkpoint is of topic {last.topic!r}, but arc {reader.arc.name!r} is in "
                f"{reader.topic!r}: its network was moved to other numbers of partitions; start "
                "the query with a new checkpoint"
            )
        if first.epoch == last.epoch:
            return []
        progress = self.bounds.progress
        if first.epoch > NOTHING:
            progress.require_kept(first.epoch, read_to=None if first == self._first else first.ends)
        pieces = progress.pieces(
            first.epoch, last.epoch, starts=first.starts, ends=last.ends, intact=first.epoch
        )
        return [Read(piece) for piece in pieces]

    def stop(self) -> None:
        """Stop following the reports."""
        if self._bounds is not None:
            self._bounds.progress.close()

    def read(self, partition: Read) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece; runs on an executor."""
        yield from self.opened.rows(self.content, partition.piece)
