"""The owner task of a rekeyed source: one partition of its exchange, into the source's arc.

Records of one identity lie anywhere in the user's topic; ingest tasks pass them on, as they are, to
the task that owns the identity. It takes every epoch's in the order of partition and offset, as if
they came from one partition, and alone writes what they make of the arc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.compile.originals import NEWEST_MS
from errata.processors.envelopes.checks import ROW, Refusal
from errata.processors.ingest.decoding import Intake, owners
from errata.processors.ingest.held_tuples import HeldTuples
from errata.processors.ingest.identity_index import FullIndexError
from errata.processors.ingest.reconcile import NEWEST
from errata.processors.plan.arc_name import exchange_of
from errata.processors.plan.source import Source
from errata.processors.tasks.dead_letters import letters, tally
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.task_id import ScopeId
from errata.schemas import revisions as frames
from errata.topics.cluster import TopicPartition
from errata.topics.registry import RegistryAwayError


class OwnerTask(Task):
    """Takes in the records of the identities that it owns.

    Args:
        shared: What its process shares.
        source: The rekeyed source.
        partition: Partition of the source's exchange.
        folder: Where its index is kept.
    """

    def __init__(self, shared: Shared, source: Source, *, partition: int, folder: Path) -> None:
        arc = source.arc
        super().__init__(shared, ScopeId.of_owners(arc.name).task(partition), outputs=(arc.name,))
        self.source, self.codec = source, shared.codec(exchange_of(arc.name))
        self.intake = Intake(source, shared.codec(arc.name))
        self.held_tuples = HeldTuples(
            shared, source, intake=self.intake, task=self.name, folder=folder
        )
        self.input: ArcInput | None = None

    def close(self) -> None:
        """Give all connections and files back."""
        if self.input is not None:
            self.input.close()
        self.held_tuples.close()
        super().close()

    def start(self) -> Iterator[bool]:
        """Bring the index up to the arc, and go on reading where the report says."""
        yield from self.held_tuples.open(self.report)
        self.wait(self.held_tuples.full)
        place = TopicPartition(self.codec.topic, self.partition)
        self.input = ArcInput(
            self.view,
            self.codec,
            self.partition,
            done=self.report.done,
            resume=self.report.resume.get(place, 0),
        )
        yield True

    def step(self) -> Iterator[bool]:
        """Take the oldest epoch that is complete, and commit it."""
        assert self.input is not None
        self.view.poll()
        self.input.poll()
        epochs = self.input.epochs(self.input.frontier())
        if self.held_tuples.is_behind and not self.is_waiting:
            yield from self.held_tuples.catch_up(self.report)
            self.wait(self.held_tuples.full)
            yield not self.waits
        elif self.held_tuples.is_behind:
            yield False  # it has yet to read the deletes that would be buried
        elif epochs and not self.is_waiting:
            yield from self._take(self.input, epochs[0])
        else:
            yield from self.compaction.write_tombstones()

    def _take(self, source: ArcInput, epoch: int) -> Iterator[bool]:
        """Process one epoch."""
        passed = frames.entering(source.take(epoch), list(self.codec.arc.fields))
        passed = passed.sort("partition", "offset")
        try:
            rows, given, refused = self._own(passed)
            taken = self.held_tuples.judge(given)
            emissions = self.held_tuples.change(taken, epoch=epoch, report=self.report)
        except (RegistryAwayError, FullIndexError) as error:
            self.wait(str(error))
            yield False
            return
        found = taken.refused.select(rows.gather(taken.refused[ROW]), "reason", "detail")
        refused += [Refusal(*row) for row in found.unique(ROW, keep="first").iter_rows()]
        dead = letters(
            self.shared,
            refused,
            passed.drop(NEWEST_MS),
            topic=self.source.topic,
            report=self.report,
            epoch=epoch,
        )
        counts = Counter(self.report.counts)
        counts.update(taken.counts)
        counts.update(tally(refused))
        resume = {source.place: source.drop(epoch)}
        report = replace(self.report, done=epoch, resume=resume, counts=dict(counts))
        yield from self.commit(emissions, report, records=dead)
        self.held_tuples.commit()
        self.wait(self.held_tuples.full)

    def _own(self, passed: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame, list[Refusal]]:
        """Return the revisions of own identities, and the place of each among what was passed on.

        A record that changes an identity is two revisions. They may have different owners, so each
        is judged by itself, also where they have the same: the result must not depend on how many
        partitions there are.
        """
        decoded = self.intake.decode(passed["value"].to_list(), passed["key"].to_list())
        places = owners(decoded.frame, self.plan.partition_count(self.codec.arc.name))
        own = decoded.frame.filter(places == self.partition)
        rows = own[ROW]
        given = own.with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW),
            passed[NEWEST_MS].gather(rows).alias(NEWEST),
        )
        return rows, given, decoded.refused
