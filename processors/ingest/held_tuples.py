"""The tuples that a source's arc holds for one task, the only writer of their identities.

The task is an ingest task or, for a rekeyed source, the owner of the identities. It keeps an index
on disk. It reconciles each batch with the index, spreads the revisions over the partitions of the
arc, and commits them to the index after the commit to Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from errata.processors.arcs.arc_topic import history
from errata.processors.arcs.partitioner import Emission, Spread
from errata.processors.boxes.base import difference
from errata.processors.ingest.identity_index import DamagedIndexError, FullIndexError, Index
from errata.processors.ingest.intake import Intake, Reconciled
from errata.processors.plan.topology import Source
from errata.processors.tasks.elapsed import elapsed_ms
from errata.processors.tasks.expiry import expired_before
from errata.processors.tasks.lost_records import LostRecordsError
from errata.processors.tasks.reading_again import ReadingAgain
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import NEVER, PENDING, Report
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.schemas.fields import physical
from errata.topics.cluster import TopicPartition

log = logging.getLogger("errata")

EXPIRED_MS, EXPIRED_ROWS = 1_000, 10_000
"""Old tuples are removed from the index this often, and whenever so many were written to it."""


class LostIndexError(ErrataError):
    """An index is lost and can't be rebuilt."""


class HeldTuples:
    """The share of a source's arc that one task writes.

    Args:
        shared: State shared by the tasks of the process.
        source: The source.
        intake: Reconciles batches.
        task: Name of the task.
        input: The partition whose records can be read again if the index has not seen them; None
            if they can't.
        folder: Folder of the index.
        again: Tells how far the task has come that reads its arc again.
    """

    def __init__(
        self,
        shared: Shared,
        source: Source,
        *,
        intake: Intake,
        task: str,
        input: TopicPartition | None = None,
        folder: Path,
        again: ReadingAgain,
    ) -> None:
        self.again = again
        self.shared, self.view, self.plan = shared, shared.view, shared.plan
        self._compaction_lag_ms = shared.compaction_lag_ms
        self.arc, self.intake, self.task, self.folder = source.arc, intake, task, folder
        self.input = input
        self.codec = shared.codec(self.arc.name)
        self.spread = Spread(self.arc, self.plan.placement.partitions[self.arc.name])
        self._index: Index | None = None
        self.full = ""
        """Why the index can't be written; "" if it can."""
        self.is_behind = False
        """Whether the index lacks revisions that were committed to Kafka."""
        self._written = self._expired_ms = 0

    @property
    def index(self) -> Index:
        """The index of this attempt."""
        assert self._index is not None
        return self._index

    def open(self, report: Report) -> Generator[bool, None, None]:
        """Open the index and catch up to the task's report; without disk space it stays behind.

        Raises:
            LostIndexError: If the index is lost, and the arc keeps no history.
            FullIndexError: If the disk has no room for a first index.
        """
        label = f"{self.codec.topic} {self.task} {self.plan.shape}"
        self._index = Index(self.folder, label=label, reach_ms=self.intake.reach_ms)
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
            resume = self._resume(report)
            index.begin(put=([], []), delete=[], done=-1, positions={}, resume=resume)
            index.commit()
        elif report.rebuilt == PENDING:
            # The arc does not have all that the index lacks: it is in the source.
            if index.is_new or (index.done != report.done and index.resume is None):
                raise self._cannot_restore("its index is lost too")
        elif index.is_new:
            self._require_history()
        elif index.lacks_lists:
            log.warning("%s: its index is of an older version: read from the arc again", self.task)
            self._require_history()
            index.empty()
        elif index.done != report.done and self._is_outdated(index):
            log.warning("%s: its index is older than what compaction keeps: read again", self.task)
            self._require_history()
            index.empty()
        if index.emptied:
            log.warning("%s: its index is read from the arc again: %s", self.task, index.emptied)
            index.emptied = ""
        self.is_behind = index.done != report.done and report.rebuilt != PENDING

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
        age_ms = elapsed_ms(index.written_ms, now_ms=time.time_ns() // 1_000_000)
        return self.arc.is_connection_point and age_ms > self._compaction_lag_ms // 2

    def catch_up(self, report: Report) -> Generator[bool, None, None]:
        """Apply the revisions that were committed since the index was last up to date.

        Without disk space the index stays behind; one that turns out to be damaged is emptied, and
        stays behind until the next call.
        """
        try:
            what = self.again.of("rebuilds its index")
            with suppress(FullIndexError), self._writing(), what:
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
            offset = since.get(place, 0)
            revisions = yield from history(cluster, self.codec, place, offset, note=self.again.note)
            written = revisions.filter(
                (pl.col("task") == self.task) & (pl.col("epoch") > index.done)
            )
            parts.append(self.view.covered(written))
        # A tuple that moved between partitions was deleted in one and inserted in the other.
        last = frames.last(pl.concat(parts), self.arc.identity)
        resume = self._resume(report)
        last = self.intake.encoded(last)
        self.intake.change(index, last, done=report.done, positions=reached, resume=resume)
        self._commit()

    def position(self, report: Report) -> int:
        """Return the offset of the input from which a new attempt reads."""
        if report.rebuilt == PENDING and self.index.resume is not None:
            return self.index.resume
        return self._resume(report) or 0

    def _resume(self, report: Report) -> int | None:
        return None if self.input is None else report.resume.get(self.input, 0)

    def restored(self, report: Report, *, epoch: int) -> Generator[bool, None, list[Emission]]:
        """Return the emissions that write lost records again; the index goes on, pending `commit`.

        They are the difference between the tuples that the arc's topic still has and those in the
        index. Tuples too old to be revised are left out: retention may have removed them.

        Raises:
            LostRecordsError: If the arc keeps no history.
        """
        if self.arc.keep_ms is None:
            raise self._cannot_restore("the source keeps no history")
        since_ms = report.trusted_ms - self.arc.keep_ms
        nothing = pl.DataFrame(schema=physical(self.arc.fields))
        held = pl.concat([nothing, *self.intake.held(self.index, since_ms=since_ms)])
        places, lost = self.spread.places(held), dict[int, pl.DataFrame]()
        for partition in range(self.spread.partition_count):
            place = TopicPartition(self.codec.topic, partition)
            written = yield from history(self.view.cluster, self.codec, place, 0)
            committed = self.view.covered(written.filter(pl.col("task") == self.task))
            there = frames.fold(committed, self.arc.identity, list(self.arc.fields))
            there = there.filter(self.arc.event_times(there) >= since_ms)
            lost[partition] = difference(self.arc, there, held.filter(places == partition))
        # A tuple that moved may have lost its delete in the partition that it left. Its last
        # revision has to be in the other one, so it is written there once more.
        identity = list(self.arc.identity)
        deleted = pl.concat(each.filter(pl.col("op") == frames.DELETE) for each in lost.values())
        moved = frames.identities(deleted, identity)
        moved = held.with_columns(places.alias("@place")).join(
            moved, on=identity, how="semi", nulls_equal=True
        )
        emissions = list[Emission]()
        for partition, revisions in lost.items():
            stay = moved.filter(pl.col("@place") == partition).drop("@place")
            stay = stay.join(
                frames.identities(revisions, identity), on=identity, how="anti", nulls_equal=True
            )
            every = pl.concat([revisions, frames.replacing(stay, revisions.columns)])
            here = pl.Series([partition], dtype=pl.Int32).new_from_index(0, every.height)
            emissions.append(Emission(self.arc.name, epoch, every, here))
        emissions = [emission for emission in emissions if emission.revisions.height]
        positions = dict.fromkeys(self.index.positions, 0)  # what it had read may be lost
        positions |= {place: offset for place, (offset, _) in report.ends.items()}
        self.index.begin(
            put=([], []),
            delete=[],
            done=epoch,
            positions=positions,
            resume=self.position(report),
        )
        count = sum(emission.revisions.height for emission in emissions)
        log.warning("task %s: %d lost revisions are written again", self.task, count)
        return emissions

    def _cannot_restore(self, why: str) -> LostRecordsError:
        return LostRecordsError(
            f"{self.task}: the brokers have lost committed records of {self.codec.topic}, and they "
            f"can't be written again, since {why}; restore the topic, or run `errata reset` and "
            "start again"
        )

    def reconcile(self, revisions: pl.DataFrame) -> Reconciled:
        """Reconcile a batch of source revisions with the index; see `intake.reconcile`."""
        return self.intake.reconcile(self.index, revisions)

    def change(
        self, reconciled: Reconciled, *, epoch: int, report: Report, resume: int | None
    ) -> list[Emission]:
        """Apply an epoch's changes to the index, pending `commit`; return the arc's emissions.

        Args:
            reconciled: The changes.
            epoch: The epoch.
            report: The newest report: a later catch-up reads the arc from its ends.
            resume: The offset of the input after the epoch's records; None if it is not known.

        Raises:
            FullIndexError: If the disk has no room for them.
        """
        ends = {place: offset for place, (offset, _) in report.ends.items()}
        positions = self.index.positions | ends
        revisions = self.intake.encoded(reconciled.revisions, reconciled.keys)
        self._written += revisions.height
        with self._writing():
            self.intake.change(
                self.index, revisions, done=epoch, positions=positions, resume=resume
            )
        return self.spread.emissions(revisions, epoch)

    def remove_expired(self, report: Report, *, now_ms: int) -> None:
        """Remove tuples from the index that no revision may concern any more, now and then.

        Args:
            report: The task's newest report.
            now_ms: The clock.
        """
        since_ms = elapsed_ms(self._expired_ms, now_ms=now_ms)
        if self._written < EXPIRED_ROWS and since_ms < EXPIRED_MS:
            return
        before_ms = expired_before(self.shared, self.arc.name, upto=report.done, now_ms=now_ms)
        limit, self._written, self._expired_ms = EXPIRED_ROWS + 2 * self._written, 0, now_ms
        if before_ms == NEVER or self.is_behind:
            return
        try:
            with suppress(FullIndexError):
                self.intake.remove_expired(self.index, before_ms=before_ms, limit=limit)
        except DamagedIndexError as error:
            self.lose(error)

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
