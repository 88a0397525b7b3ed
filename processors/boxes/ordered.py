"""The base of boxes that depend on the order of a group's tuples.

The order is by event time, then by identity. It is total; null sorts below all values. The tuples
of a group have the *numbers* 0, 1, 2 ... in this order. The result for a tuple depends on its
number and on the `reach` tuples before it.

For each group the box keeps the tuples that are *open* (the watermark has not passed them), the
`reach` tuples before these, and the number of tuples before those. A revision that has `reach`
known tuples before it, or that is in a group whose tuples are all known, is computed from these.
For any other revision the box requests the whole group, and undoes the epoch's own revisions to get
the group as it was. Either way it emits the difference between the results before and after (L5).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.boxes.base import (
    INPUTS,
    WHY,
    Box,
    BoxSteps,
    Failures,
    HistoryInput,
    Live,
    Need,
    Outcome,
    Refused,
    dead_letters_for,
    difference,
    without_failures,
)
from errata.processors.boxes.matching import among
from errata.processors.boxes.modes import ADAPTIVE, DOWNSTREAM, UPSTREAM, Choice, ModeRequest
from errata.processors.boxes.states import number_rows
from errata.processors.declare.faults import Fault
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc

Numbers: TypeAlias = npt.NDArray[np.int64]

READ_AGAIN = "rereads a group from its beginning"
NO_RADIUS = "an insert or a delete renumbers all tuples that follow, so no radius bounds a revision"
NEVER_LEGAL = dict.fromkeys((UPSTREAM, DOWNSTREAM), NO_RADIUS)
"""Why neither of Borealis' modes is legal."""

FIRST, _GROUP, _KIND, _REQUESTED = "@first", "@group", "@kind", "@requested"
_LEAVING, _ENTERING, _KNOWN = range(3)


@dataclass(frozen=True)
class OrderedGroups:
    """Known tuples of some groups, each group's together and in order.

    Args:
        tuples: The tuples, each with the number of the first known tuple of its group.
        start: For each tuple the first row of its group.
        end: For each tuple the row after the last of its group.
    """

    tuples: pl.DataFrame
    start: Numbers
    end: Numbers

    @property
    def rows(self) -> Numbers:
        """The row of each tuple."""
        return np.arange(self.tuples.height)

    @property
    def position(self) -> Numbers:
        """The position of each tuple among the known tuples of its group, from 0."""
        return self.rows - self.start

    @property
    def first(self) -> Numbers:
        """For each tuple the number of the first known tuple of its group."""
        first: Numbers = self.tuples[FIRST].to_numpy()
        return first


class Ordered(Box):
    """A box that depends on the order of a group's tuples.

    Attributes:
        input: The arc it reads.
        by: Group fields.
    """

    input: Arc
    by: tuple[str, ...]

    @property
    @abstractmethod
    def reach(self) -> int:
        """How many preceding tuples a result reads; at least 1."""

    @property
    @abstractmethod
    def columns_read(self) -> list[str]:
        """The fields of its input that it reads."""

    @property
    def is_resident(self) -> bool:
        """Whether it keeps its whole input."""
        return False

    @abstractmethod
    def due_results(self, ordered: OrderedGroups, *, wm: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results due at a watermark that known tuples determine, and those left out.

        If all tuples of a group are known, these are all results of the group. The frame of results
        left out has their identity, the values that they are computed from, and the reason (`WHY`).
        """

    # ---------------------------------------------------------------- what it reads

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """Its input."""
        return [HistoryInput(self.input, self.by, self.columns_read)]

    @property
    def need(self) -> str:
        """What it needs if it requests history."""
        return "a connection point upstream to read the tuples of a group from, in order"

    def choose_mode(self, request: ModeRequest) -> Choice | Fault:
        """Return how it revises emitted results: there is only one way, unless it is resident.

        A mode requested for all aggregates does not apply to it.
        """
        return Choice(ADAPTIVE, ADAPTIVE, READ_AGAIN, illegal=NEVER_LEGAL)

    @property
    def extent_ms(self) -> int:
        """How far back in event time it requests history: the preceding tuple may have any age."""
        return FOREVER_MS

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the output for a whole collection, and what users' functions fail for."""
        (tuples,) = inputs
        results, failed_results = self.due_results(
            self._in_order(self._complete_groups(tuples)), wm=wm
        )
        refused = dead_letters_for(self.input.name, tuples, self.refused(tuples))
        return results, refused + self._result_dead_letters(failed_results)

    def _result_dead_letters(self, failed_results: pl.DataFrame) -> list[Refused]:
        """Return the dead letters for results that are left out."""
        if failed_results.is_empty():
            return []
        reasons = dict(enumerate(failed_results[WHY]))
        return dead_letters_for(self.arc.name, failed_results.select(self.arc.identity), reasons)

    def refused(self, tuples: pl.DataFrame) -> Failures:
        """Return by row why a tuple is not in the order: a user's function fails for it."""
        return {}

    def _accepted(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples that are in the order."""
        failures = self.refused(tuples)
        return tuples.filter(without_failures(failures, tuples.height)) if failures else tuples

    def _complete_groups(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples of whole groups; the first number of each group is 0."""
        return self._accepted(tuples).select(*self.columns_read, pl.lit(0, pl.Int64).alias(FIRST))

    # ---------------------------------------------------------------- lineage

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the groups of some results: each tuple before one of them may matter."""
        (tuples,) = inputs
        groups, names = results, {name: name for name in self.by}
        if not names.keys() <= set(results.columns):
            groups = among(tuples, results, {name: name for name in self.arc.identity})
        return [among(tuples, groups, names)]

    def lineage(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the tuples that some results read: their own, and `reach` before each."""
        (tuples,) = self.dependencies(results, *inputs)
        ordered = self._in_order(self._complete_groups(tuples))
        first, end = self._read_by(results, ordered)
        edges = (np.bincount(rows, minlength=ordered.tuples.height + 1) for rows in (first, end))
        begun, ended = (np.cumsum(edge)[:-1] for edge in edges)
        read = ordered.tuples.filter(pl.Series(begun > ended, dtype=pl.Boolean))
        return [among(tuples, read, {name: name for name in self.input.identity})]

    def _read_by(self, results: pl.DataFrame, ordered: OrderedGroups) -> tuple[Numbers, Numbers]:
        """Return the first row that each of some results reads, and the row after the last."""
        names = {name: name for name in self.arc.identity}
        numbered = ordered.tuples.with_row_index("@row")
        own = among(numbered, results, names)["@row"].to_numpy().astype(np.int64)
        return np.maximum(own - self.reach, ordered.start[own]), own + 1

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        kinds = {name: self.input.fields[name].dtype for name in self.columns_read}
        return Live(pl.DataFrame(schema={**kinds, FIRST: pl.Int64}))

    def live_from_ms(self, wm: int) -> int:
        """Return the beginning of time: the last tuples of a group may have any age."""
        return -FOREVER_MS

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Rebuild what is kept at watermark `wm` from the whole input."""
        return Live(self._kept(self._in_order(self._complete_groups(inputs[0])), wm))

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the watermark that passes the first tuple that is not passed yet."""
        if not self.emits_on_close or live.states.is_empty():
            return None
        passed_by = live.states.select((self._event_time + 1).alias("at"))["at"]
        return cast("int | None", passed_by.filter(passed_by > wm).min())

    def _kept(self, ordered: OrderedGroups, wm: int) -> pl.DataFrame:
        """Return the known tuples to keep: open ones, and the `reach` tuples before them."""
        if self.is_resident:
            return ordered.tuples
        passed = (self.input.event_times(ordered.tuples) < wm).to_numpy()
        passed_before = np.concatenate([[0], np.cumsum(passed)])
        dropped = np.maximum(
            passed_before[ordered.end] - passed_before[ordered.start] - self.reach, 0
        )
        kept = ordered.tuples.with_columns(pl.Series(FIRST, ordered.first + dropped))
        return kept.filter(pl.Series(ordered.position >= dropped))

    @property
    def _event_time(self) -> pl.Expr:
        return pl.col(self.input.event_time) + self.input.event_time_shift_ms

    def _passed(self, wm_before: int, wm: int) -> pl.Expr:
        """Whether the watermark passes each tuple from one epoch to the next."""
        return (self._event_time >= wm_before) & (self._event_time < wm)

    # ---------------------------------------------------------------- an epoch

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions; yields what it needs and is sent the answer."""
        (changes,), names = revisions, self.columns_read
        entering = frames.entering(changes, list(self.input.fields))
        dead_letters = dead_letters_for(self.input.name, entering, self.refused(entering))
        leaving = self._accepted(frames.leaving(changes, names))
        entering_rows = self._accepted(entering).select(names)
        all_rows = self._combined(leaving, entering_rows, live.states)
        is_busy = all_rows.select(self._is_busy(wm_before, wm)).to_series()
        marked = self._marked(all_rows.filter(is_busy))
        local, requested = marked.filter(~pl.col(_REQUESTED)), marked.filter(_REQUESTED)

        previous = local.filter(pl.col(_KIND) == _KNOWN).select(live.states.columns)
        current = self._replaced(previous, leaving, local.filter(pl.col(_KIND) == _ENTERING))
        replayed = 0
        if requested.height:
            ends = pl.lit(-FOREVER_MS).alias("from_ms"), pl.lit(FOREVER_MS).alias("to_ms")
            ranges = requested.select(*self.by, *ends).unique(maintain_order=True)
            (content,) = yield Need(INPUTS, ranges)
            replayed = content.height
            whole = self._complete_groups(self._among(content, ranges))
            left_rows = requested.filter(pl.col(_KIND) == _LEAVING).with_columns(
                pl.lit(0, pl.Int64).alias(FIRST)
            )
            current = pl.concat([current, whole])
            previous = pl.concat([previous, self._replaced(whole, entering_rows, left_rows)])

        ordered = self._in_order(current)
        before, failed_before = self.due_results(self._in_order(previous), wm=wm_before)
        after, failed_now = self.due_results(ordered, wm=wm)
        revised = difference(self.arc, before, after)
        if failed_now.height:
            read_fields = failed_now.drop(WHY).columns
            new = failed_now.join(failed_before, on=read_fields, how="anti", nulls_equal=True)
            dead_letters += self._result_dead_letters(new)
        idle = all_rows.filter(~is_busy).select(live.states.columns)
        counts = self.count_results(revised, wm_before=wm_before) | {"replayed": replayed}
        return Outcome(
            Live(pl.concat([idle, self._kept(ordered, wm)])), revised, counts, dead_letters
        )

    def count_results(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Return how many results closed, and how many were revised; see `Box.count_results`."""
        new = revisions.filter(pl.col("op") == frames.INSERT)
        at = self.arc.event_times(frames.entering(new, list(self.arc.fields)))
        closed = int((at >= wm_before).sum()) if self.emits_on_close else 0
        return {"closed": closed, "revised": revisions.height - closed}

    def _combined(self, *parts: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples that leave, that enter and that are known, with their group numbers."""
        all_rows = pl.concat(
            (part.with_columns(pl.lit(kind).alias(_KIND)) for kind, part in enumerate(parts)),
            how="diagonal",
        )
        return all_rows.with_columns(self._groups(all_rows))

    def _groups(self, tuples: pl.DataFrame) -> pl.Series | pl.Expr:
        """Return the number of the group of each tuple."""
        if not self.by:
            return pl.lit(0, pl.UInt32).alias(_GROUP)
        return number_rows(tuples, list(self.by))[1].alias(_GROUP)

    def _is_busy(self, wm_before: int, wm: int) -> pl.Expr:
        """Whether a group is revised, has a result to emit, or has tuples to drop."""
        known = pl.col(_KIND) == _KNOWN
        busy = (~known | (self._passed(wm_before, wm) & self.emits_on_close)).any()
        has_surplus = (known & (self._event_time < wm)).sum() > self.reach
        return (busy | (has_surplus & (not self.is_resident))).over(_GROUP)

    def _marked(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Mark groups to request: those with a revision that too few known tuples precede.

        A tuple that leaves or enters sorts before the known tuple at the same place: its old self.
        """
        known = pl.col(_KIND) == _KNOWN
        is_determined = (pl.col(FIRST) == 0) | known | (known.cum_sum().over(_GROUP) >= self.reach)
        return (
            tuples.sort(_GROUP, *self._order, _KIND)
            .with_columns(pl.col(FIRST).max().over(_GROUP).fill_null(0))
            .with_columns((~is_determined).any().over(_GROUP).alias(_REQUESTED))
        )

    @property
    def _order(self) -> list[str]:
        return [self.input.event_time, *self.input.identity]

    def _in_order(self, tuples: pl.DataFrame) -> OrderedGroups:
        ordered = tuples.with_columns(self._groups(tuples)).sort(_GROUP, *self._order)
        group = ordered[_GROUP].to_numpy()
        start, end = (np.searchsorted(group, group, side) for side in ("left", "right"))
        return OrderedGroups(ordered.drop(_GROUP), start, end)

    def _among(self, tuples: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples of some groups; without group fields there is only one group."""
        if not self.by:
            return tuples
        return tuples.join(groups, on=list(self.by), how="semi", nulls_equal=True)

    def _replaced(
        self, tuples: pl.DataFrame, removed: pl.DataFrame, added: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the tuples after some are removed, by identity, and others are added."""
        remaining = tuples.join(removed, on=list(self.input.identity), how="anti", nulls_equal=True)
        return pl.concat([remaining, added.select(remaining.columns)])
