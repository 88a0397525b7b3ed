"""What one share of the groups does in a batch: states and tuples in, states and revisions out.

Pure: does not depend on Spark, its state store or Kafka.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.base import Need, Refused
from errata.processors.tasks import rebuild
from errata.processors.wire.replay import pack, unpack
from errata.processors.wire.report import NEVER
from errata.schemas import revisions as frames
from errata.schemas.fields import physical
from errata.spark_jobs.blocks import RESULTS, SIGN, TUPLES, pack_dead_letters
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job

_ROW = "@row"


@dataclass(frozen=True)
class ShareResult:
    """The result of a batch for one share.

    Args:
        states: The states to store.
        changed: Whether they differ from those before.
        revisions: Revisions of the job's arc.
        counts: Running totals to add.
        dead_letters: Blocks of dead letters.
    """

    states: pl.DataFrame
    changed: bool
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Sequence[bytes] = ()

    def packed(self) -> bytes | None:
        """Return the states in stored form; None for none."""
        return pack(self.states) if self.states.height else None

    def block(self) -> bytes:
        """Return the revisions as a block; empty for none."""
        return pack(self.revisions) if self.revisions.height else b""


@dataclass(frozen=True)
class Share:
    """Some groups, those of a bucket, in the windows of one slab.

    Args:
        job: The job.
        slab: Number of the slab.
    """

    job: Job
    slab: int

    @property
    def box(self) -> Aggregate:
        """The aggregate, over the windows of the slab only."""
        return replace(self.job.box, window=self.job.slabs.within(self.slab))

    def no_tuples(self) -> pl.DataFrame:
        """Return an empty frame of tuples, with the columns of blocks."""
        fields = self.job.box.input.fields
        columns = {name: fields[name].dtype for name in self.job.box.columns_read}
        return pl.DataFrame(schema={**columns, SIGN: pl.Int8()})

    def no_results(self) -> pl.DataFrame:
        """Return an empty frame of results, with the columns of blocks."""
        return pl.DataFrame(schema=physical(self.job.box.arc.fields))

    def process(
        self, batch: Batch, rows: Sequence[tuple[int, bytes]], states: bytes | None
    ) -> Generator[Need, Sequence[pl.DataFrame], ShareResult | None]:
        """Process a batch; yields a need for what the states don't hold, and is sent the tuples.

        Args:
            batch: The batch.
            rows: Kind and block of each row, in the order of their origin.
            states: The stored states, packed; None if there are none.

        Returns:
            The result; None if there was nothing to do.
        """
        tuples, emitted = (
            [unpack(block) for row_kind, block in rows if row_kind == kind]
            for kind in (TUPLES, RESULTS)
        )
        arrived = pl.concat([self.no_tuples(), *tuples])
        if batch.is_whole:
            before = pl.concat([self.no_results(), *emitted])
            return self.rebuild_states(batch, arrived, before) if tuples or emitted else None
        if states is None and not tuples:
            return None
        kept = self.box.no_states() if states is None else unpack(states)
        return (yield from self.revise(batch, kept, arrived))

    def revise(
        self, batch: Batch, states: pl.DataFrame, tuples: pl.DataFrame
    ) -> Generator[Need, Sequence[pl.DataFrame], ShareResult]:
        """Process a batch that follows the states; yields a need for what they don't hold.

        Args:
            batch: The batch.
            states: The stored states.
            tuples: The tuples that leave and enter, by the column `SIGN`.
        """
        box = self.box
        leaving, entering = (tuples.filter(pl.col(SIGN) == sign).drop(SIGN) for sign in (-1, 1))
        outcome = yield from box.move(
            leaving, entering, states=states, wm_before=batch.wm_before, wm=batch.wm
        )
        dead_letters = self._dead_letters(batch, outcome.refused)
        after = self._relevant_states(outcome.live.states)
        changed = tuples.height > 0 or after.height != states.height
        revisions = self._revisions_in_slab(outcome.revisions)
        counts = {**outcome.counts, **box.count_results(revisions, wm_before=batch.wm_before)}
        return ShareResult(after, changed, revisions, counts, dead_letters)

    def rebuild_states(
        self, batch: Batch, tuples: pl.DataFrame, emitted: pl.DataFrame
    ) -> ShareResult:
        """Build states from the whole content; return the difference to the emitted results.

        Windows whose tuples can no longer be revised are left unchanged: the topic may no longer
        hold their tuples.

        Args:
            batch: The batch.
            tuples: All that the input holds.
            emitted: Results emitted before, for example those of lost states.
        """
        box, arc, content = self.box, self.job.box.arc, tuples.drop(SIGN)
        results, live, refused = box.begin(content, wm=batch.wm)
        dead_letters = self._dead_letters(batch, refused, settled=batch.settled_before)
        computed, states = self._in_slab(results, ""), self._relevant_states(live.states)
        revised = rebuild.difference(arc, emitted, computed, settled=batch.settled_before)
        counts = box.count_results(revised, wm_before=batch.wm_before)
        return ShareResult(states, True, revised, counts, dead_letters)

    def _dead_letters(
        self, batch: Batch, refused: Sequence[Refused], *, settled: int = NEVER
    ) -> list[bytes]:
        """Return the dead letters of results that the aggregate refuses, in windows of the slab.

        Args:
            batch: The batch.
            refused: The results.
            settled: Of windows that ended by then nothing is new.
        """
        dead_letters, spread = list[bytes](), Spread(self.job.box.arc, self.job.partition_count)
        for refusal in refused:
            results = refusal.tuples.with_row_index(_ROW)
            if not self.job.slabs.is_one:
                results = self._in_slab(results, "")
                results = results.filter(self.box.ends(results) > settled)
            for (partition,), part in parted(results, spread.places(results)):
                dead_letters += pack_dead_letters(
                    self.job, batch, self.job.name, [refusal.only(part[_ROW])], partition=partition
                )
        return dead_letters

    def _revisions_in_slab(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of windows in the slab: sliding windows end in the next one too."""
        if not self.job.box.keeps_instants:
            return revisions
        before = self._in_slab(revisions, frames.BEFORE)
        after = self._in_slab(revisions.filter(pl.col("op") == frames.INSERT), frames.AFTER)
        return pl.concat([before.filter(pl.col("op") != frames.INSERT), after])

    def _in_slab(self, frame: pl.DataFrame, prefix: str) -> pl.DataFrame:
        from_ms, to_ms = self.job.slabs.bounds(self.slab)
        start = pl.col(prefix + self.job.box.start)
        return frame.filter((start >= from_ms) & (start < to_ms))

    def _relevant_states(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the states that the windows of the slab are computed from."""
        if not self.job.box.keeps_instants:
            return states
        from_ms, to_ms = self.job.slabs.bounds(self.slab)
        start = pl.col(self.job.box.start)
        return states.filter((start > from_ms - self.job.box.window.extent_ms) & (start < to_ms))
