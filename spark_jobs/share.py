"""What one share of the groups does in a batch: states in, tuples in, states and revisions out.

Pure: Spark, its state store and Kafka are not visible from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from processors.boxes.aggregate import Aggregate
from processors.boxes.answers import Need, Outcome
from processors.boxes.difference import difference
from processors.boxes.sliding import SlidingAggregate
from schemas import revisions as frames
from schemas.fields import physical
from spark_jobs.blocks import SIGN, Shares
from spark_jobs.epochs import Batch
from spark_jobs.job import Job

Ask = Callable[[Need, Batch], pl.DataFrame]
"""Returns the inputs that a box needs, at least."""


@dataclass(frozen=True)
class Done:
    """What a batch gave to one share.

    Args:
        states: To keep.
        changed: Whether they differ from those before.
        revisions: Of the job's arc.
        counts: Running totals to add.
    """

    states: pl.DataFrame
    changed: bool
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Share:
    """The groups of one bucket in the windows of one slab.

    Args:
        job: The job.
        bucket: Number of the bucket.
        slab: Number of the slab.
        ask: How what the states can't tell is replayed.
    """

    job: Job
    bucket: int
    slab: int
    ask: Ask

    @property
    def box(self) -> Aggregate:
        """The aggregate, over the windows of the slab only."""
        return replace(self.job.box, window=self.job.slabs.within(self.slab))

    def no_tuples(self) -> pl.DataFrame:
        """Return no tuples, with the columns of blocks."""
        fields = self.job.box.input.fields
        columns = {name: fields[name].dtype for name in Shares(self.job).columns}
        return pl.DataFrame(schema={**columns, SIGN: pl.Int8()})

    def no_results(self) -> pl.DataFrame:
        """Return no results, with the columns of blocks."""
        return pl.DataFrame(schema=physical(self.job.box.arc.fields))

    def go_on(self, batch: Batch, states: pl.DataFrame | None, tuples: pl.DataFrame) -> Done:
        """Take a batch that follows what the states are of.

        Args:
            batch: The batch.
            states: Those kept; None if there are none.
            tuples: What leaves and enters, by the column `SIGN`.
        """
        box = self.box
        leaving, entering = (tuples.filter(pl.col(SIGN) == sign).drop(SIGN) for sign in (-1, 1))
        kept = box.no_states() if states is None else states
        run = box.move(leaving, entering, states=kept, wm_before=batch.wm_before, wm=batch.wm)
        try:
            need = next(run)
            while True:
                need = run.send(self.ask(need, batch))
        except StopIteration as stop:
            outcome: Outcome = stop.value
        after = self._near(outcome.live.states)
        changed = tuples.height > 0 or after.height != kept.height
        return Done(after, changed, self._own(outcome.revisions), outcome.counts)

    def start(self, batch: Batch, tuples: pl.DataFrame, emitted: pl.DataFrame) -> Done:
        """Make states of the whole content; give the difference to what was emitted.

        Args:
            batch: The batch.
            tuples: All that the input holds.
            emitted: Results emitted before, those of a lost state say.
        """
        box, arc = self.box, self.job.box.arc
        content = tuples.drop(SIGN)
        made = self._in_slab(box.recompute(content, wm=batch.wm), "")
        states = self._near(box.restore(content, wm=batch.wm).states)
        return Done(states, True, difference(arc, emitted, made))

    def _own(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of windows in the slab: sliding ones end in the next one too."""
        if not isinstance(self.job.box, SlidingAggregate):
            return revisions
        before = self._in_slab(revisions, frames.BEFORE)
        after = self._in_slab(revisions.filter(pl.col("op") == frames.INSERT), frames.AFTER)
        return pl.concat([before.filter(pl.col("op") != frames.INSERT), after])

    def _in_slab(self, frame: pl.DataFrame, prefix: str) -> pl.DataFrame:
        from_ms, to_ms = self.job.slabs.bounds(self.slab)
        start = pl.col(prefix + self.job.box.start)
        return frame.filter((start >= from_ms) & (start < to_ms))

    def _near(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the states that windows of the slab are made of."""
        if not isinstance(self.job.box, SlidingAggregate):
            return states
        from_ms, to_ms = self.job.slabs.bounds(self.slab)
        start = pl.col(self.job.box.start)
        return states.filter((start > from_ms - self.job.box.window.extent_ms) & (start < to_ms))
