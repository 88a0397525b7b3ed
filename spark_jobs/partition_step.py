"""What a step does in a batch in one partition: revisions in, revisions out.

Its boxes run as in a task of Errata's processes, but the history that they need is in the states:
the tuples of each arc that a box may ask for, by the fields by which it asks. What is live between
batches is there too, by group: a batch reads that of the groups that it touches, and writes what it
changes. Pure: does not depend on Spark, its state store or Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from errata.processors.arcs.partitioner import Spread
from errata.processors.boxes.base import RESULTS as OWN_RESULTS
from errata.processors.boxes.base import Box, HistoryInput, Live, Need
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.tasks import rebuild
from errata.processors.tasks.scope_run import Memory, OwnRevisions, ScopeRun
from errata.processors.wire.replay import unpack
from errata.processors.wire.report import CountKey
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.routing import (
    RESULTS,
    TUPLES,
    Refusals,
    Row,
    StepResult,
    packed_refusals,
)
from errata.spark_jobs.state_map import PLACE, PLACE_BITS, Blobs, Maps, StateMap, changed_rows
from errata.spark_jobs.steps import Step

_SLAB = 0
"""A box may ask for tuples of any age: there is one range of event time."""
_MAY_KEEP_BACK = Live(kept_back=1)
"""How many results a box keeps back is in its states only: it always looks."""


class Histories:
    """The tuples that a box may ask for, of one of the arcs that it reads.

    Args:
        blobs: Where they are kept.
        read: The arc, and the fields by which the box asks.
        names: These fields' names in the ranges of a need.
        first: The input of the box that the names are those of.
    """

    def __init__(
        self, blobs: Blobs, read: HistoryInput, *, names: Sequence[str], first: Arc
    ) -> None:
        self.arc = read.arc
        self._spread = Spread(replace(read.arc, partition_by=read.by), 1 << PLACE_BITS)
        fields = {name: first.fields[name].nullable for name in names}  # another input's may be
        asked = replace(first, fields={**first.fields, **fields}, partition_by=tuple(names))
        self._asked, self._by = Spread(asked, 1 << PLACE_BITS), {*names}
        self._names = list(dict.fromkeys([*_keys(read), *read.columns]))
        nothing = pl.DataFrame(schema={n: self.arc.fields[n].dtype for n in self._names})
        self._tuples = StateMap(blobs, self._placed(nothing), _keys(read))

    def _placed(self, tuples: pl.DataFrame) -> pl.DataFrame:
        return by_column.beside(tuples, self._spread.places(tuples).alias(PLACE))

    def apply(self, revisions: pl.DataFrame) -> None:
        """Keep what revisions of the arc leave; at most one for each identity."""
        leaving = frames.leaving(revisions, self._names)
        gone = self._placed(leaving).select(*self._tuples.keys, PLACE)
        entering = self._placed(frames.entering(revisions, self._names))
        self._tuples.write(_SLAB, entering, gone, kept=_all_of)

    def of(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """Return at least the tuples of some ranges; all, if these name no groups."""
        is_of_all = not self._by <= {*ranges.columns}
        places = None if is_of_all else self._asked.places(ranges).unique()
        return self._tuples.read(_SLAB, places).drop(PLACE)


def _keys(read: HistoryInput) -> list[str]:
    """Return what identifies a row: a tuple that moves to another place is another row there."""
    return list(dict.fromkeys([*read.arc.identity, *read.by]))


def _all_of(rows: pl.DataFrame) -> pl.Series:
    return pl.repeat(True, rows.height, dtype=pl.Boolean, eager=True)


class Lives:
    """What a box that depends on the order of tuples keeps between batches.

    Args:
        blobs: Where it is kept.
        box: The box.
    """

    def __init__(self, blobs: Blobs, box: Box) -> None:
        (read,) = box.history_inputs
        self.box, self.arc = box, read.arc
        self._spread = Spread(replace(read.arc, partition_by=read.by), 1 << PLACE_BITS)
        self._states = StateMap(blobs, self._placed(box.no_live().states), _keys(read))
        self._before: pl.DataFrame | None = None

    def _placed(self, states: pl.DataFrame) -> pl.DataFrame:
        return by_column.beside(states, self._spread.places(states).alias(PLACE))

    def waiting(self, batch: Batch) -> pl.Series:
        """Return the places of groups with tuples that the watermark passes in a batch."""

        def is_passed(states: pl.DataFrame) -> pl.Series:
            times = self.arc.event_times(states)
            return times.is_between(batch.wm_before, batch.wm, closed="left")

        return self._states.places(_SLAB, is_passed)

    def of(self, revisions: pl.DataFrame, waiting: pl.Series | None) -> Live:
        """Return what is kept of the groups of some revisions, and of some other places."""
        names = list(self.arc.fields)
        sides = frames.leaving(revisions, names), frames.entering(revisions, names)
        places = [self._spread.places(side) for side in sides]
        places += [] if waiting is None else [waiting]
        self._before = self._states.read(_SLAB, pl.concat(places).unique()).drop(PLACE)
        return replace(self.box.no_live(), states=self._before)

    def keep(self, states: pl.DataFrame) -> None:
        """Write what has changed of what `of` has returned; of all, if it was not called."""
        before, keys = self._before, self._states.keys
        before = states.clear() if before is None else before
        gone = before.join(states, on=keys, how="anti", nulls_equal=True)
        changed = self._placed(changed_rows(before, states, keys))
        removed = self._placed(gone).select(*keys, PLACE)
        self._states.write(_SLAB, changed, removed, kept=_all_of)


class KeyedRun(ScopeRun):
    """Runs the boxes of a step, which find the history that they need in the states.

    Args:
        plan: The whole plan, placed.
        step: The step.
        partition: The partition.
        maps: Where the states are kept.
    """

    def __init__(self, plan: CompiledPlan, step: Step, *, partition: int, maps: Maps) -> None:
        super().__init__(plan, step.scope, partition=partition)
        self.kept = {
            name: [
                Histories(maps(f"{name}.{number}"), read, names=_read(box).by, first=_read(box).arc)
                for number, read in enumerate(box.history_inputs)
            ]
            for name, box in self.boxes.items()
            if box.requests_history
        }
        self.lives = {
            name: Lives(maps(f"{name}.live"), box)
            for name, box in self.stateful.items()
            if box.no_live().states.width
        }
        self.own = {
            name: Histories(
                maps(f"{name}.own"), _own(box.arc), names=box.arc.identity, first=box.arc
            )
            for name, box in self.boxes.items()
            if box.reads_back
        }
        self.waiting = dict[str, pl.Series]()
        self._applied = set[str]()

    def memory(self, batch: Batch) -> Memory:
        """Return the memory before a batch: boxes load what they need of theirs when they run."""
        for name, lives in self.lives.items():
            if self.boxes[name].emits_on_close and batch.wm > batch.wm_before:
                places = lives.waiting(batch)
                if places.len():
                    self.waiting[name] = places
        return Memory(batch.after, batch.wm_before, {}, dict.fromkeys(self.waiting, batch.wm))

    def live_of(
        self, name: str, live: Mapping[str, Live], inputs: Sequence[pl.DataFrame]
    ) -> Live | None:
        """Return what a box has kept of the groups that it gets revisions of, or that wait."""
        if name in self.own:
            return _MAY_KEEP_BACK
        if name not in self.lives:
            return super().live_of(name, live, inputs)
        (revisions,) = inputs
        return self.lives[name].of(revisions, self.waiting.get(name))

    def keep(self, live: Mapping[str, Live]) -> None:
        """Keep what boxes have kept."""
        for name, lives in self.lives.items():
            if name in live:
                lives.keep(live[name].states)

    def apply(self, name: str, changes: Mapping[str, pl.DataFrame]) -> None:
        """Keep what changes of the inputs of a box, once."""
        if name in self.kept and name not in self._applied:
            self._applied.add(name)
            for each in self.kept[name]:
                if each.arc.name in changes:
                    each.apply(changes[each.arc.name])

    def histories(
        self, needs: Mapping[str, Need], own: OwnRevisions, counts: dict[str, int]
    ) -> Generator[list[ReplayQuery], list[pl.DataFrame], Iterable[tuple[str, list[pl.DataFrame]]]]:
        """Return what boxes need, from the states as of this epoch; yields nothing."""
        yield from ()
        answers = list[tuple[str, list[pl.DataFrame]]]()
        for name, need in needs.items():
            if need.kind == OWN_RESULTS:
                back = self.own[name].of(need.ranges)
                answers.append((name, [by_column.pick(back, self.boxes[name].arc.fields)]))
                continue
            self.apply(name, own.changes)
            answers.append((name, [each.of(need.ranges) for each in self.kept[name]]))
        return answers

    def apply_own(self, revisions: Mapping[str, pl.DataFrame]) -> None:
        """Keep what changes of the arcs of boxes that read their own back."""
        for name, back in self.own.items():
            if name in revisions:
                back.apply(revisions[name])


def _read(box: Box) -> HistoryInput:
    return box.history_inputs[0]


def _own(arc: Arc) -> HistoryInput:
    return HistoryInput(arc, arc.identity, list(arc.fields))


@dataclass(frozen=True)
class PartitionStep:
    """One partition of a step.

    Args:
        job: The job.
        step: The step.
        partition: The partition of its arcs.
        maps: Where the states are kept.
    """

    job: Job
    step: Step
    partition: int
    maps: Maps

    @cached_property
    def _run(self) -> KeyedRun:
        return KeyedRun(self.job.plan, self.step, partition=self.partition, maps=self.maps)

    def run(
        self, batch: Batch, rows: Iterable[Row]
    ) -> Generator[Need, Sequence[pl.DataFrame], Iterable[StepResult]]:
        """Process a batch; yields nothing.

        Args:
            batch: The batch; it follows the states.
            rows: Revisions of the inputs, and emitted results, in any order.
        """
        yield from ()
        found = defaultdict[tuple[int, str], list[Row]](list)
        for row in rows:
            found[row.kind, row.arc].append(row)

        def told(kind: int, arc: str, empty: pl.DataFrame) -> pl.DataFrame:
            in_order = sorted(found[kind, arc], key=lambda row: row.origin)
            return pl.concat([empty, *(unpack(row.block) for row in in_order)])

        arcs = self.job.plan.topology.arcs
        inputs = {a: told(TUPLES, a, frames.none(arcs[a].fields)) for a in self.step.inputs}
        if not batch.is_whole:
            return [self._processed(batch, inputs)]
        emitted = {
            box.arc.name: told(RESULTS, box.arc.name, _empty(box.arc)) for box in self.step.boxes
        }
        return [self._rebuilt(batch, inputs, emitted)]

    def _processed(self, batch: Batch, inputs: Mapping[str, pl.DataFrame]) -> StepResult:
        """Process the revisions of a batch as one epoch."""
        run = self._run
        steps = run.epoch(
            batch.epoch,
            inputs,
            memory=run.memory(batch),
            watermark=batch.wm,
            uncommitted={},
            committed=batch.after,
            settles=batch.settles > 0,
        )
        try:
            next(steps)
        except StopIteration as stop:
            result = stop.value
        else:
            raise AssertionError("a step on Spark sends no requests")
        for name in run.boxes:
            run.apply(name, result.revisions)
        run.apply_own(result.revisions)
        run.keep(result.memory.live)
        boxes = {n: r for n, r in result.revisions.items() if n in run.boxes}
        return self._result(batch, boxes, boxes, result.counts, result.refused)

    def _rebuilt(
        self,
        batch: Batch,
        inputs: Mapping[str, pl.DataFrame],
        emitted: Mapping[str, pl.DataFrame],
    ) -> StepResult:
        """Make the states anew; return the difference to what was emitted."""
        run, plan = self._run, self.job.plan
        contents = {
            arc: frames.entering(revisions, list(plan.topology.arcs[arc].fields))
            for arc, revisions in inputs.items()
        }
        recomputed, result = rebuild.recompute(
            plan, run.scope, contents, epoch=batch.epoch, watermark=batch.wm
        )
        inserted = {arc: frames.inserts(tuples) for arc, tuples in recomputed.items()}
        for name in run.boxes:
            run.apply(name, inserted)
        run.apply_own(inserted)
        run.keep(result.memory.live)
        written = {
            arc: rebuild.difference(
                run.boxes[arc].arc, tuples, recomputed[arc], settled=batch.settled_before
            )
            for arc, tuples in emitted.items()
            if arc in self.job.outputs
        }
        for arc, revisions in written.items():
            if (box := run.stateful.get(arc)) is not None:
                result.count(arc, box.count_results(revisions, wm_before=batch.wm_before))
        boxes = {arc: inserted[arc] for arc in run.boxes}
        return self._result(batch, boxes, written, result.counts, result.refused)

    def _result(
        self,
        batch: Batch,
        revisions: Mapping[str, pl.DataFrame],
        written: Mapping[str, pl.DataFrame],
        counts: Mapping[str, int],
        refused: Refusals,
    ) -> StepResult:
        letters = packed_refusals(self.job, batch, refused, partition=self.partition)
        return StepResult(
            {arc: rows for arc, rows in revisions.items() if self.job.readers[arc]},
            {arc: rows for arc, rows in written.items() if arc in self.job.outputs},
            {key: n for key, n in counts.items() if CountKey.parse(key).what != "refused"},
            list(letters),
        )


def _empty(arc: Arc) -> pl.DataFrame:
    return pl.DataFrame(schema={name: kind.dtype for name, kind in arc.fields.items()})
