"""The ingest task: reads one partition of a user's topic and writes the source's arc.

It stamps each batch with an epoch: the largest of the other ingest tasks, if that is after its own
last one, else one by the clock. The clock only picks a number, the reports give the order. For a
rekeyed source it only decodes, and passes the records on to the owners of their identities
(`owner_task`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl

from errata.processors.arcs.partitioner import Emission
from errata.processors.compile.sources_and_sinks import NEWEST_MS, originals
from errata.processors.envelopes.batch import ROW, Decoded, Refusal
from errata.processors.ingest.held_tuples import HeldTuples
from errata.processors.ingest.identity_index import DamagedIndexError, FullIndexError
from errata.processors.ingest.intake import NEWEST, Intake, owners, refuse_ahead
from errata.processors.ingest.stamping_task import (
    StampingTask,
    believed,
    first_positions,
    put_back_to,
)
from errata.processors.plan.arc_name import exchange_of
from errata.processors.plan.topology import MAX_AHEAD_MS, Source
from errata.processors.tasks import lost_records
from errata.processors.tasks.dead_letters import dead_letters_of_records, tally_refusals
from errata.processors.tasks.lost_records import Loss
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import (
    FOR_REGISTRY,
    FOR_ROOM,
    FOREVER,
    IDLE,
    NEVER,
)
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.topics.cluster import ClusterError, Reader, Records, TopicPartition
from errata.topics.registry import RegistryAwayError

ROWS_A_BATCH = 50_000


class IngestTask(StampingTask):
    """Ingests one partition of a source's topic.

    Args:
        shared: State shared by the tasks of the process.
        source: The source.
        partition: Partition of the user's topic.
        folder: Folder of its index.
        clock_ms: The wall clock.
        epoch_of: Returns the epoch to stamp with; input is then stamped at once. If None, the
            clock picks the epoch, at intervals.
        certain_ms: A watermark that is ahead of the clock by more may be wrong; None: none is.
    """

    def __init__(
        self,
        shared: Shared,
        source: Source,
        *,
        partition: int,
        folder: Path,
        clock_ms: Callable[[], int],
        epoch_of: Callable[[], int] | None = None,
        certain_ms: int | None = MAX_AHEAD_MS,
    ) -> None:
        arc = source.arc
        output = exchange_of(arc.name) if source.rekey else arc.name
        super().__init__(
            shared,
            source,
            partition=partition,
            outputs=(output,),
            clock_ms=clock_ms,
            epoch_of=epoch_of,
        )
        self.certain_ms = certain_ms
        self.place = TopicPartition(source.topic, partition)
        self.intake = Intake(
            source, shared.codec(arc.name), reach_ms=shared.plan.reach_ms.get(arc.name)
        )
        self.held_tuples: HeldTuples | None = None
        if not source.rekey:
            self.held_tuples = HeldTuples(
                shared,
                source,
                intake=self.intake,
                task=self.name,
                input=self.place,
                folder=folder,
                again=self.again,
            )
        self.reader: Reader | None = None
        self.rows_a_batch = ROWS_A_BATCH

    def close(self) -> None:
        """Close all connections and files."""
        if self.reader is not None:
            self.reader.close()
        if self.held_tuples is not None:
            self.held_tuples.close()
        super().close()

    # ---------------------------------------------------------------- a new attempt

    def first_positions(self) -> dict[TopicPartition, int]:
        """Return where a first attempt begins to read."""
        return first_positions(self.source, self.place, self.cluster)

    def start(self) -> Iterator[bool]:
        """Catch the index up with the arc, and resume reading at the reported offset."""
        self.wait("")
        if self.held_tuples is not None:
            yield from self.checking(self.held_tuples.open(self.report))
            self.wait(self.held_tuples.full)
        resume = self.report.resume.get(self.place, 0)
        if self.held_tuples is not None and not self.held_tuples.is_behind:
            resume = self.held_tuples.position(self.report)
        self.reader = self.cluster.reader({self.place: resume})
        self.held: list[Records] = []
        self.ahead: Decoded | None = None
        self.failed: ClusterError | None = None
        self.looks_ahead = True
        self.stamped_ms = self.last_record_ms = self.clock_ms()
        self.newest_ms = self.report.watermark
        yield True

    def require_restorable(self, lost: Sequence[Loss]) -> None:
        """Check that the arc keeps its history."""
        lost_records.require_history(self.shared, lost, self.outputs)

    # ---------------------------------------------------------------- a step

    def step(self) -> Iterator[bool]:
        """Stamp and commit a batch; without one, follow the epochs of the other ingest tasks."""
        self.view.poll()
        now = self.clock_ms()
        self.last_record_ms = min(self.last_record_ms, now)  # the clock may be set back
        if self.held_tuples is not None:
            self.held_tuples.remove_expired(self.report, now_ms=now)
        self._read(now)
        is_lowered = self._put_back() is not None
        busy = bool(self.held) or self._has_end() or self._falls_idle(now) or is_lowered
        busy = busy or self._is_awaited(now)
        behind = self.held_tuples is not None and self.held_tuples.is_behind
        busy &= not self.is_waiting
        newest = self.view.newest_epoch()
        due = self._is_due(now) or self._has_end() or is_lowered
        if behind and not self.is_waiting:
            yield from self._catch_up()
        elif self.has_lost_records and not behind:
            yield from self._restore(max(self.epoch_of(), self.report.done + 1, newest))
        elif busy and (due or self._is_full()):
            yield from self._take(self._next_epoch(newest), now)
        elif newest > self.report.done and not busy:
            # Follow the peers' epochs, never exceed them: two idle tasks would push each other on.
            yield from self.commit([], replace(self.report, done=newest))
        elif behind:
            yield False  # the index must first read the deletes that tombstones would remove
        else:
            yield from self.compaction.write_tombstones()

    def _read(self, now: int) -> None:
        assert self.reader is not None
        if self.failed is not None:
            raise self.failed
        end = 0 if self.paced else self.cluster.end(self.place)
        while not self._is_full() or self.reader.position(self.place) < end:
            limit = self.rows_a_batch - self._rows() % self.rows_a_batch
            for records in self.reader.poll(limit=limit):
                self.held.append(records)
                self.last_record_ms = now
            if self.reader.position(self.place) >= end:
                break

    def _rows(self) -> int:
        return sum(map(len, self.held))

    def _is_full(self) -> bool:
        return self._rows() >= self.rows_a_batch

    def _look_ahead(self) -> bool:
        """Read and decode the next batch, if it is a full one, while a commit waits for brokers.

        A fault of the reader is raised by the next step: the commit does not depend on it.

        Returns:
            Whether there was such a batch.
        """
        looks = self.paced and self.looks_ahead
        if not looks or self.failed is not None or self.ahead is not None:
            return False
        try:
            self._read(self.clock_ms())
            if not self._is_full():
                return False
            self.ahead = self._decode()
        except RegistryAwayError:
            self.looks_ahead = False  # each request may take seconds: the commit must not wait
            return False
        except ClusterError as error:
            self.failed = error
        return True

    def _decode(self) -> Decoded:
        """Return the revisions of the held records."""
        values = list(chain.from_iterable(records.values for records in self.held))
        keys = list(chain.from_iterable(records.keys for records in self.held))
        return self.intake.decode(values, keys)

    # ---------------------------------------------------------------- watermarks

    def _has_end(self) -> bool:
        """Whether the declared end of the source is reached and not yet reported."""
        end = self.view.ends.get(self.arc.name, {}).get(self.place.partition)
        is_reported = self.report.watermarks and self.report.watermarks[-1][1] == FOREVER
        if end is None or is_reported or self.reader is None:
            return False
        return self.reader.position(self.place) >= end

    def _falls_idle(self, now: int) -> bool:
        after = self.source.idle_after_ms
        if after is None or self.held or now - self.last_record_ms < after:
            return False
        return not self.report.watermarks or self.report.watermarks[-1][1] not in (IDLE, FOREVER)

    def _put_back(self) -> int | None:
        return put_back_to(self.view, self.arc.name, self.report)

    # ---------------------------------------------------------------- a batch

    def _take(self, epoch: int, now: int) -> Iterator[bool]:
        """Process the held records as one epoch."""
        assert self.reader is not None
        held, idle, ends = self.held, self._falls_idle(now), self._has_end()
        put_back = self._put_back()
        if put_back is not None:
            self.newest_ms = put_back
        try:
            decoded = self._decode() if self.ahead is None else self.ahead
            decoded = refuse_ahead(decoded, self.source, held, now_ms=now)
            if self.held_tuples is not None:
                newest = by_column.constant(self.newest_ms, decoded.frame.height, pl.Int64)
                revisions = by_column.beside(decoded.frame, newest.alias(NEWEST))
                reconciled = self.held_tuples.reconcile(revisions)
                emissions = self.held_tuples.change(
                    reconciled,
                    epoch=epoch,
                    report=self.report,
                    resume=self.reader.position(self.place),
                )
        except DamagedIndexError as error:
            assert self.held_tuples is not None
            self.held_tuples.lose(error)
            yield True
            return
        except (RegistryAwayError, FullIndexError) as error:
            # These records and later ones wait; epochs advance as if nothing had arrived.
            is_away = isinstance(error, RegistryAwayError)
            self.wait(str(error), FOR_REGISTRY if is_away else FOR_ROOM)
            yield False
            return
        self.held, self.ahead = [], None
        refused, counts = list(decoded.refused), Counter(self.report.counts)
        if self.held_tuples is None:
            emissions = self._forward(decoded.frame, held, epoch)
            at = decoded.frame[frames.AFTER + self.arc.event_time]  # null for deletes
            newest_ms: int | None = at.max()  # type: ignore[assignment]
        else:
            refusals = reconciled.refused.select(ROW, "reason", "detail")
            refused += [Refusal(*row) for row in refusals.iter_rows()]
            newest_ms = reconciled.newest_ms
            counts.update(reconciled.counts)
        counts.update(read=sum(map(len, held)), passed=decoded.passed)
        counts.update(tally_refusals(refused))
        if newest_ms is not None:
            self.newest_ms = max(self.newest_ms, newest_ms - self.source.lateness_ms)
        last_watermark = self.report.watermarks[-1][1] if self.report.watermarks else NEVER
        idle |= last_watermark == IDLE and not held
        watermark = FOREVER if ends else IDLE if idle else self.newest_ms
        if last_watermark == FOREVER:
            watermark = FOREVER
        pairs, floors = self._pairs(epoch, watermark, falls=put_back is not None)
        report = replace(
            self.report,
            done=epoch,
            watermark=self.newest_ms,
            watermarks=pairs,
            floors=floors,
            resume={self.place: self.reader.position(self.place)},
            counts=dict(counts),
            believed=believed(
                self.newest_ms,
                before_ms=self.report.trusted_ms if put_back is None else put_back,
                now_ms=now,
                certain_ms=self.certain_ms,
            ),
            lowered=self.report.lowered if put_back is None else epoch,
        )
        dead_letters = dead_letters_of_records(
            self.shared,
            refused,
            originals(held if refused else []),
            topic=self.place.topic,
            report=self.report,
            epoch=epoch,
        )
        self.looks_ahead = True
        for is_busy in self.commit(emissions, report, records=dead_letters):
            yield is_busy or self._look_ahead()
        self.wait("")
        if self.held_tuples is not None:
            self.held_tuples.commit()
            self.wait(self.held_tuples.full)
        self.stamped_ms = now
        yield True

    def _catch_up(self) -> Iterator[bool]:
        """Catch the index up with the arc, after the disk was full."""
        assert self.held_tuples is not None
        yield from self.checking(self.held_tuples.catch_up(self.report))
        self.wait(self.held_tuples.full)
        yield not self.waits_for

    def _restore(self, epoch: int) -> Iterator[bool]:
        """Write the records again that the brokers have lost, in an epoch of their own."""
        assert self.held_tuples is not None
        emissions = yield from self.checking(self.held_tuples.restored(self.report, epoch=epoch))
        resume = {self.place: self.held_tuples.position(self.report)}
        report = replace(self.report, done=epoch, rebuilt=epoch, resume=resume)
        yield from self.commit(emissions, report)
        self.held_tuples.commit()
        self.wait(self.held_tuples.full)

    def _forward(self, given: pl.DataFrame, held: list[Records], epoch: int) -> list[Emission]:
        """Return the records of these revisions, each addressed to the owners of its identities."""
        if given.is_empty():
            return []
        (exchange,) = self.outputs
        owner = owners(given, self.plan.placement.partitions[exchange]).alias("owner")
        where = given.select(ROW, owner).unique(maintain_order=True)  # two if the identity changes
        records = originals(held)[where[ROW]].rename(lambda name: frames.AFTER + name)
        inserts = records.with_columns(
            pl.lit(frames.INSERT, pl.UInt8).alias("op"),
            pl.lit(self.newest_ms, pl.Int64).alias(frames.AFTER + NEWEST_MS),
        )
        nothing = frames.none(self.plan.topology.arcs[exchange].fields)
        inserts = pl.concat([nothing, inserts], how="diagonal")
        return [Emission(exchange, epoch, inserts, where["owner"])]
