"""Sliding windows whose tuples come in order, as most do: what a tuple costs is flat.

An epoch is *in order* if its tuples are later than every window told so far: those of a
process that waits for its watermark, but for what comes too late. Such an epoch revises nothing; it
only adds windows, each the union of what is kept in two stacks. Any other one is worked out from
the instants, as `SlidingAggregate` does, and the stacks are made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.boxes.base import Answers, Live, Outcome, without
from errata.processors.boxes.difference import difference
from errata.processors.boxes.sliding import LAST, SlidingAggregate
from errata.processors.boxes.states import ROWS, number_rows
from errata.processors.boxes.timeline import Timeline
from errata.processors.boxes.two_stacks import TwoStacks, grown
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import revisions as frames


@dataclass(frozen=True)
class InOrder(Live):
    """What is kept of sliding windows: `states` has the instants whose windows are not told yet.

    Args:
        told: The other instants, some of which may be needed no more: at most two windows' worth,
            and with ``on_update`` those that are ahead of the watermark.
        until: The end of the last window told.
        stacks: The same as two stacks; None if they have to be made.
    """

    told: tuple[pl.DataFrame, ...] = ()
    until: int = -FOREVER_MS
    stacks: TwoStacks | None = None

    @property
    def height(self) -> int:
        """How many rows are kept."""
        return super().height + sum(map(len, self.told))


@dataclass(frozen=True)
class SlidingInOrder(SlidingAggregate):
    """An aggregate box over sliding windows, at its best with tuples in order."""

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        return self._divided(super().no_live(), -FOREVER_MS)

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Return what is kept at watermark `wm`, from the inputs since `live_from_ms`, or more."""
        return self._divided(super().restore(*inputs, wm=wm), wm)

    def _divided(self, live: Live, wm: int) -> Live:
        """Return what is kept, divided by whether the window of an instant is told."""
        if self.is_resident or self.horizon_ms:
            return live
        is_told = self._is_told(live.states, wm)
        told = live.states.filter(is_told)
        return InOrder(live.states.filter(~is_told), None, (told,), self._until(told))

    def _until(self, instants: pl.DataFrame) -> int:
        return -FOREVER_MS if instants.is_empty() else int(self.ends(instants).max())  # type: ignore[arg-type]

    # ---------------------------------------------------------------- an epoch

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Take one epoch's revisions of the input; see `Box.process`."""
        if not isinstance(live, InOrder):
            return (yield from super().process(*revisions, live=live, wm_before=wm_before, wm=wm))
        outcome = self._followed(revisions[0], live, wm_before, wm)
        if outcome is None:
            every = Live(pl.concat([*live.told, live.states]))
            outcome = yield from super().process(*revisions, live=every, wm_before=wm_before, wm=wm)
            outcome = replace(outcome, live=self._divided(outcome.live, wm))
        return outcome

    def _followed(
        self, revisions: pl.DataFrame, live: InOrder, wm_before: int, wm: int
    ) -> Outcome | None:
        """Return what an epoch gives that is in order, None if it is not."""
        names = list(self.input.fields)
        leaving, entering = frames.leaving(revisions, names), frames.entering(revisions, names)
        tuples = pl.concat([leaving, entering])
        refused = self._refused(tuples)
        spread, rows = self._spread(tuples, refused)
        keys, groups = number_rows(spread, self.keys)
        if (self.ends(keys) <= max(wm_before, live.until)).any():
            return None
        old = self._with_known(self.empty(keys), live.states)
        new = self._moved(old, tuples, rows, groups, leaving.height)
        if not self.exact(new).all():
            return None
        rest = live.states.join(keys, on=self.keys, how="anti", nulls_equal=True)
        instants = pl.concat([rest, new]).filter(pl.col(ROWS) > 0)
        is_told = self._is_told(instants, wm)
        windows, after = self._slid(live, instants.filter(is_told), wm)
        results, failures = self.emitted(windows)
        told = results.filter(without(failures, results.height))
        revised = difference(self.arc, told.clear(), told)
        closed = 0 if self.on_update else revised.height
        counts: Mapping[str, int] = {
            "closed": closed,
            "revised": revised.height - closed,
            "fetched": 0,
            "replayed": 0,
            "fallbacks": 0,
        }
        dead = self._not_taken(entering, refused, leaving.height)
        dead += self._not_told(results, failures, windows[ROWS])
        return Outcome(replace(after, states=instants.filter(~is_told)), revised, counts, dead)

    def _slid(self, live: InOrder, ending: pl.DataFrame, wm: int) -> tuple[pl.DataFrame, InOrder]:
        """Return the windows that end with some instants, and what is kept with these told."""
        if ending.is_empty():
            return self._windows(ending, ending), live
        size, at = self.window.extent_ms, ending[self.start]
        first, last, stacks = int(at.min()), int(at.max()), live.stacks  # type: ignore[arg-type]
        told, is_near = live.told, pl.col(self.start) > first - size
        if last - first >= size or self._has_lists:
            instants = pl.concat([*told, ending])
            windows, stacks = self._windows(instants.filter(is_near), ending), None
            told = (instants.filter(self._is_kept(instants, wm)),)
        else:
            none = self.empty(ending[:0].clear(1)).drop(self.keys)
            if stacks is None or last - size >= stacks.turning:
                instants = pl.concat(told)
                told = (instants.filter(self._is_kept(instants, wm)),)
                line = Timeline(instants.filter(is_near), by=self.by, at=self.start)
                stacks = TwoStacks.turned(line, first, by=self.by, none=none, merge=self._merged)
            line = Timeline(ending, by=self.by, at=self.start)
            windows, stacks = stacks.followed(line, size, self._merged)
            windows = line.frame.select(*self.keys, pl.col(ROWS).alias(LAST)).with_columns(windows)
            told = grown(told, ending)
        return windows, replace(live, told=told, until=self._until(ending), stacks=stacks)

    @property
    def _has_lists(self) -> bool:
        """Whether some states grow with their content: then so would a stack, with each suffix."""
        return any(isinstance(kind, pl.List) for kind in self.no_states().dtypes)
