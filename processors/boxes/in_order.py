"""Sliding windows over tuples that arrive in order: the cost of a tuple is constant.

An epoch is *in order* if its tuples are later than every window emitted so far. In a process that
waits for its watermark, every epoch without late tuples is in order. Such an epoch revises nothing;
it only adds windows, which are merged from two stacks. Any other epoch is computed from the
instants, as in `SlidingAggregate`, and the stacks are rebuilt.

Two stacks (`TwoStacks`) form a queue. The front stack has the instants before a turning point and
the merged state of each suffix of them. The back stack has one merged state of all instants since.
A window is the union of a suffix, of the instants since, and of the instants it ends with. When
windows no longer reach back to the turning point, a new one is chosen. So each instant is merged a
few times, however many are in a window, and no tuple is ever compensated: extremes are as cheap as
sums, and rounded values can't drift.

Tangwongsan, Hirzel, Schneider and Wu, *General incremental sliding-window aggregation* (VLDB 2015).
Here a batch of windows is computed at a time, by scans as in Blelloch, *Prefix sums and their
applications* (1990).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.boxes.base import Answers, Live, Outcome, without
from errata.processors.boxes.difference import difference
from errata.processors.boxes.sliding import LAST, SlidingAggregate
from errata.processors.boxes.states import ROWS, number_rows
from errata.processors.boxes.timeline import Merge, Timeline
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import revisions as frames

_ALL = "@all"


def prefixes(
    states: pl.DataFrame, none: pl.DataFrame, is_first: npt.NDArray[np.bool_], merge: Merge
) -> pl.DataFrame:
    """Return for each row the union of its run up to it: O(n) merged states, in O(log n) calls.

    Args:
        states: One state per row.
        none: The empty state, in one row.
        is_first: Whether each row begins a run.
        merge: Returns the unions of two frames of states, row by row.

    Example:
        >>> states, starts = pl.DataFrame({"n": [1, 2, 3, 4, 5]}), np.array([1, 0, 0, 1, 0]) > 0
        >>> prefixes(states, pl.DataFrame({"n": [0]}), starts, lambda a, b: a + b)["n"].to_list()
        [1, 3, 6, 4, 9]
    """
    count = states.height
    if count <= 1:
        return states
    padded = pl.concat([states, none])
    odd, even = np.arange(1, count, 2), np.arange(2, count, 2)
    pairs = merge(padded[np.where(is_first[odd], count, odd - 1)], states[odd])
    done = prefixes(pairs, none, is_first[odd] | is_first[odd - 1], merge)  # of the odd rows
    before = np.where(is_first[even], done.height, even // 2 - 1)
    rest = merge(pl.concat([done, none])[before], states[even])
    places = np.arange(count) // 2
    places[even] += done.height
    places[0] = done.height
    return pl.concat([done, states[:1], rest])[places]


@dataclass(frozen=True)
class TwoStacks:
    """The two stacks of all groups.

    Args:
        by: Group fields.
        turning: The first instant after the turning point.
        front: The instants before it.
        suffixes: The union of each of these with all that follow in its group; last, the empty one.
        groups: The groups that have instants since the turning point.
        since: For each of these groups the union of these instants; last the empty state.
    """

    by: Sequence[str]
    turning: int
    front: Timeline
    suffixes: pl.DataFrame
    groups: pl.DataFrame
    since: pl.DataFrame

    @classmethod
    def turned(
        cls, front: Timeline, turning: int, *, by: Sequence[str], none: pl.DataFrame, merge: Merge
    ) -> TwoStacks:
        """Return the stacks for some instants, all of them before the turning point."""
        parts = front.frame.select(none.columns)
        is_last = np.append(front.is_first[1:], True)[: parts.height]
        suffixes = prefixes(parts[::-1], none, is_last[::-1], merge)[::-1]
        groups = _groups(front.frame.clear(), by)
        return cls(by, turning, front, pl.concat([suffixes, none]), groups, none)

    def followed(self, ending: Timeline, size: int, merge: Merge) -> tuple[pl.DataFrame, TwoStacks]:
        """Return the windows that end with some instants, and the stacks with these added.

        Args:
            ending: Instants, later than all so far. The last window begins at or before the turning
                point.
            size: The length of a window.
            merge: Returns the unions of two frames of states, row by row.
        """
        none, groups = self.since[-1:], _groups(ending.frame, self.by)
        here = prefixes(ending.frame.select(none.columns), none, ending.is_first, merge)
        known = self.groups.with_row_index("@place")
        place = groups.join(
            known, on=groups.columns, how="left", nulls_equal=True, maintain_order="left"
        )["@place"]
        since = merge(self.since[place.fill_null(known.height)], here)
        first, end = self.front.runs(ending.frame, 1 - size, 1)
        windows = merge(self.suffixes[np.where(first < end, first, len(self.suffixes) - 1)], since)
        is_last = pl.Series(np.append(ending.is_first[1:], True)[: groups.height])
        left = np.setdiff1d(np.arange(known.height), place.filter(is_last).drop_nulls())
        return windows, replace(
            self,
            groups=pl.concat([self.groups[left], groups.filter(is_last)]),
            since=pl.concat([self.since[left], since.filter(is_last), none]),
        )


def _groups(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    if by:
        return frame.select(by)
    return pl.DataFrame([pl.repeat(0, frame.height, dtype=pl.Int8, eager=True).alias(_ALL)])


def grown(runs: tuple[pl.DataFrame, ...], last: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
    """Append a run to runs of rows, concatenated so that only O(log n) of them remain.

    Example:
        >>> runs = ()
        >>> for number in range(11):
        ...     runs = grown(runs, pl.DataFrame({"n": [number]}))
        >>> [run.height for run in runs]
        [8, 2, 1]
    """
    *others, last = *runs, last
    while others and others[-1].height <= last.height:
        last = pl.concat([others.pop(), last])
    return *others, last


@dataclass(frozen=True)
class InOrder(Live):
    """What is kept of sliding windows: `states` has the instants whose windows are not yet emitted.

    Args:
        told: The other instants, possibly with some that are no longer needed: at most two windows'
            worth, and with ``on_update`` those that are ahead of the watermark.
        until: The end of the last emitted window.
        stacks: The same instants as two stacks; None if they must be rebuilt.
    """

    told: tuple[pl.DataFrame, ...] = ()
    until: int = -FOREVER_MS
    stacks: TwoStacks | None = None

    @property
    def height(self) -> int:
        """The number of rows kept."""
        return super().height + sum(map(len, self.told))


@dataclass(frozen=True)
class SlidingInOrder(SlidingAggregate):
    """An aggregate box over sliding windows that is fastest when tuples arrive in order."""

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        return self._divided(super().no_live(), -FOREVER_MS)

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Rebuild what is kept at `wm` from the inputs since `live_from_ms` or an earlier time."""
        return self._divided(super().restore(*inputs, wm=wm), wm)

    def _divided(self, live: Live, wm: int) -> Live:
        """Return what is kept, split by whether the window of an instant is emitted."""
        if self.is_resident or self.horizon_ms:
            return live
        is_told = self._is_told(live.states, wm)
        told = live.states.filter(is_told)
        return InOrder(live.states.filter(~is_told), None, (told,), self._until(told))

    def _until(self, instants: pl.DataFrame) -> int:
        return -FOREVER_MS if instants.is_empty() else int(self.ends(instants).max())  # type: ignore[arg-type]

    # ---------------------------------------------------------------- an epoch

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Process one epoch's revisions of the input; see `Box.process`."""
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
        """Return the outcome of an epoch that is in order; None if it is not."""
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
        """Return the windows that end with some instants, and what is kept after emitting them."""
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
        """Whether some states grow with their content; then every suffix on a stack would too."""
        return any(isinstance(kind, pl.List) for kind in self.no_states().dtypes)
