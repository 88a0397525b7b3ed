"""Aggregates over sliding windows: one ends with each instant at which a group has tuples.

The box keeps the states of *instants*: the tuples of a group at one event time. An instant has the
key of the window that ends with it. The state of a window is merged from its instants, so a
function needs only `merge`.

A result exists while a tuple is at its last instant; the hidden count ``__last`` counts these
tuples. A revision of a past tuple affects all windows that end within one window size after it.
*Upstream* replays one window size to each side. *Downstream* fetches the results of these windows
and compensates those that exist before and after; a window that appears, or whose result can't be
compensated, is replayed.

An epoch that emits m windows merges O(n + m log n) states, where n is the number of instants in
these windows, however they overlap. A revision of a past tuple compensates each result that it
changes once.

For tuples in order the cost of a tuple is constant (`SlidingInOrder`). An epoch is *in order* if
its tuples are later than every window emitted so far. In a process that waits for its watermark,
every epoch without late tuples is in order. Such an epoch revises nothing; it only adds windows,
which are merged from two stacks (`timeline.TwoStacks`). Any other epoch is computed from the
instants, as in `SlidingAggregate`, and the stacks are rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import polars as pl

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.base import (
    INPUTS,
    RESULTS,
    BoxSteps,
    Live,
    Need,
    Outcome,
    difference,
    without_failures,
)
from errata.processors.boxes.costs import UNKNOWN, Cost, Sizes
from errata.processors.boxes.modes import DOWNSTREAM
from errata.processors.boxes.states import ROWS, number_rows
from errata.processors.boxes.timeline import Timeline, TwoStacks, append_run, unions
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import revisions as frames

LAST = "__last"


@dataclass(frozen=True)
class SlidingAggregate(Aggregate):
    """An aggregate box over sliding windows."""

    counted: ClassVar[tuple[str, ...]] = (ROWS, LAST)
    keeps_instants: ClassVar[bool] = True

    @property
    def cost(self) -> Cost:
        """What the revision of one tuple costs: a window ends with each tuple after it."""
        return Cost(None, 2 * self.window.extent_ms)

    # ---------------------------------------------------------------- instants and windows

    def _due(self, states: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return the states of the windows whose results are due, from those of all instants."""
        return self._windows(states, states.filter(self._is_due(states, wm)))

    def _windows(self, instants: pl.DataFrame, ending: pl.DataFrame) -> pl.DataFrame:
        """Return the states of the windows that end with some instants.

        Args:
            instants: States of instants, at least of all those in the windows.
            ending: States of the instants that the windows end with.
        """
        if ending.is_empty():
            return self.empty(ending).with_columns(ending[ROWS].alias(LAST))
        size, start = self.window.extent_ms, self.start
        parts = [name for name in instants.columns if name not in self.keys]
        spans = ending.select((pl.col(start) - size).min().alias("from"), pl.col(start).max())
        within = instants[start].is_between(spans["from"], spans[start])
        timeline = Timeline(instants.filter(within), by=self.by, at=start)
        key = pl.DataFrame(schema={name: instants.schema[name] for name in self.keys}).clear(1)
        merged = unions(
            timeline.frame.select(parts),
            self.empty(key).select(parts),
            *timeline.runs(ending, 1 - size, 1),
            self._merged,
        )
        last = ending.select(pl.col(ROWS).alias(LAST))
        return pl.concat([ending.select(self.keys), merged, last], how="horizontal")

    def is_kept(self, states: pl.DataFrame, wm: int) -> pl.Series:
        """Whether each instant is in a window that is open or closed within the horizon."""
        return self.ends(states) + (self.window.extent_ms - 1) > wm - self.horizon_ms

    def _holds_any(self, instants: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
        """Whether the window that ends with each instant holds one of `keys`."""
        timeline = Timeline(keys, by=self.by, at=self.start)
        first, end = timeline.runs(instants, 1 - self.window.extent_ms, 1)
        return pl.Series(first < end)

    # ---------------------------------------------------------------- an epoch

    def move(
        self,
        leaving: pl.DataFrame,
        entering: pl.DataFrame,
        *,
        states: pl.DataFrame,
        wm_before: int,
        wm: int,
        sizes: Sizes = UNKNOWN,
    ) -> BoxSteps:
        """Process an epoch from the kept instants; a resident box keeps all of them.

        A window ends with each instant of a group. So a tuple touches its own instant, and every
        window that ends within one window size after it. The steps, in this order:

        1. Find the instants of the tuples that leave and enter. An instant that is in an open
           window is *near*: its state is kept. Update the states of near instants.
        2. Windows that closed before are *past*. Past windows without a stored result to fetch are
           *redone*: they are replayed. Fetch the stored results of the others, and compensate each
           one whose window holds a changed instant.
        3. Replay redone windows, those not compensated exactly, and those that appear.
           With the epoch's own revisions undone, the replay yields them as they were.
        4. Keep the near instants.
        5. Merge instants into windows, before and after the epoch: those that hold a changed
           instant, and those that the watermark closes now.
        6. Compute the results before and after, and emit a revision where they differ.

        Args: see `Aggregate.move`.
        """
        # the instants of windows that closed until then are not kept
        dropped_until = wm_before - self.horizon_ms
        # 1. near instants
        tuples = pl.concat([leaving, entering])
        refused = self._refused(tuples)
        spread, rows = self._spread(tuples, refused)
        keys, groups = number_rows(spread, self.keys)
        is_near = self.is_kept(keys, wm_before) | self.is_resident
        in_state = is_near.gather(groups)
        old = self._with_known_states(self.empty(keys), states)
        new = self._moved(
            old, tuples, rows.filter(in_state), groups.filter(in_state), leaving.height
        )
        # 2. windows of the past: stored results, compensated
        is_past = (self.ends(keys) <= dropped_until) & (not self.is_resident)
        redone = is_past & self._beyond_reach(keys)
        redone_keys, fetchable = keys.filter(redone), is_past & ~redone
        before, after = [self._windows(states, states.clear())], []
        fetched, replayed_keys = 0, keys.clear()
        if fetchable.any():
            signs = np.where(rows.to_numpy() < leaving.height, -1, 1)
            change = np.bincount(groups.to_numpy(), weights=signs, minlength=keys.height)
            changes = keys.with_columns(pl.Series(LAST, change, pl.Int64)).filter(fetchable)
            (stored,) = yield Need(RESULTS, self._affected_ranges(changes, dropped_until))
            stored = self._stored_states(stored).filter(self.ends(stored) <= dropped_until)
            stored = stored.filter(self._holds_any(stored, changes))
            fetched = stored.height
            is_fetched = fetchable.gather(groups)
            pairs = self._pairs(stored, spread.filter(is_fetched), rows.filter(is_fetched))
            changed, replayed_keys = self._compensated(*pairs, tuples, leaving.height, changes)
            before.append(stored)
            after.append(changed)

        # 3. windows of the past: replayed
        inexact = new.filter(is_near & ~self.exact(new)).select(self.keys)
        replayed = 0
        if inexact.height or redone_keys.height or replayed_keys.height:
            ends, range_start = self.ends(inexact), pl.col("from_ms") - (self.window.extent_ms - 1)
            ranges = [
                self._ranges(inexact, ends - 1, ends),
                self._affected_ranges(redone_keys, dropped_until).with_columns(range_start),
                self._inputs_of(replayed_keys).ranges,
            ]
            (content,) = yield Need(INPUTS, pl.concat(ranges))
            replayed = content.height
            present = self.states_of(content)
            new = self._with_known_states(new, self._among(present, inexact))
            after.append(self._windows(present, self._among(present, replayed_keys)))
            after.append(self._closed_windows(present, redone_keys, dropped_until))
            undone_states = self.states_of(self._replaced(content, entering, leaving))
            before.append(self._closed_windows(undone_states, redone_keys, dropped_until))

        # 4. what is kept
        untouched = states.join(keys, on=self.keys, how="anti", nulls_equal=True)
        kept = pl.concat([untouched, new.filter(is_near)]).filter(pl.col(ROWS) > 0)
        # 5. windows of near instants
        if self.on_update or self.is_resident or self.horizon_ms:
            before.append(self._windows_from_kept(states, keys, wm_before, wm_before))
        after.append(self._windows_from_kept(kept, keys, wm_before, wm))
        # 6. results before and after
        dead_letters = self._tuple_dead_letters(entering, refused, leaving.height)
        results = [self.emitted(states) for states in after]
        for states, (frame, failures) in zip(after, results, strict=True):
            dead_letters += self._result_dead_letters(frame, failures, states[ROWS])
        emitted = [
            frame.filter(without_failures(failures, frame.height)) for frame, failures in results
        ]
        revised = difference(self.arc, pl.concat(map(self.emit, before)), pl.concat(emitted))
        closed = 0
        if not self.on_update:
            closed = int((self.ends(emitted[-1]) > wm_before).sum())
        counts = {
            "closed": closed,
            "revised": revised.height - closed,
            "fetched": fetched,
            "replayed": replayed,
            "fallbacks": inexact.height
            + replayed_keys.height
            + (redone_keys.height if self.mode == DOWNSTREAM else 0),
        }
        return Outcome(
            Live(kept.filter(self.is_kept(kept, wm) | self.is_resident)),
            revised,
            counts,
            dead_letters,
        )

    def _windows_from_kept(
        self, instants: pl.DataFrame, keys: pl.DataFrame, wm_before: int, wm: int
    ) -> pl.DataFrame:
        """Return the windows due at watermark `wm` that the kept instants determine.

        These are the windows that hold a changed instant, and those that close.
        """
        ends, is_due = self.ends(instants), self._is_due(instants, wm)
        is_kept = (ends > wm_before - self.horizon_ms) | self.is_resident
        closing = (ends > wm_before) & (not self.on_update)
        is_changed = self._holds_any(instants, keys) | closing
        ending = instants.filter(is_kept & is_due & is_changed)
        return self._windows(instants, ending)

    def _closed_windows(self, instants: pl.DataFrame, keys: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return the windows closed at watermark `wm` that hold one of `keys`."""
        closed = self.ends(instants) <= wm
        return self._windows(instants, instants.filter(closed & self._holds_any(instants, keys)))

    def _affected_ranges(self, keys: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return the event times of results closed at watermark `wm` that hold one of `keys`."""
        ends = self.ends(keys)
        until = (ends + (self.window.extent_ms - 1)).clip(upper_bound=wm)
        return self._ranges(keys, ends - 1, until)

    def _beyond_reach(self, keys: pl.DataFrame) -> pl.Series:
        """Whether the results that hold each instant can't be fetched and must be replayed.

        This is so for all if a filter reads the window's fields, since the box can't know which
        results it hides, or if a user's function emits results, since it may have left some out.
        """
        if self.leaves_out or any(self.start in filter_box.columns for filter_box in self.filters):
            return pl.repeat(True, keys.height, dtype=pl.Boolean, eager=True)
        return super()._beyond_reach(keys)

    # ---------------------------------------------------------------- downstream

    def _pairs(
        self, stored: pl.DataFrame, spread: pl.DataFrame, rows: pl.Series
    ) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
        """Return results in order, and every pair of a tuple and a result whose window holds it.

        Args:
            stored: States behind results.
            spread: Keys of the instants of some tuples.
            rows: The row of each of these tuples.
        """
        timeline = Timeline(stored, by=self.by, at=self.start)
        first, end = timeline.runs(spread, 0, self.window.extent_ms)
        counts = end - first
        before = np.repeat(np.cumsum(counts) - counts, counts)
        indexes = np.arange(len(before)) - before + np.repeat(first, counts)
        return (
            timeline.frame,
            pl.Series(np.repeat(rows.to_numpy(), counts)),
            pl.Series(indexes.astype(np.uint32)),
        )

    def _compensated(
        self,
        stored: pl.DataFrame,
        rows: pl.Series,
        groups: pl.Series,
        tuples: pl.DataFrame,
        leaving: int,
        changes: pl.DataFrame,
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results that could be compensated, and the keys of those to replay."""
        last_change = stored.join(
            changes, on=self.keys, how="left", nulls_equal=True, maintain_order="left", suffix="@"
        )[LAST + "@"].fill_null(0)
        moved = self._moved(stored, tuples, rows, groups, leaving)
        moved = moved.with_columns(moved[LAST] + last_change)
        moved, exact = moved.filter(moved[LAST] > 0), self.exact(moved).filter(moved[LAST] > 0)
        appearing = changes.filter(pl.col(LAST) > 0).join(
            stored, on=self.keys, how="anti", nulls_equal=True
        )
        replayed_keys = pl.concat(
            [moved.filter(~exact).select(self.keys), appearing.select(self.keys)]
        )
        return moved.filter(exact), replayed_keys


@dataclass(frozen=True)
class InOrder(Live):
    """What is kept of sliding windows: `states` has the instants whose windows are not yet emitted.

    Args:
        emitted: The other instants, possibly with some that are no longer needed: at most two
            windows' worth, and with ``on_update`` those that are ahead of the watermark.
        emitted_until_ms: The end of the last emitted window.
        stacks: The same instants as two stacks; None if they must be rebuilt.
    """

    emitted: tuple[pl.DataFrame, ...] = ()
    emitted_until_ms: int = -FOREVER_MS
    stacks: TwoStacks | None = None

    @property
    def height(self) -> int:
        """The number of rows kept."""
        return super().height + sum(map(len, self.emitted))


@dataclass(frozen=True)
class SlidingInOrder(SlidingAggregate):
    """An aggregate box over sliding windows that is fastest when tuples arrive in order."""

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        return self._split(super().no_live(), -FOREVER_MS)

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Rebuild what is kept at `wm` from the inputs since `live_from_ms` or an earlier time."""
        return self._split(super().restore(*inputs, wm=wm), wm)

    def _split(self, live: Live, wm: int) -> Live:
        """Return what is kept, split by whether the window of an instant is emitted."""
        if self.is_resident or self.horizon_ms:
            return live
        is_due = self._is_due(live.states, wm)
        emitted = live.states.filter(is_due)
        return InOrder(
            live.states.filter(~is_due),
            emitted=(emitted,),
            emitted_until_ms=self._last_end(emitted),
        )

    def _last_end(self, instants: pl.DataFrame) -> int:
        return -FOREVER_MS if instants.is_empty() else int(self.ends(instants).max())  # type: ignore[arg-type]

    # ---------------------------------------------------------------- an epoch

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions of the input; see `Box.process`."""
        if not isinstance(live, InOrder):
            return (yield from super().process(*revisions, live=live, wm_before=wm_before, wm=wm))
        outcome = self._process_in_order(revisions[0], live, wm_before, wm)
        if outcome is None:
            merged = Live(pl.concat([*live.emitted, live.states]))
            outcome = yield from super().process(
                *revisions, live=merged, wm_before=wm_before, wm=wm
            )
            outcome = replace(outcome, live=self._split(outcome.live, wm))
        return outcome

    def _process_in_order(
        self, revisions: pl.DataFrame, live: InOrder, wm_before: int, wm: int
    ) -> Outcome | None:
        """Return the outcome of an epoch that is in order; None if it is not."""
        names = list(self.input.fields)
        leaving, entering = frames.leaving(revisions, names), frames.entering(revisions, names)
        tuples = pl.concat([leaving, entering])
        refused = self._refused(tuples)
        spread, rows = self._spread(tuples, refused)
        keys, groups = number_rows(spread, self.keys)
        if (self.ends(keys) <= max(wm_before, live.emitted_until_ms)).any():
            return None
        old = self._with_known_states(self.empty(keys), live.states)
        new = self._moved(old, tuples, rows, groups, leaving.height)
        if not self.exact(new).all():
            return None
        untouched = live.states.join(keys, on=self.keys, how="anti", nulls_equal=True)
        instants = pl.concat([untouched, new]).filter(pl.col(ROWS) > 0)
        is_due = self._is_due(instants, wm)
        windows, after = self._slide(live, instants.filter(is_due), wm)
        results, failures = self.emitted(windows)
        emitted = results.filter(without_failures(failures, results.height))
        revised = difference(self.arc, emitted.clear(), emitted)
        closed = 0 if self.on_update else revised.height
        counts: Mapping[str, int] = {
            "closed": closed,
            "revised": revised.height - closed,
            "fetched": 0,
            "replayed": 0,
            "fallbacks": 0,
        }
        dead_letters = self._tuple_dead_letters(entering, refused, leaving.height)
        dead_letters += self._result_dead_letters(results, failures, windows[ROWS])
        return Outcome(
            replace(after, states=instants.filter(~is_due)), revised, counts, dead_letters
        )

    def _slide(self, live: InOrder, ending: pl.DataFrame, wm: int) -> tuple[pl.DataFrame, InOrder]:
        """Return the windows that end with some instants, and what is kept after emitting them."""
        if ending.is_empty():
            return self._windows(ending, ending), live
        size, at = self.window.extent_ms, ending[self.start]
        first, last, stacks = int(at.min()), int(at.max()), live.stacks  # type: ignore[arg-type]
        emitted, is_near = live.emitted, pl.col(self.start) > first - size
        if last - first >= size or self._has_lists:
            instants = pl.concat([*emitted, ending])
            windows, stacks = self._windows(instants.filter(is_near), ending), None
            emitted = (instants.filter(self.is_kept(instants, wm)),)
        else:
            empty = self.empty(ending[:0].clear(1)).drop(self.keys)
            if stacks is None or last - size >= stacks.turning_point:
                instants = pl.concat(emitted)
                emitted = (instants.filter(self.is_kept(instants, wm)),)
                timeline = Timeline(instants.filter(is_near), by=self.by, at=self.start)
                stacks = TwoStacks.build(
                    timeline, first, by=self.by, empty=empty, merge=self._merged
                )
            timeline = Timeline(ending, by=self.by, at=self.start)
            windows, stacks = stacks.extend(timeline, size, self._merged)
            windows = timeline.frame.select(*self.keys, pl.col(ROWS).alias(LAST)).with_columns(
                windows
            )
            emitted = append_run(emitted, ending)
        return windows, replace(
            live, emitted=emitted, emitted_until_ms=self._last_end(ending), stacks=stacks
        )

    @property
    def _has_lists(self) -> bool:
        """Whether some states grow with their content; then every suffix on a stack would too."""
        return any(isinstance(kind, pl.List) for kind in self.no_states().dtypes)
