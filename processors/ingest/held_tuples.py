"""What a source's arc holds of the identities that come to one task, which alone writes them.

The task is an ingest task, or of a rekeyed source the owner of the identities. It keeps an index on
disk; what it takes is judged by that, spread over the partitions of the arc, and put into the index
for good once it is committed to Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from errata.processors.arcs.arc_topic import history
from errata.processors.arcs.partitioner import Emission, Spread
from errata.processors.ingest.decoding import Intake
from errata.processors.ingest.identity_index import FullIndexError, Index
from errata.processors.ingest.reconcile import Taken
from errata.processors.plan.source import Source
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import Report
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

log = logging.getLogger("errata")


class LostIndexError(ErrataError):
    """An index is gone and can't be made anew."""


class HeldTuples:
    """The share of a source's arc that one task writes.

    Args:
        shared: What its process shares.
        source: The source.
        intake: Judges what comes.
        task: Name of the task.
        folder: Where the index is kept.
    """

    def __init__(
        self, shared: Shared, source: Source, *, intake: Intake, task: str, folder: Path
    ) -> None:
        self.view, self.plan = shared.view, shared.plan
        self.arc, self.intake, self.task, self.folder = source.arc, intake, task, folder
        self.codec = shared.codec(self.arc.name)
        self.spread = Spread(self.arc, self.plan.partition_count(self.arc.name))
        self._index: Index | None = None
        self.full = ""
        """Why nothing can be written to the index; "" if it can."""
        self.is_behind = False
        """Whether the index lacks what was committed to Kafka."""

    @property
    def index(self) -> Index:
        """The index of this life."""
        assert self._index is not None
        return self._index

    def open(self, report: Report) -> Iterator[bool]:
        """Bring the index up to what the task reported, or leave it behind if there is no room.

        Raises:
            LostIndexError: If it is lost, and so is what the arc held.
            FullIndexError: If there is no room for a first one.
        """
        label = f"{self.codec.topic} {self.task} {self.plan.shape}"
        self._index = index = Index(self.folder, label=label)
        if index.is_new and report.done < 0:
            index.begin(put=([], []), delete=[], done=-1, positions={})
            index.commit()
        elif index.is_new and not self.arc.is_connection_point:
            raise LostIndexError(
                f"{self.task}: its index is lost, and source {self.arc.name!r} keeps no history "
                'to read it from again; put the state folder back, or give the source keep="..."'
            )
        self.is_behind = index.done != report.done
        if self.is_behind:
            yield from self.catch_up(report)

    def catch_up(self, report: Report) -> Iterator[bool]:
        """Read what was committed since the index was last brought up to date.

        It stays behind if there is no room.
        """
        index = self.index
        since, found, cluster = index.positions, [self.codec.empty], self.view.cluster
        reached: dict[TopicPartition, int] = {}
        for partition in range(self.spread.partition_count):
            place = TopicPartition(self.codec.topic, partition)
            reached[place] = cluster.end(place)
            there = yield from history(cluster, self.codec, place, since.get(place, 0))
            own = there.filter((pl.col("task") == self.task) & (pl.col("epoch") > index.done))
            found.append(self.view.believed(own))
        # A tuple that moved between partitions was deleted in one and inserted in the other.
        last = frames.last(pl.concat(found), self.arc.identity)
        with suppress(FullIndexError), self._writing():
            self.intake.change(index, last, done=report.done, positions=reached)
            self._commit()

    def judge(self, given: pl.DataFrame) -> Taken:
        """Return what a batch of source revisions changes; see `reconcile.take`."""
        return self.intake.judge(self.index, given)

    def change(self, taken: Taken, *, epoch: int, report: Report) -> list[Emission]:
        """Make the changes of an epoch in the index, until `commit`; return them for the arc.

        Args:
            taken: The changes.
            epoch: The epoch.
            report: The newest report: the index is read again from where it ends.

        Raises:
            FullIndexError: If there is no room for them.
        """
        ends = {place: offset for place, (offset, _) in report.ends.items()}
        positions = self.index.positions | ends
        with self._writing():
            self.intake.change(
                self.index, taken.revisions, keys=taken.keys, done=epoch, positions=positions
            )
        return self.spread.emissions(taken.revisions, epoch)

    def commit(self) -> None:
        """Keep the changes: they are committed to Kafka. Without room the index falls behind."""
        with suppress(FullIndexError), self._writing():
            self.is_behind = True
            self._commit()

    def _commit(self) -> None:
        self.index.commit()
        self.is_behind = False
        if self.full:
            log.warning("%s: there is room again, it goes on", self.task)
            self.full = ""

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say once that the disk is full."""
        try:
            yield
        except FullIndexError as error:
            if not self.full:
                log.error("%s takes nothing in until there is room: %s", self.task, error)
            self.full = str(error)
            raise

    def close(self) -> None:
        """Undo what is not committed and give the files back; safe to call twice."""
        if self._index is not None:
            self._index.close()
