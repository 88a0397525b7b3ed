"""What boxes are made of that look at the tuples of a group in their order.

The order is that of event time, then of identity: it is total, null is below all values. The tuples
of a group have the *numbers* 0, 1, 2 ... in it. What is made of a tuple depends on its number and
on the `reach` tuples before it.

Of each group the box keeps the tuples that are *open* (the watermark has not passed them) and the
`reach` before these, and how many come before. A revision with that many known tuples before it, or
in a group of which all are known, is worked out from these. For another one the whole group is
asked for, and the epoch's own revisions undone give it as it was. Either way, what leads from the
results then to the results now is the revision (L5).
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
    failed,
    without,
)
from errata.processors.boxes.difference import difference
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
"""Why it has neither of Borealis' modes."""

FIRST, _GROUP, _SIDE, _FAR = "@first", "@group", "@side", "@far"
_GONE, _COME, _KNOWN = range(3)


@dataclass(frozen=True)
class Line:
    """Known tuples of some groups, each group's together and in order.

    Args:
        tuples: The tuples; beside each the number of the first one of its group that is known.
        start: For each the row at which those of its group start.
        end: For each the row at which they have ended.
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
        """The place of each tuple among those of its group that are known, from 0."""
        return self.rows - self.start

    @property
    def first(self) -> Numbers:
        """For each tuple the number of the first one of its group that is known."""
        first: Numbers = self.tuples[FIRST].to_numpy()
        return first


class Ordered(Box):
    """A box that looks at the tuples of a group in their order.

    Attributes:
        input: The arc it reads.
        by: Group fields.
    """

    input: Arc
    by: tuple[str, ...]

    @property
    @abstractmethod
    def reach(self) -> int:
        """How many tuples before one are looked at for it; at least 1."""

    @property
    @abstractmethod
    def looked_at(self) -> list[str]:
        """The fields of its input that it looks at."""

    @property
    def is_resident(self) -> bool:
        """Whether it keeps everything."""
        return False

    @abstractmethod
    def made(self, line: Line, *, wm: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return what is there of known tuples at a watermark, and what is left out.

        It is what needs no more than these: all, of a group of which all are known. Beside the
        identity of what is left out stands all that it is told from, and `WHY` it is left out.
        """

    # ---------------------------------------------------------------- what it reads

    @property
    def above(self) -> list[Above]:
        """Its input."""
        return [Above(self.input, self.by, self.looked_at)]

    @property
    def need(self) -> str:
        """What it needs if it asks."""
        return "a connection point upstream to read the tuples of a group from, in order"

    def choose_mode(self, request: ModeRequest) -> Choice | Fault:
        """Return how it revises what is out: there is but one way, unless it is to keep all.

        What is asked for all aggregates doesn't concern it.
        """
        return Choice(ADAPTIVE, ADAPTIVE, READ_AGAIN, illegal=NEVER_LEGAL)

    @property
    def extent_ms(self) -> int:
        """How far back in event time it asks: nothing says how long ago the tuple before was."""
        return FOREVER_MS

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return what it makes of a whole collection, and what a user's function fails for."""
        (tuples,) = inputs
        made, left_out = self.made(self._line(self._whole(tuples)), wm=wm)
        refused = failed(self.input.name, tuples, self.refused(tuples))
        return made, refused + self._not_told(left_out)

    def _not_told(self, left_out: pl.DataFrame) -> list[Refused]:
        """Return what goes to the dead letters of what is left out."""
        if left_out.is_empty():
            return []
        why = dict(enumerate(left_out[WHY]))
        return failed(self.arc.name, left_out.select(self.arc.identity), why)

    def refused(self, tuples: pl.DataFrame) -> Failures:
        """Return why a tuple has no place in the order, by row: a user's function fails for it."""
        return {}

    def _taken(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the tuples that have a place in the order."""
        failures = self.refused(tuples)
        return tuples.filter(without(failures, tuples.height)) if failures else tuples

    def _whole(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return whole groups, with nothing before their first tuples."""
        return self._taken(tuples).select(*self.looked_at, pl.lit(0, pl.Int64).alias(FIRST))

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        kinds = {name: self.input.fields[name].dtype for name in self.looked_at}
        return Live(pl.DataFrame(schema={**kinds, FIRST: pl.Int64}))

    def live_from_ms(self, wm: int) -> int:
        """Return the beginning: of some group even the last tuples may be that old."""
        return -FOREVER_MS

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Return what is kept at watermark `wm`, from the whole input."""
        return Live(self._kept(self._line(self._whole(inputs[0])), wm))

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the watermark that passes the first tuple that waits for it."""
        if not self.waits or live.states.is_empty():
            return None
        passed_by = live.states.select((self._at + 1).alias("at"))["at"]
        return cast("int | None", passed_by.filter(passed_by > wm).min())

    def _kept(self, line: Line, wm: int) -> pl.DataFrame:
        """Return those of some known tuples that are kept: open ones, and the reach before them."""
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
        """Take one epoch's revisions of the input; yields what it needs and is sent the answer."""
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
        """Return what leaves, what enters and what is known, with its group as a number."""
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
        """Whether a group is revised, something in it is to be told, or less of it to be kept."""
        known = pl.col(_SIDE) == _KNOWN
        busy = (~known | (self._passed(wm_before, wm) & self.waits)).any()
        surplus = (known & (self._at < wm)).sum() > self.reach
        return (busy | (surplus & (not self.is_resident))).over(_GROUP)

    def _judged(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Tell groups that have to be asked for: with a revision that too few known ones precede.

        What leaves or enters comes before a known tuple of the same place: that is itself.
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
        """Return the tuples of some groups; there is but one if nothing is grouped by."""
        if not self.by:
            return tuples
        return tuples.join(groups, on=list(self.by), how="semi", nulls_equal=True)

    def _replaced(
        self, tuples: pl.DataFrame, gone: pl.DataFrame, come: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the tuples after some have gone, by identity, and others have come."""
        left = tuples.join(gone, on=list(self.input.identity), how="anti", nulls_equal=True)
        return pl.concat([left, come.select(left.columns)])
