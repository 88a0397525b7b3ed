"""Aggregate: windows by group, revised exactly however old they are.

The box keeps the states of its open windows only. A revision of a closed window is worked out in
one of Borealis' two ways (sections 3.2 and 3.3): *upstream* from the inputs of the window,
replayed, or *downstream* from the result emitted before, whose hidden part holds the state. A
change that a state cannot be compensated for (a maximum that is lowered) falls back to a replay of
that window. What comes out is a function of the epoch's content and wm(e), whichever way was taken
(L5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from processors.boxes.states import (
    DOWNSTREAM,
    END,
    INPUTS,
    RESULTS,
    ROWS,
    START,
    UPSTREAM,
    Answers,
    Need,
    Outcome,
    Result,
    State,
    number_rows,
)
from processors.expressions.expression import Expression
from processors.windows import Hopping
from schemas import revisions as frames
from schemas.arc import HIDDEN_PREFIX, Arc


@dataclass(frozen=True)
class Aggregate:
    """An aggregate box.

    Args:
        arc: The arc it writes; its fields are the group, the window, the results, the hidden part.
        input: The arc it reads.
        by: Group fields.
        window: Which windows hold a tuple.
        results: By name.
        states: The states behind the results, each once.
        mode: ``upstream`` or ``downstream``.
        filters: Downstream: predicates on the way to the stored results, over identity fields.
    """

    arc: Arc
    input: Arc
    by: tuple[str, ...]
    window: Hopping
    results: Mapping[str, Result]
    states: tuple[State, ...]
    mode: str
    filters: tuple[Expression, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Names of the columns that name a window of a group."""
        return [*self.by, START]

    @property
    def stored(self) -> Arc:
        """What of the results is fetched: the identity and the hidden part.

        Every box between here and where they are kept leaves these as they are.
        """
        kept = {
            name: kind
            for name, kind in self.arc.fields.items()
            if name in self.keys or name.startswith(HIDDEN_PREFIX)
        }
        return replace(self.arc, fields=kept)

    # ---------------------------------------------------------------- states of windows

    def empty(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the states of windows that hold nothing."""
        columns = [pl.repeat(0, keys.height, dtype=pl.Int64, eager=True).alias(ROWS)]
        for state in self.states:
            columns += state.init(keys.height)
        return keys.select(self.keys).with_columns(columns)

    def no_states(self) -> pl.DataFrame:
        """Return the states of no windows."""
        fields = {name: self.arc.fields[name].dtype for name in self.keys}
        return self.empty(pl.DataFrame(schema=fields))

    def _spread(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Return, a row a tuple and window that holds it, the window's key and the tuple's row."""
        rows, starts = self.window.touched(self.input.event_times(tuples))
        groups = [tuples[name].gather(rows) for name in self.by]
        return pl.DataFrame([*groups, starts.alias(START)]), rows

    def _change(
        self,
        states: pl.DataFrame,
        tuples: pl.DataFrame,
        rows: pl.Series,
        groups: pl.Series,
        sign: int,
    ) -> pl.DataFrame:
        """Let tuples enter (sign 1) or leave (-1): the tuple of rows[i] in the state groups[i]."""
        if groups.is_empty():
            return states
        moved = pl.DataFrame({"g": groups}).group_by("g").agg(pl.len().cast(pl.Int64) * sign)
        count = states[ROWS].clone()
        count.scatter(moved["g"], count.gather(moved["g"]) + moved["len"])
        columns = [count]
        for state in self.states:
            columns += state.move(states, tuples, rows=rows, groups=groups, sign=sign)
        return states.with_columns(columns)

    def states_of(self, tuples: pl.DataFrame, *, only: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return the states of all windows that the tuples touch, from scratch.

        Args:
            tuples: Tuples of the input.
            only: Keys of the windows to keep; windows in it that hold nothing are left out.
        """
        spread, rows = self._spread(tuples)
        if only is not None:
            spread = spread.with_columns(rows.alias("__row")).join(
                only.select(self.keys), on=self.keys, how="semi", nulls_equal=True
            )
            rows = spread["__row"]
        keys, groups = number_rows(spread, self.keys)
        return self._change(self.empty(keys), tuples, rows, groups, 1)

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Whether each state can be emitted from."""
        exact = pl.repeat(True, states.height, dtype=pl.Boolean, eager=True)
        for state in self.states:
            exact &= state.exact(states)
        return exact

    def emit(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the result tuples of the states, hidden part included."""
        named = [result.emit(states).alias(name) for name, result in self.results.items()]
        return states.with_columns((pl.col(START) + self.window.size_ms).alias(END), *named).select(
            list(self.arc.fields)
        )

    # ---------------------------------------------------------------- the box

    def recompute(self, tuples: pl.DataFrame, wm: int) -> pl.DataFrame:
        """Return the results that a whole collection has at watermark `wm`."""
        states = self.states_of(tuples)
        return self.emit(states.filter(pl.col(START) + self.window.size_ms <= wm))

    def process(
        self, revisions: pl.DataFrame, *, live: pl.DataFrame, wm_before: int, wm: int
    ) -> Answers:
        """Take one epoch's revisions of the input; yields what it needs and is sent the answer.

        Args:
            revisions: Revisions of the input in this epoch, at most one per identity.
            live: States of the open windows as of the epoch before.
            wm_before: Watermark of the epoch before.
            wm: Watermark of this epoch, never smaller.

        Returns:
            The open windows after the epoch, and the revisions of the output.
        """
        names = list(self.input.fields)
        leaving, entering = frames.leaving(revisions, names), frames.entering(revisions, names)
        tuples = pl.concat([leaving, entering])
        spread, rows = self._spread(tuples)
        keys, groups = number_rows(spread, self.keys)
        closed = keys[START] + self.window.size_ms <= wm_before
        redone = closed & self._beyond_reach(keys)
        old = self._with_known(self.empty(keys), live)
        fetched = 0
        if (closed & ~redone).any():
            results = yield Need(RESULTS, keys.filter(closed & ~redone))
            fetched = results.height
            old = self._with_known(old, results)
        if redone.any():  # their states are worked out from a replay, below
            kept = ~redone.gather(groups)
            rows, groups = rows.filter(kept), groups.filter(kept)
        leaves = rows < leaving.height
        new = self._change(old, tuples, rows.filter(leaves), groups.filter(leaves), -1)
        new = self._change(new, tuples, rows.filter(~leaves), groups.filter(~leaves), 1)

        near = new.filter(~closed)
        untouched = live.join(near, on=self.keys, how="anti", nulls_equal=True)
        near = pl.concat([untouched, near]).filter(pl.col(ROWS) > 0)
        closes = near[START] + self.window.size_ms <= wm
        closing, live = near.filter(closes), near.filter(~closes)

        was, now = old.filter(closed), new.filter(closed)
        lowered = pl.concat([states.filter(~self.exact(states)) for states in (closing, now)])
        far = keys.filter(redone)
        wanted = pl.concat([lowered.select(self.keys), far])
        replayed = 0
        if wanted.height:
            content = yield Need(INPUTS, wanted)
            replayed = content.height
            right = self.states_of(content, only=wanted)
            closing, now = self._with_known(closing, right), self._with_known(now, right)
            if far.height:  # what was there before is what is there now with this epoch undone
                others = content.join(
                    entering, on=list(self.input.identity), how="anti", nulls_equal=True
                )
                undone = self.states_of(pl.concat([others, leaving]), only=far)
                was = self._with_known(was, undone)

        before = pl.concat([was, self.empty(closing)])
        after = pl.concat([now, closing])
        told = frames.between(
            self.emit(before), before[ROWS] > 0, self.emit(after), after[ROWS] > 0
        )
        counts = {
            "closed": closing.height,
            "revised": told.height - closing.height,
            "fetched": fetched,
            "replayed": replayed,
            "fallbacks": lowered.height + (far.height if self.mode == DOWNSTREAM else 0),
        }
        return Outcome(live, told, counts)

    def _beyond_reach(self, keys: pl.DataFrame) -> pl.Series:
        """Whether no stored result can be had for a closed window, so that it must be replayed."""
        if self.mode == UPSTREAM:
            return pl.repeat(True, keys.height, dtype=pl.Boolean, eager=True)
        hidden = pl.repeat(False, keys.height, dtype=pl.Boolean, eager=True)
        for predicate in self.filters:
            hidden |= ~predicate.evaluate(keys).fill_null(False)
        return hidden

    def _with_known(self, states: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
        """Return the states, in their order, with the known ones in place of their own."""
        if known.is_empty() or states.is_empty():
            return states
        parts = [name for name in states.columns if name not in self.keys]
        found = states.select(self.keys).join(
            known.select([*self.keys, *parts]),
            on=self.keys,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        there = found[ROWS].is_not_null()
        return states.with_columns(states[name].zip_with(~there, found[name]) for name in parts)
