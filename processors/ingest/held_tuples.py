"""The tuples that a source's arc holds for one task, the only writer of their identities.

The task is an ingest task or, for a rekeyed source, the owner of the identities. It keeps an index
on disk. It reconciles each batch with the index, spreads the revisions over the partitions of the
arc, and commits them to the index after the commit to Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from errata.processors.arcs.arc_topic import history
from errata.processors.arcs.partitioner import Emission, Spread
from errata.processors.ingest.identity_index import DamagedIndexError, FullIndexError, Index
from errata.processors.ingest.intake import Intake, Reconciled
from errata.processors.plan.topology import Source
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import Report
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

log = logging.getLogger("errata")


class LostIndexError(ErrataError):
    """An index is lost and can't be rebuilt."""


class HeldTuples:
    """The share of a source's arc that one task writes.

    Args:
        shared: State shared by the tasks of the process.
        source: The source.
        intake: Reconciles batches.
        task: Name of the task.
        folder: Folder of the index.
    """

    def __init__(
        self, shared: Shared, source: Source, *, intake: Intake, task: str, folder: Path
    ) -> None:
        self.view, self.plan = shared.view, shared.plan
        self._compaction_lag_ms = shared.compaction_lag_ms
        self.arc, self.intake, self.task, self.folder = source.arc, intake, task, folder
        self.codec = shared.codec(self.arc.name)
        self.spread = Spread(self.arc, self.plan.placement.partitions[self.arc.name])
        self._index: Index | None = None
        self.full = ""
        """Why the index can't be written; "" if it can."""
        self.is_behind = False
        """Whether the index lacks revisions that were committed to Kafka."""

    @property
    def index(self) -> Index:
        """The index of this attempt."""
        assert self._index is not None
        return self._index

    def open(self, report: Report) -> Iterator[bool]:
        """Open the index and catch up to the task's report; without disk space it stays behind.

        Raises:
            LostIndexError: If the index is lost, and the arc keeps no history.
            FullIndexError: If the disk has no room for a first index.
        """
        label = f"{self.codec.topic} {self.task} {self.plan.shape}"
        self._index = Index(self.folder, label=label)
        try:
            with self._writing():
                self._check(report)
        except FullIndexError:
            if report.done < 0:
                raise
            self.is_behind = True  # it may be; it is checked again before it catches up
            return
        if self.is_behind:
            yield from self.catch_up(report)

    def _check(self, report: Report) -> None:
        """Make a first index, empty an outdated one, and note whether it is behind."""
        index, self.is_behind = self.index, True
        if index.is_new and report.done < 0:
            index.begin(put=([], []), delete=[], done=-1, positions={})
            index.commit()
        elif index.is_new:
            self._require_history()
        elif index.done != report.done and self._is_outdated(index):
            log.warning("%s: its index is older than what compaction keeps: read again", self.task)
            self._require_history()
            index.empty()
        if index.emptied:
            log.warning("%s: its index is read from the arc again: %s", self.task, index.emptied)
            index.emptied = ""
        self.is_behind = index.done != report.done

    def lose(self, error: DamagedIndexError) -> None:
        """Empty a damaged index, to be read from the arc again by `catch_up`.

        Raises:
            LostIndexError: If the arc keeps no history.
        """
        log.warning("%s: its index is read from the arc again: %s", self.task, error)
        self._require_history()
        self.index.empty()
        self.is_behind = True

    def _require_history(self) -> None:
        if not self.arc.is_connection_point:
            raise LostIndexError(
                f"{self.task}: its index is lost, and source {self.arc.name!r} keeps no history "
                "from which to rebuild it; restore the state folder, or declare the source with "
                'keep="..."'
            )

    def _is_outdated(self, index: Index) -> bool:
        """Whether deletes that it has not read may be gone from the arc by now."""
        age_ms = time.time_ns() // 1_000_000 - index.written_ms
        return self.arc.is_connection_point and age_ms > self._compaction_lag_ms // 2

    def catch_up(self, report: Report) -> Iterator[bool]:
        """Apply the revisions that were committed since the index was last up to date.

        Without disk space the index stays behind; one that turns out to be damaged is emptied, and
        stays behind until the next call.
        """
        try:
            with suppress(FullIndexError), self._writing():
                yield from self._catch_up(report)
        except DamagedIndexError as error:
            self.lose(error)

    def _catch_up(self, report: Report) -> Iterator[bool]:
        self._check(report)
        index = self.index
        since, parts, cluster = index.positions, [self.codec.empty], self.view.cluster
        reached: dict[TopicPartition, int] = {}
        for partition in range(self.spread.partition_count):
            place = TopicPartition(self.codec.topic, partition)
            reached[place] = cluster.end(place)
            revisions = yield from history(cluster, self.codec, place, since.get(place, 0))
            written = revisions.filter(
                (pl.col("task") == self.task) & (pl.col("epoch") > index.done)
            )
            parts.append(self.view.covered(written))
        # A tuple that moved between partitions was deleted in one and inserted in the other.
        last = frames.last(pl.concat(parts), self.arc.identity)
        self.intake.change(index, last, done=report.done, positions=reached)
        self._commit()

    def reconcile(self, revisions: pl.DataFrame) -> Reconciled:
        """Reconcile a batch of source revisions with the index; see `intake.reconcile`."""
        return self.intake.reconcile(self.index, revisions)

    def change(self, reconciled: Reconciled, *, epoch: int, report: Report) -> list[Emission]:
        """Apply an epoch's changes to the index, pending `commit`; return the arc's emissions.

        Args:
            reconciled: The changes.
            epoch: The epoch.
            report: The newest report: a later catch-up reads the arc from its ends.

        Raises:
            FullIndexError: If the disk has no room for them.
        """
        ends = {place: offset for place, (offset, _) in report.ends.items()}
        positions = self.index.positions | ends
        with self._writing():
            self.intake.change(
                self.index,
                reconciled.revisions,
                keys=reconciled.keys,
                done=epoch,
                positions=positions,
            )
        return self.spread.emissions(reconciled.revisions, epoch)

    def commit(self) -> None:
        """Commit the changes to the index, after Kafka; without disk space it falls behind."""
        try:
            with suppress(FullIndexError), self._writing():
                self.is_behind = True
                self._commit()
        except DamagedIndexError as error:
            self.lose(error)

    def _commit(self) -> None:
        self.index.commit()
        self.is_behind = False
        if self.full:
            log.warning("%s: its disk has room again; it continues", self.task)
            self.full = ""

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Log once that the disk is full."""
        try:
            yield
        except FullIndexError as error:
            if not self.full:
                log.error("%s reads no input until its disk has room: %s", self.task, error)
            self.full = str(error)
            raise

    def close(self) -> None:
        """Undo uncommitted changes and close the files; safe to call twice."""
        if self._index is not None:
            self._index.close()
