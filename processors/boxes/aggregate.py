"""Aggregate: windows by group, revised exactly however old they are.

The box keeps the states of open windows, and of windows that closed within its horizon. In Errata's
own processes the horizon is 0; on Spark it covers every window that may still be revised. A
revision of any other closed window uses one of Borealis' two ways (sections 3.2 and 3.3):
*upstream* replays the inputs of the window; *downstream* fetches the result emitted before, whose
hidden fields hold the state. An adaptive box takes the cheaper way for each window (`costs`). If a
state can't be compensated for a change (a maximum that leaves), the box falls back to a replay of
that window. A *resident* box keeps all windows and its whole input and requests nothing: it serves
as a baseline.
The output is a function of the epoch's content and wm(e), whichever way is used (L5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
import polars as pl

from errata.processors.boxes.aggregating import Windowed
from errata.processors.boxes.base import (
    INPUTS,
    RESULTS,
    BoxSteps,
    Filter,
    HistoryInput,
    Live,
    Need,
    Outcome,
    Refused,
    without_failures,
)
from errata.processors.boxes.costs import UNKNOWN, Cost, Sizes, cheaper_ways, places_of
from errata.processors.boxes.modes import (
    ADAPTIVE,
    DOWNSTREAM,
    MODES,
    RESIDENT,
    UPSTREAM,
    Choice,
    ModeRequest,
)
from errata.processors.boxes.states import ROWS, Result, number_rows
from errata.processors.declare.faults import Fault
from errata.processors.windows.time_windows import FOREVER_MS, History, Hopping
from errata.schemas import by_column
from errata.schemas import revisions as frames

_EITHER = "for each window what is cheaper: fetches its result, or replays it"


@dataclass(frozen=True)
class Aggregate(Windowed):
    """An aggregate box over windows that are determined by each tuple alone."""

    keeps_instants: ClassVar[bool] = False
    """Whether its states are per instant, so that a window is the union of several."""

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """Its input."""
        return [HistoryInput(self.input, self.by, self.columns_read)]

    @property
    def extent_ms(self) -> int:
        """How far back in event time it requests history for one revision: one window."""
        return self.window.extent_ms

    @property
    def need(self) -> str:
        """What it needs if it requests history."""
        return "a connection point upstream to replay closed windows from"

    @property
    def result_delay_ms(self) -> int | None:
        """How much earlier than a result its input tuples may be: less than a window."""
        return self.window.extent_ms - 1

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {
            "aggregate": {name: result.text for name, result in self.results.items()},
            "by": list(self.by),
            **self.window.describe(),
            **({"emit": "on_update"} if self.on_update else {}),
            "input": self.input.name,
        }

    # ---------------------------------------------------------------- modes

    is_grouped_on_spark = True

    def choose_mode(self, request: ModeRequest) -> Choice | Fault:
        """Return how it revises closed windows, or a fault if the requested mode is impossible.

        Whether a stored result can be compensated is decided for each change; if it can't, the box
        falls back to a replay.
        """
        name = self.arc.name
        if request.on_spark:
            return self._choose_on_spark(request)
        requested = request.override or self.mode
        if requested not in MODES:
            need = f"a mode of {', '.join(MODES)}"
            return Fault(name, need, repr(requested), "use one of those", request.place)
        unstored = next(filter(_is_forgotten, self.results.values()), None)
        if unstored is not None:
            results, why_not = None, f"{unstored.text} can't be revised from a stored result"
            remedy = f"use mode={UPSTREAM!r} or mode={RESIDENT!r}, or omit mode="
        else:
            results, why_not = request.find_results()
            remedy = "give this aggregate keep='...', or use mode='upstream'"
        illegal = {} if results is not None else {DOWNSTREAM: why_not}
        if requested in (UPSTREAM, RESIDENT):
            return Choice(requested, requested, "requested", results, illegal)
        if results is not None:
            # of other windows it can't tell what a replay costs
            chooses = requested == ADAPTIVE and isinstance(self.window, Hopping)
            reason = "requested"
            if requested == ADAPTIVE:
                reason = _EITHER if chooses else "fetches one result per window"
            reason = f"{reason}; results are kept on {results!r}"
            return Choice(DOWNSTREAM, requested, reason, results, chooses=chooses)
        if requested == ADAPTIVE:
            return Choice(UPSTREAM, requested, f"downstream is illegal: {why_not}", illegal=illegal)
        need = "for mode='downstream' a connection point at or below its own arc that holds its"
        return Fault(name, f"{need} results", why_not, remedy, request.place)

    def _choose_on_spark(self, request: ModeRequest) -> Choice | Fault:
        """Return its mode on Spark: Spark keeps the states, or the window is replayed."""
        if self.mode in (UPSTREAM, ADAPTIVE):
            reason = "on Spark, for windows whose state is no longer kept"
            illegal = {DOWNSTREAM: "on Spark the states of windows are kept"}
            return Choice(UPSTREAM, self.mode, reason, illegal=illegal)
        return Fault(
            self.arc.name,
            f"mode={ADAPTIVE!r} or mode={UPSTREAM!r} with place='spark'",
            repr(self.mode),
            "omit mode=: Spark keeps the states of windows",
            request.place,
        )

    def in_mode(self, choice: Choice, filters: tuple[Filter, ...]) -> Aggregate:
        """Return the aggregate configured for a mode."""
        return replace(self, mode=choice.mode, filters=filters, chooses=choice.chooses)

    @property
    def cost(self) -> Cost:
        """What the revision of one tuple costs."""
        window = self.window
        if not isinstance(window, Hopping):  # its group's whole history
            return Cost(1, FOREVER_MS)
        results = -(-window.size_ms // window.slide_ms)
        return Cost(results, window.extent_ms + (results - 1) * window.slide_ms)

    # ---------------------------------------------------------------- between epochs

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        tuples = pl.DataFrame(schema={n: kind.dtype for n, kind in self.input.fields.items()})
        return Live(self.no_states(), tuples if self.is_resident else None)

    def live_from_ms(self, wm: int) -> int:
        """Return the event time from which the inputs determine what is kept at watermark `wm`."""
        unbounded = self.is_resident or isinstance(self.window, History)
        return -FOREVER_MS if unbounded else wm - self.horizon_ms - self.window.extent_ms + 1

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Rebuild what is kept at `wm` from the inputs since `live_from_ms` or an earlier time."""
        (tuples,) = inputs
        return self._live(self.states_of(tuples), tuples, wm)

    def informed(self, live: Live, counts: Mapping[str, int]) -> Live:
        """Return what is kept, with the sizes of windows that closed before a restart."""
        known = ("sized", "held", "replayed", "anchor_tuples")
        return replace(live, sizes=Sizes(*(counts.get(what, 0) for what in known)))

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the end of the first open window: its result is emitted at that watermark."""
        if self.on_update:
            return None
        ends = self.ends(live.states)
        return cast("int | None", ends.filter(ends > wm).min())

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return the results of a whole collection, and what users' functions fail for."""
        results, _, refused = self.begin(*inputs, wm=wm)
        return results, refused

    def begin(
        self, tuples: pl.DataFrame, *, wm: int
    ) -> tuple[pl.DataFrame, Live, Sequence[Refused]]:
        """Return the results of a whole collection, what to keep, and the dead letters.

        Args:
            tuples: The collection.
            wm: The watermark.
        """
        refused = self._refused(tuples)
        states = self.states_of(tuples, refused=refused)
        due = self._due(states, wm)
        results, failures = self.emitted(due)
        dead_letters = self._tuple_dead_letters(tuples, refused, 0) + self._result_dead_letters(
            results, failures, due[ROWS]
        )
        kept = by_column.kept(results, without_failures(failures, results.height))
        return kept, self._live(states, tuples, wm), dead_letters

    def _due(self, states: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return the states of the windows whose results are due at watermark `wm`."""
        return by_column.kept(states, self._is_due(states, wm))

    def _live(self, states: pl.DataFrame, tuples: pl.DataFrame, wm: int) -> Live:
        if self.is_resident:
            return Live(states, tuples)
        return Live(by_column.kept(states, self.is_kept(states, wm)))

    def is_kept(self, states: pl.DataFrame, wm: int) -> pl.Series:
        """Whether each state is kept at `wm`: its window is open or closed within the horizon."""
        return self.ends(states) > wm - self.horizon_ms

    def _is_due(self, states: pl.DataFrame, wm: int) -> pl.Series:
        """Whether the result of each non-empty window is due at watermark `wm`."""
        ends = self.ends(states)
        return (ends <= wm) | self.on_update

    def count_results(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Return how many results closed, and how many were revised; see `Box.count_results`."""
        new = revisions.filter(pl.col("op") == frames.INSERT)
        was_due = self._is_due(frames.entering(new, list(self.arc.fields)), wm_before)
        closed = new.height - int(was_due.sum())
        return {"closed": closed, "revised": revisions.height - closed}

    # ---------------------------------------------------------------- an epoch

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions; yields what it needs and is sent the answer."""
        (changes,), names = revisions, list(self.input.fields)
        leaving, entering = frames.leaving(changes, names), frames.entering(changes, names)
        if live.tuples is None:
            states = by_column.kept(live.states, self.is_kept(live.states, wm_before))
            run = self.move(
                leaving, entering, states=states, sizes=live.sizes, wm_before=wm_before, wm=wm
            )
            return (yield from run)
        tuples = self._replaced(live.tuples, pl.concat([leaving, entering]), entering)
        run = self.move(leaving, entering, states=live.states, wm_before=wm_before, wm=wm)
        try:
            next(run)
            while True:
                run.send([tuples])
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return replace(outcome, live=Live(outcome.live.states, tuples))

    def _replaced(
        self, tuples: pl.DataFrame, removed: pl.DataFrame, added: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the tuples after some are removed, by identity, and others are added."""
        remaining = tuples.join(removed, on=list(self.input.identity), how="anti", nulls_equal=True)
        return pl.concat([remaining.select(added.columns), added])

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
        """Process an epoch from the kept states; a resident box keeps those of all windows.

        The steps, in this order:

        1. Find the windows that hold a tuple that leaves or enters: each is *kept* (the box has its
           state) or *closed*.
        2. Mark the closed windows that must be *redone* from their inputs: in upstream mode all of
           them, in downstream mode those that a filter hides, in adaptive mode also those that are
           cheaper to replay. Fetch the stored results of the others: their hidden fields are the
           states before this epoch.
        3. Update the states: compensate for tuples that leave, then accumulate those that enter.
        4. Add the windows that no tuple touches but that the watermark closes in this epoch.
        5. Replay the inputs of redone windows, and of windows whose state could not be compensated
           exactly (a maximum that left). The replay yields the states without the tuples that the
           epoch's revisions concern: with those that enter they are the states after the epoch,
           with those that leave the states before. What 2 fetches and what is replayed here comes
           in parts, of which only the states are kept.
        6. Compute the results before and after, and emit a revision where they differ.
        7. Keep the states of windows that are still open.

        Args:
            leaving: Tuples that leave the input, with the fields that the box reads.
            entering: Tuples that enter it.
            states: The states kept after the previous epoch.
            wm_before: Watermark of the previous epoch.
            wm: Watermark of this epoch, never smaller.
            sizes: How large its windows are.
        """
        # 1. the touched windows
        tuples = pl.concat([leaving, entering])
        refused = self._refused(tuples)
        keys, rows, groups, panes = self._touched(tuples, refused, leaving.height)
        closed = ~self.is_kept(keys, wm_before) & (not self.is_resident)
        # 2. the states before: kept, fetched, or to be replayed
        unknown = closed & self._beyond_reach(keys)
        chosen, expected = self._cheaper_ways(keys, closed & ~unknown, sizes)
        redone = unknown | chosen
        old, fetched = self._with_known_states(self.empty(keys), states), 0
        if (closed & ~redone).any():
            fetched_keys = by_column.kept(keys, closed & ~redone)
            last = self.ends(fetched_keys) - 1

            def take(results: pl.DataFrame) -> None:
                nonlocal old
                stored = self._among(self._stored_states(results), fetched_keys)
                old = self._with_known_states(old, stored)

            (results,) = yield Need(RESULTS, self._ranges(fetched_keys, last, last + 1), take)
            take(results)
            fetched = int((old[ROWS] > 0).filter(closed).sum())
            if self.leaves_out:  # a window without a result stores no state: redo it
                unknown |= closed & ~redone & (old[ROWS] == 0)
                redone |= unknown
        # 3. tuples leave and enter
        if redone.any():  # their states are computed from a replay, below
            in_state = ~redone[groups]
            rows, groups = rows.filter(in_state), groups.filter(in_state)
        new = self._moved(old, tuples, rows, groups, leaving.height)
        if panes is not None:
            known = self._with_panes(by_column.kept(new, ~redone), panes)
            new = self._with_known_states(new, known) if redone.any() else known

        # 4. windows that only close
        untouched = states
        if not (states.is_empty() or keys.is_empty()):
            untouched = states.join(keys, on=self.keys, how="anti", nulls_equal=True)
        ends = self.ends(untouched)
        closes = ends.is_between(wm_before, wm, closed="right") & (not self.on_update)
        is_due = self._is_due(keys, wm)
        closing = by_column.kept(untouched, closes)
        before = pl.concat([self.empty(closing), by_column.kept(old, is_due)])
        after = pl.concat([closing, by_column.kept(new, is_due)])
        was_due = self._is_due(before, wm_before)

        # 5. replay windows that could not be compensated, and those that are redone
        inexact = by_column.pick(by_column.kept(after, ~self.exact(after)), self.keys)
        redone_keys = by_column.kept(keys, redone)
        replayed = 0
        if inexact.height or redone_keys.height:
            replay = _Replay(self, pl.concat([inexact, redone_keys]), entering)
            (content,) = yield replace(self._inputs_of(replay.states), take=replay.take)
            replay.take(content)
            replayed, states_between = replay.height, replay.states
            after = self._with_known_states(after, self.with_tuples(states_between, entering))
            if redone_keys.height:
                redone_states = states_between[inexact.height :]
                undone = self.with_tuples(redone_states, leaving)
                before = self._with_known_states(before, undone)

        # 6. results before and after
        (results_before, failures_before), (results_after, failures_after) = (
            self.emitted(before),
            self.emitted(after),
        )
        existed = was_due & (before[ROWS] > 0) & without_failures(failures_before, before.height)
        exists = (after[ROWS] > 0) & without_failures(failures_after, after.height)
        revised = frames.between(results_before, existed, results_after, exists)
        # 7. the states to keep
        kept = pl.concat([by_column.kept(untouched, ~closes), by_column.kept(new, ~is_due), after])
        is_kept = (kept[ROWS] > 0) & (self.is_kept(kept, wm) | self.is_resident)
        kept = by_column.kept(kept, is_kept)
        closed_count = int((~was_due & exists).sum())
        is_sized = exists & (self.ends(after) <= wm)
        held = after[ROWS].filter(is_sized).to_numpy()
        counts = {
            "closed": closed_count,
            "revised": revised.height - closed_count,
            "fetched": fetched,
            "replayed": replayed,
            "fallbacks": inexact.height + (int(unknown.sum()) if self.mode == DOWNSTREAM else 0),
            "sized": len(held),
            "held": int(held.sum()),
        }
        again = after[ROWS].filter(is_sized & was_due)
        if len(again):
            counts |= {"sized_again": len(again), "held_again": int(again.sum())}
        places = None
        if self.chooses:
            counts |= {"chosen": int(chosen.sum()), "expected": expected}
            places = places_of(after, self.by)[is_sized.to_numpy()]
        dead_letters = self._tuple_dead_letters(entering, refused, leaving.height)
        dead_letters += self._result_dead_letters(results_after, failures_after, after[ROWS])
        live = Live(kept, sizes=sizes.plus(held, places))
        return Outcome(live, revised, counts, dead_letters)

    def _cheaper_ways(
        self, keys: pl.DataFrame, reachable: pl.Series, sizes: Sizes
    ) -> tuple[pl.Series, int]:
        """Return whether each window is cheaper to replay, and what all of them cost; see `Ways`.

        Args:
            keys: The windows.
            reachable: Whether the box may choose: the window has closed, and its result is stored.
            sizes: How large windows are.
        """
        if not (self.chooses and reachable.any()):
            return by_column.constant(False, keys.height, pl.Boolean), 0
        own = by_column.kept(keys, reachable)
        groups = number_rows(own, list(self.by))[1] if self.by else own[self.start] * 0
        means = sizes.means(places_of(own, self.by))
        ways = cheaper_ways(
            groups.to_numpy().astype(np.int64),
            own[self.start].to_numpy(),
            self.ends(own).to_numpy(),
            tuples_a_ms=means * sizes.anchors_share / self.window.extent_ms,
        )
        chosen = by_column.constant(False, keys.height, pl.Boolean)
        return chosen.scatter(reachable.arg_true(), pl.Series(ways.replayed)), ways.expected

    def _beyond_reach(self, keys: pl.DataFrame) -> pl.Series:
        """Whether each closed window has no stored result to fetch, so that it must be replayed."""
        hidden = by_column.constant(self.mode == UPSTREAM, keys.height, pl.Boolean)
        for filter_box in self.filters:
            hidden |= ~filter_box.passes(keys)
        return hidden

    def _inputs_of(self, keys: pl.DataFrame) -> Need:
        """Return the need for all inputs of some windows."""
        if isinstance(self.window, History):
            ends = pl.Series([FOREVER_MS]).new_from_index(0, keys.height)
            return Need(INPUTS, self._ranges(keys, -ends, ends))
        return Need(INPUTS, self._ranges(keys, keys[self.start], self.ends(keys)))

    def _ranges(self, keys: pl.DataFrame, from_ms: pl.Series, to_ms: pl.Series) -> pl.DataFrame:
        groups: Iterable[pl.Series] = (keys[name] for name in self.by)
        return pl.DataFrame([*groups, from_ms.alias("from_ms"), to_ms.alias("to_ms")])


class _Replay:
    """States of windows, computed from their tuples as these arrive.

    Args:
        box: The aggregate.
        keys: The windows.
        entering: The tuples that enter in the epoch: the states are those without them.
    """

    def __init__(self, box: Aggregate, keys: pl.DataFrame, entering: pl.DataFrame) -> None:
        self._box, self._entering = box, entering
        self.states, self.height = box.empty(keys), 0
        """The states without what enters in the epoch and what leaves, and the tuples."""

    def take(self, tuples: pl.DataFrame) -> None:
        """Add some of the tuples; none comes twice."""
        self.height += tuples.height
        if not (tuples.is_empty() or self._entering.is_empty()):
            identity = list(self._box.input.identity)
            tuples = tuples.join(self._entering, on=identity, how="anti", nulls_equal=True)
        self.states = self._box.with_tuples(self.states, tuples)


def _is_forgotten(result: Result) -> bool:
    """Whether a result does not carry every state behind it."""
    return not all(emission.state.function.kept for emission in result.emissions)
