"""The owner task of a rekeyed source: reads one partition of its exchange, writes the source's arc.

Records of one identity may lie in any partition of the user's topic. Ingest tasks pass them on
verbatim to the task that owns the identity. It processes the records of each epoch in the order of
partition and offset, as if they came from one partition, and is the only writer of its identities.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.compile.sources_and_sinks import NEWEST_MS
from errata.processors.envelopes.batch import ROW, Refusal
from errata.processors.ingest.held_tuples import HeldTuples
from errata.processors.ingest.identity_index import DamagedIndexError, FullIndexError
from errata.processors.ingest.intake import NEWEST, Intake, owners
from errata.processors.plan.arc_name import exchange_of
from errata.processors.plan.topology import Source
from errata.processors.tasks import lost_records
from errata.processors.tasks.dead_letters import dead_letters_of_records, tally_refusals
from errata.processors.tasks.lost_records import Loss
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import FOR_REGISTRY, FOR_ROOM
from errata.processors.wire.task_id import ScopeId
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.topics.cluster import TopicPartition
from errata.topics.registry import RegistryAwayError


class OwnerTask(Task):
    """Ingests the records of the identities that it owns.

    Args:
        shared: State shared by the tasks of the process.
        source: The rekeyed source.
        partition: Partition of the source's exchange.
        folder: Folder of its index.
    """

    def __init__(self, shared: Shared, source: Source, *, partition: int, folder: Path) -> None:
        arc = source.arc
        super().__init__(shared, ScopeId.of_owners(arc.name).task(partition), outputs=(arc.name,))
        self.source, self.codec = source, shared.codec(exchange_of(arc.name))
        self.intake = Intake(
            source, shared.codec(arc.name), reach_ms=shared.plan.reach_ms.get(arc.name)
        )
        self.held_tuples = HeldTuples(
            shared,
            source,
            intake=self.intake,
            task=self.name,
            folder=folder,
            again=self.again,
        )
        self.input: ArcInput | None = None
        self.foreign = ForeignRecords()

    def close(self) -> None:
        """Close all connections and files."""
        if self.input is not None:
            self.input.close()
        self.held_tuples.close()
        super().close()

    def start(self) -> Iterator[bool]:
        """Catch the index up with the arc, and resume reading at the reported offset."""
        yield from self.checking(self.held_tuples.open(self.report))
        self.wait(self.held_tuples.full)
        place = TopicPartition(self.codec.topic, self.partition)
        self.input = ArcInput(
            self.view,
            self.codec,
            self.partition,
            done=self.report.done,
            resume=self.report.resume.get(place, 0),
            foreign=self.foreign,
        )
        yield True

    def require_restorable(self, lost: Sequence[Loss]) -> None:
        """Check that the arc keeps its history."""
        lost_records.require_history(self.shared, lost, self.outputs)

    def step(self) -> Iterator[bool]:
        """Process and commit the oldest complete epoch."""
        assert self.input is not None
        self.view.poll()
        self.held_tuples.remove_expired(self.report, now_ms=time.time_ns() // 1_000_000)
        self.input.poll()
        frontier = self.input.frontier()
        epochs = self.input.epochs(frontier)
        if self.held_tuples.is_behind and not self.is_waiting:
            yield from self.checking(self.held_tuples.catch_up(self.report))
            self.wait(self.held_tuples.full)
            yield not self.waits_for
        elif self.held_tuples.is_behind:
            yield False  # the index must first read the deletes that tombstones would remove
        elif epochs and not self.is_waiting:
            yield from self._take(self.input, epochs[0])
        elif self.has_lost_records and frontier >= self.restored_from:
            yield from self._restore(self.input, frontier)
        else:
            yield from self.compaction.write_tombstones()

    def _take(self, source: ArcInput, epoch: int) -> Iterator[bool]:
        """Process one epoch."""
        passed = frames.entering(source.take(epoch), list(self.codec.arc.fields))
        passed = passed.sort("partition", "offset")
        try:
            rows, revisions, refused = self._owned_revisions(passed)
            reconciled = self.held_tuples.reconcile(revisions)
            emissions = self.held_tuples.change(
                reconciled, epoch=epoch, report=self.report, resume=None
            )
        except DamagedIndexError as error:
            self.held_tuples.lose(error)
            yield True
            return
        except (RegistryAwayError, FullIndexError) as error:
            is_away = isinstance(error, RegistryAwayError)
            self.wait(str(error), FOR_REGISTRY if is_away else FOR_ROOM)
            yield False
            return
        refusals = by_column.beside(reconciled.refused, rows[reconciled.refused[ROW]])
        refused += [Refusal(*row) for row in refusals.unique(ROW, keep="first").iter_rows()]
        dead_letters = dead_letters_of_records(
            self.shared,
            refused,
            passed.drop(NEWEST_MS),
            topic=self.source.topic,
            report=self.report,
            epoch=epoch,
        )
        counts = Counter(self.report.counts)
        counts.update(reconciled.counts)
        counts.update(tally_refusals(refused))
        counts.update(self.foreign.tally())
        resume = {source.place: source.drop(epoch)}
        report = replace(self.report, done=epoch, resume=resume, counts=dict(counts))
        yield from self.commit(emissions, report, records=dead_letters)
        self.held_tuples.commit()
        self.wait(self.held_tuples.full)

    def _restore(self, source: ArcInput, epoch: int) -> Iterator[bool]:
        """Write the records again that the brokers have lost, in an epoch without input."""
        emissions = yield from self.checking(self.held_tuples.restored(self.report, epoch=epoch))
        resume = {source.place: source.drop(epoch)}
        yield from self.commit(
            emissions, replace(self.report, done=epoch, rebuilt=epoch, resume=resume)
        )
        self.held_tuples.commit()
        self.wait(self.held_tuples.full)

    def _owned_revisions(
        self, passed: pl.DataFrame
    ) -> tuple[pl.Series, pl.DataFrame, list[Refusal]]:
        """Return the revisions of own identities, the row of each in `passed`, and the refusals.

        A record that changes an identity becomes two revisions, which may have different owners.
        Each is reconciled by itself, even with one owner: the result must not depend on the number
        of partitions.
        """
        decoded = self.intake.decode(passed["value"].to_list(), passed["key"].to_list())
        places = owners(decoded.frame, self.plan.placement.partitions[self.codec.arc.name])
        own = by_column.kept(decoded.frame, places == self.partition)
        rows = own[ROW]
        revisions = by_column.beside(
            own,
            pl.int_range(own.height, dtype=pl.Int64, eager=True).alias(ROW),
            passed[NEWEST_MS][rows].alias(NEWEST),
        )
        return rows, revisions, decoded.refused
