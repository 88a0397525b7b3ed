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
    Above,
    Answers,
    Box,
    Failures,
    Live,
    Need,
    Outcome,
    Refused,
    difference,
    failed,
    without,
)
from errata.processors.boxes.modes import ADAPTIVE, DOWNSTREAM, UPSTREAM, Choice, ModeRequest
from errata.processors.boxes.states import number_rows
from errata.processors.declare.faults import Fault
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc

Numbers: TypeAlias = npt.NDArray[np.int64]

READ_AGAIN = "reads a group again from its beginning"
NO_RADIUS = "a tuple more or less moves all that follow it: nothing says how far a revision reaches"
NEVER_LEGAL = dict.fromkeys((UPSTREAM, DOWNSTREAM), NO_RADIUS)
"""Why neither of Borealis' modes is legal."""

FIRST, _GROUP, _SIDE, _FAR = "@first", "@group", "@side", "@far"
_GONE, _COME, _KNOWN = range(3)


@dataclass(frozen=True)
class Line:
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
    def place(self) -> Numbers:
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
    def looked_at(self) -> list[str]:
        """The fields of its input that it reads."""

    @property
    def is_resident(self) -> bool:
        """Whether it keeps its whole input."""
        return False

    @abstractmethod
    def made(self, line: Line, *, wm: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results due at a watermark that known tuples determine, and those left out.

        If all tuples of a group are known, these are all results of the group. The frame of results
        left out has their identity, the values that they are computed from, and the reason (`WHY`).
        """

    # ---------------------------------------------------------------- what it reads

    @property
    def above(self) -> list[Above]:
        """Its input."""
        return [Above(self.input, self.by, self.looked_at)]

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
        made, left_out = self.made(self._line(self._whole(tuples)), wm=wm)
        refused = failed(self.input.name, tuples, self.refused(tuples))
        return made, refused + self._not_told(left_out)

    def _not_told(self, left_out: pl.DataFrame) -> list[Refused]:
        """Return the dead letters for results that are left out."""
        if left_out.is_empty():
            return []
        why = dict(enumerate(left_out[WHY]))
        return failed(self.arc.name, left_out.select(self.arc.identity), why)

    def refused(self, tuples: pl.DataFrame) -> Failures:
        """Return by row why a tuple is not in the order: a user's function fails for it."""
        return {}

    def _taken(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples that are in the order."""
        failures = self.refused(tuples)
        return tuples.filter(without(failures, tuples.height)) if failures else tuples

    def _whole(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples of whole groups; the first number of each group is 0."""
        return self._taken(tuples).select(*self.looked_at, pl.lit(0, pl.Int64).alias(FIRST))

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        kinds = {name: self.input.fields[name].dtype for name in self.looked_at}
        return Live(pl.DataFrame(schema={**kinds, FIRST: pl.Int64}))

    def live_from_ms(self, wm: int) -> int:
        """Return the beginning of time: the last tuples of a group may have any age."""
        return -FOREVER_MS

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Rebuild what is kept at watermark `wm` from the whole input."""
        return Live(self._kept(self._line(self._whole(inputs[0])), wm))

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the watermark that passes the first tuple that is not passed yet."""
        if not self.waits or live.states.is_empty():
            return None
        passed_by = live.states.select((self._at + 1).alias("at"))["at"]
        return cast("int | None", passed_by.filter(passed_by > wm).min())

    def _kept(self, line: Line, wm: int) -> pl.DataFrame:
        """Return the known tuples to keep: open ones, and the `reach` tuples before them."""
        if self.is_resident:
            return line.tuples
        passed = (self.input.event_times(line.tuples) < wm).to_numpy()
        ahead = np.concatenate([[0], np.cumsum(passed)])
        surplus = np.maximum(ahead[line.end] - ahead[line.start] - self.reach, 0)
        kept = line.tuples.with_columns(pl.Series(FIRST, line.first + surplus))
        return kept.filter(pl.Series(line.place >= surplus))

    @property
    def _at(self) -> pl.Expr:
        return pl.col(self.input.event_time) + self.input.event_time_shift_ms

    def _passed(self, wm_before: int, wm: int) -> pl.Expr:
        """Whether the watermark passes each tuple from one epoch to the next."""
        return (self._at >= wm_before) & (self._at < wm)

    # ---------------------------------------------------------------- an epoch

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Process one epoch's revisions; yields what it needs and is sent the answer."""
        (some,), names = revisions, self.looked_at
        entering = frames.entering(some, list(self.input.fields))
        dead = failed(self.input.name, entering, self.refused(entering))
        gone = self._taken(frames.leaving(some, names))
        come = self._taken(entering).select(names)
        every = self._sided(gone, come, live.states)
        busy = every.select(self._is_busy(wm_before, wm)).to_series()
        ours = self._judged(every.filter(busy))
        near, far = ours.filter(~pl.col(_FAR)), ours.filter(_FAR)

        then = near.filter(pl.col(_SIDE) == _KNOWN).select(live.states.columns)
        now = self._replaced(then, gone, near.filter(pl.col(_SIDE) == _COME))
        replayed = 0
        if far.height:
            ends = pl.lit(-FOREVER_MS).alias("from_ms"), pl.lit(FOREVER_MS).alias("to_ms")
            asked = far.select(*self.by, *ends).unique(maintain_order=True)
            (content,) = yield Need(INPUTS, asked)
            replayed = content.height
            whole = self._whole(self._among(content, asked))
            left = far.filter(pl.col(_SIDE) == _GONE).with_columns(pl.lit(0, pl.Int64).alias(FIRST))
            now = pl.concat([now, whole])
            then = pl.concat([then, self._replaced(whole, come, left)])

        line = self._line(now)
        before, untold = self.made(self._line(then), wm=wm_before)
        after, left_out = self.made(line, wm=wm)
        revised = difference(self.arc, before, after)
        if left_out.height:
            told_from = left_out.drop(WHY).columns
            new = left_out.join(untold, on=told_from, how="anti", nulls_equal=True)
            dead += self._not_told(new)
        rest = every.filter(~busy).select(live.states.columns)
        counts = self.kinds(revised, wm_before=wm_before) | {"replayed": replayed}
        return Outcome(Live(pl.concat([rest, self._kept(line, wm)])), revised, counts, dead)

    def kinds(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Return how many results closed, and how many were revised; see `Box.kinds`."""
        new = revisions.filter(pl.col("op") == frames.INSERT)
        at = self.arc.event_times(frames.entering(new, list(self.arc.fields)))
        closed = int((at >= wm_before).sum()) if self.waits else 0
        return {"closed": closed, "revised": revisions.height - closed}

    def _sided(self, *sides: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples that leave, that enter and that are known, with their group numbers."""
        every = pl.concat(
            (side.with_columns(pl.lit(which).alias(_SIDE)) for which, side in enumerate(sides)),
            how="diagonal",
        )
        return every.with_columns(self._groups(every))

    def _groups(self, tuples: pl.DataFrame) -> pl.Series | pl.Expr:
        """Return the number of the group of each tuple."""
        if not self.by:
            return pl.lit(0, pl.UInt32).alias(_GROUP)
        return number_rows(tuples, list(self.by))[1].alias(_GROUP)

    def _is_busy(self, wm_before: int, wm: int) -> pl.Expr:
        """Whether a group is revised, has a result to emit, or has tuples to drop."""
        known = pl.col(_SIDE) == _KNOWN
        busy = (~known | (self._passed(wm_before, wm) & self.waits)).any()
        surplus = (known & (self._at < wm)).sum() > self.reach
        return (busy | (surplus & (not self.is_resident))).over(_GROUP)

    def _judged(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Mark groups to request: those with a revision that too few known tuples precede.

        A tuple that leaves or enters sorts before the known tuple at the same place: its old self.
        """
        known = pl.col(_SIDE) == _KNOWN
        near = (pl.col(FIRST) == 0) | known | (known.cum_sum().over(_GROUP) >= self.reach)
        return (
            tuples.sort(_GROUP, *self._order, _SIDE)
            .with_columns(pl.col(FIRST).max().over(_GROUP).fill_null(0))
            .with_columns((~near).any().over(_GROUP).alias(_FAR))
        )

    @property
    def _order(self) -> list[str]:
        return [self.input.event_time, *self.input.identity]

    def _line(self, tuples: pl.DataFrame) -> Line:
        ordered = tuples.with_columns(self._groups(tuples)).sort(_GROUP, *self._order)
        group = ordered[_GROUP].to_numpy()
        start, end = (np.searchsorted(group, group, side) for side in ("left", "right"))
        return Line(ordered.drop(_GROUP), start, end)

    def _among(self, tuples: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples of some groups; without group fields there is only one group."""
        if not self.by:
            return tuples
        return tuples.join(groups, on=list(self.by), how="semi", nulls_equal=True)

    def _replaced(
        self, tuples: pl.DataFrame, gone: pl.DataFrame, come: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the tuples after some are removed, by identity, and others are added."""
        left = tuples.join(gone, on=list(self.input.identity), how="anti", nulls_equal=True)
        return pl.concat([left, come.select(left.columns)])
