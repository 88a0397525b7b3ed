"""What one part of a grouped step does in a batch: states and tuples in, states and revisions out.

Its share are the groups of some *places*, a hash of the group, in all windows. It keeps the windows
of each slab apart. Pure: does not depend on Spark, its state store or Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import polars as pl

from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.base import Need, Outcome, Refused
from errata.processors.tasks import rebuild
from errata.processors.wire.replay import unpack
from errata.processors.wire.report import NEVER, CountKey
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.fields import physical
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.routing import (
    RESULTS,
    SIGN,
    TUPLES,
    Row,
    Shares,
    StepResult,
    pack_dead_letters,
)
from errata.spark_jobs.spool import spooled
from errata.spark_jobs.state_map import PLACE, PLACE_BITS, Blobs, StateMap, changed_rows
from errata.spark_jobs.steps import Step

_ROW, _GONE = "@row", "@gone"


@dataclass(frozen=True)
class Share:
    """The groups of one writer.

    Args:
        job: The job.
        step: The step.
        blobs: Where their states are kept.
    """

    job: Job
    step: Step
    blobs: Blobs

    @property
    def box(self) -> Aggregate:
        """The aggregate."""
        return self.step.aggregate

    def run(
        self, batch: Batch, rows: Iterable[Row]
    ) -> Generator[Need, Sequence[pl.DataFrame], Iterable[StepResult]]:
        """Process a batch; yields needs for what the states don't hold, and is sent the tuples.

        Args:
            batch: The batch; it follows the states.
            rows: Tuples that leave and enter, and emitted results, in any order.
        """
        if batch.is_whole:
            return self.rebuild(batch, rows)  # part by part: all of them may not fit into memory
        tuples = (row for row in rows if row.kind == TUPLES)
        in_order = (row.block for row in sorted(tuples, key=lambda row: row.origin))
        result = yield from self.process(batch, in_order)
        return [] if result is None else [result]

    @cached_property
    def states(self) -> StateMap:
        """The states."""
        return StateMap(self.blobs, self._with_place(self.box.no_states()), self.box.keys)

    def no_tuples(self) -> pl.DataFrame:
        """Return an empty frame of tuples, with the columns of blocks."""
        fields = self.box.input.fields
        columns = {name: fields[name].dtype for name in self.box.columns_read}
        return self._with_place(pl.DataFrame(schema={**columns, SIGN: pl.Int8()}))

    def no_results(self) -> pl.DataFrame:
        """Return an empty frame of results, with the columns of blocks."""
        return self._with_place(pl.DataFrame(schema=physical(self.box.arc.fields)))

    def _with_place(self, empty: pl.DataFrame) -> pl.DataFrame:
        return empty.with_columns(pl.lit(0, pl.Int32).alias(PLACE))

    def process(
        self, batch: Batch, blocks: Iterable[bytes]
    ) -> Generator[Need, Sequence[pl.DataFrame], StepResult | None]:
        """Process a batch; yields a need for what the states don't hold, and is sent the tuples.

        Args:
            batch: The batch; it follows the states.
            blocks: Tuples that leave and enter, in the order of their origin.

        Returns:
            The result; None if there was nothing to do.
        """
        tuples = pl.concat([self.no_tuples(), *map(unpack, blocks)])
        box, states = self.box, self._states(batch, tuples)
        if tuples.is_empty() and states.is_empty():
            return None
        tuples = tuples.drop(PLACE)
        leaving, entering = (tuples.filter(pl.col(SIGN) == sign).drop(SIGN) for sign in (-1, 1))
        outcome = yield from box.move(
            leaving, entering, states=states, wm_before=batch.wm_before, wm=batch.wm
        )
        dead_letters = self._dead_letters(batch, outcome.refused)
        self._save(batch, states, outcome.live.states)
        return self._result(batch, outcome, outcome.revisions, dead_letters)

    def _result(
        self, batch: Batch, outcome: Outcome, written: pl.DataFrame, dead_letters: list[bytes]
    ) -> StepResult:
        """Return what is told of an outcome; its topic may get other revisions."""
        name = self.box.arc.name
        counts = {
            **outcome.counts, **self.box.count_results(written, wm_before=batch.wm_before)
        }  # fmt: skip
        return StepResult(
            {name: outcome.revisions},
            {name: written} if name in self.job.outputs else {},
            {str(CountKey(what, name)): n for what, n in counts.items()},
            dead_letters,
        )

    def rebuild(self, batch: Batch, rows: Iterable[Row]) -> Iterator[StepResult]:
        """Build states from the whole content; yield the difference to the emitted results.

        Windows whose tuples can no longer be revised are left unchanged: the topic may no longer
        hold their tuples. The groups of some places are in memory at once.

        Args:
            batch: The batch.
            rows: Tuples and emitted results, in any order.
        """
        with spooled(batch.parts, lambda rows: _part(rows[PLACE], batch.parts)) as spool:
            for row in rows:
                if row.kind in (TUPLES, RESULTS):
                    spool.add(unpack(row.block), kind=row.kind, origin=row.origin)
            for slab in self.states.slabs:
                self.states.drop(slab)
            for part in range(batch.parts):
                tuples = pl.concat([self.no_tuples(), *spool.take(part, kind=TUPLES)])
                emitted = pl.concat([self.no_results(), *spool.take(part, kind=RESULTS)])
                yield self.rebuild_part(batch, tuples.drop(PLACE), emitted.drop(PLACE))

    def _states(self, batch: Batch, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the states that the windows which may change or close are computed from."""
        box, slabs = self.box, self.step.slabs
        places = defaultdict[int, list[pl.Series]](list)

        def add(slab: int, found: pl.Series) -> None:
            for behind in slabs.behind(slab):
                places[behind].append(found)

        touching, numbers = slabs.touched(box.input.event_times(tuples))
        for (slab,), of_slab in parted(tuples.select(PLACE)[touching], numbers):
            add(slab, of_slab[PLACE])
        if not box.on_update:
            closes = partial(self._closes, batch)
            for slab in self.states.slabs:
                if slabs.may_close(slab, batch.wm_before, batch.wm):
                    add(slab, self.states.places(slab, closes))
        parts = [
            self.states.read(slab, pl.concat(places[slab]).unique()) for slab in sorted(places)
        ]
        states = pl.concat([self.states.nothing, *parts]).drop(PLACE)
        return by_column.kept(states, box.is_kept(states, batch.wm_before))

    def _closes(self, batch: Batch, states: pl.DataFrame) -> pl.Series:
        """Whether each state's window is closed by the batch's watermark."""
        return self.box.ends(states).is_between(batch.wm_before, batch.wm, closed="right")

    def _save(self, batch: Batch, before: pl.DataFrame, after: pl.DataFrame) -> None:
        """Write the states that are new or changed; forget those that are of no more use."""
        box, slabs = self.box, self.step.slabs

        def kept(states: pl.DataFrame) -> pl.Series:
            return box.is_kept(states, batch.wm)

        for slab in self.states.slabs:
            if slabs.is_past(slab, batch.wm - box.horizon_ms):
                self.states.drop(slab)
        gone = by_column.kept(before, kept(before))
        gone = gone.join(after, on=box.keys, how="anti", nulls_equal=True)
        both = pl.concat([gone, changed_rows(before, after, box.keys)])
        is_gone = pl.Series(_GONE, np.arange(both.height) < gone.height)
        placed = by_column.beside(Shares(self.job, self.step).placed(both), is_gone)
        for (slab,), part in parted(placed, slabs.of(both[box.start])):
            changed = by_column.kept(part, ~part[_GONE]).drop(_GONE)
            removed = by_column.kept(part, part[_GONE]).select(*box.keys, PLACE)
            self.states.write(slab, changed, removed, kept=kept)

    def rebuild_part(self, batch: Batch, tuples: pl.DataFrame, emitted: pl.DataFrame) -> StepResult:
        """Build the states of some groups; return the difference to their emitted results.

        Args:
            batch: The batch.
            tuples: All that the input holds of these groups.
            emitted: Results emitted before, for example those of lost states.
        """
        box, content = self.box, tuples.drop(SIGN)
        results, live, refused = box.begin(content, wm=batch.wm)
        dead_letters = self._dead_letters(batch, refused, settled=batch.settled_before)
        revised = rebuild.difference(box.arc, emitted, results, settled=batch.settled_before)
        self._save(batch, live.states.clear(), live.states)
        told = results if self.job.readers[box.arc.name] else results.clear()
        outcome = Outcome(live, frames.inserts(told.select(list(box.arc.fields))))
        return self._result(batch, outcome, revised, dead_letters)

    def _dead_letters(
        self, batch: Batch, refused: Sequence[Refused], *, settled: int = NEVER
    ) -> list[bytes]:
        """Return the dead letters of results that the aggregate refuses.

        Args:
            batch: The batch.
            refused: The results.
            settled: Of windows that ended by then nothing is new.
        """
        dead_letters, name = list[bytes](), self.box.arc.name
        spread = Spread(self.box.arc, self.job.plan.placement.partitions[name])
        for refusal in refused:
            results = refusal.tuples.with_row_index(_ROW)
            if not self.step.slabs.is_one:
                results = results.filter(self.box.ends(results) > settled)
            for (partition,), part in parted(results, spread.places(results)):
                dead_letters += pack_dead_letters(
                    self.job, batch, name, [refusal.only(part[_ROW])], partition=partition
                )
        return dead_letters


def _part(places: pl.Series, parts: int) -> pl.Series:
    """Return by place the part of the groups that it is in: a range of places."""
    return pl.Series(places.to_numpy().astype(np.int64) * parts >> PLACE_BITS)
