"""Windows by group and the states of their contents: what every aggregate box is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import polars as pl

from processors.aggregates.user_function import UserFunctionError
from processors.boxes.answers import Failures, Refused, failed, without
from processors.boxes.states import END, ROWS, START, Result, State, number_rows
from processors.boxes.where import Where
from processors.windows import History, Window
from schemas.arc import HIDDEN_PREFIX, Arc

RESIDENT = "resident"


@dataclass(frozen=True)
class Windowed:
    """The windows of groups, and the states of what they hold.

    A frame of *states* has a row a window: its *key* (the group and the window's start), how many
    rows it holds, and the columns of every state.

    Args:
        arc: The arc it writes; its fields are the group, the window, the results, the hidden part.
        input: The arc it reads.
        by: Group fields.
        window: Which windows hold a tuple.
        results: By name.
        states: The states behind the results, each once.
        mode: ``upstream``, ``downstream`` or ``resident``.
        on_update: Whether a result is there as soon as its window has tuples, not only once the
            watermark has passed its end.
        filters: Downstream: filters on the way to the stored results, over identity fields.
        horizon_ms: How long after it closed the state of a window is kept.
    """

    counted: ClassVar[tuple[str, ...]] = (ROWS,)
    """Hidden counts of a result, beside its states."""

    arc: Arc
    input: Arc
    by: tuple[str, ...]
    window: Window | History
    results: Mapping[str, Result]
    states: tuple[State, ...]
    mode: str
    on_update: bool = False
    filters: tuple[Where, ...] = ()
    horizon_ms: int = 0

    @property
    def start(self) -> str:
        """Name of the field that a window starts at; hidden where there is only one window."""
        return HIDDEN_PREFIX + START if isinstance(self.window, History) else START

    @property
    def end(self) -> str:
        """Name of the field that a window ends at."""
        return HIDDEN_PREFIX + END if isinstance(self.window, History) else END

    @property
    def keys(self) -> list[str]:
        """Names of the columns that name a window of a group."""
        return [*self.by, self.start]

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

    @property
    def looked_at(self) -> list[str]:
        """The fields of its input that it looks at."""
        used = {*self.by, *self.input.identity, self.input.event_time}
        for state in self.states:
            used.update(*(argument.columns for argument in state.arguments))
            used.update(state.condition.columns if state.condition is not None else ())
        return [name for name in self.input.fields if name in used]

    @property
    def leaves_out(self) -> bool:
        """Whether windows that hold tuples may lack a result: a user's function emits it."""
        return any(result.is_of_user for result in self.results.values())

    @property
    def is_resident(self) -> bool:
        """Whether it keeps everything."""
        return self.mode == RESIDENT

    # ---------------------------------------------------------------- states of windows

    def ends(self, frame: pl.DataFrame) -> pl.Series:
        """Return the exclusive ends of some windows."""
        return self.window.ends(frame[self.start])

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

    def states_of(
        self,
        tuples: pl.DataFrame,
        *,
        only: pl.DataFrame | None = None,
        refused: Failures | None = None,
    ) -> pl.DataFrame:
        """Return the states of all windows that the tuples touch, from scratch.

        Args:
            tuples: Tuples of the input.
            only: Keys of the windows to keep; windows in it that hold nothing are left out.
            refused: Why a tuple is in no window, by row, if that is known.
        """
        refused = self._refused(tuples) if refused is None else refused
        spread, rows = self._spread(tuples, refused)
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
        """Return the result tuples of the states, hidden part included, but those left out."""
        results, failures = self.emitted(states)
        return results.filter(without(failures, states.height)) if failures else results

    def emitted(self, states: pl.DataFrame) -> tuple[pl.DataFrame, Failures]:
        """Return a result tuple for each state, and by row why a user's function fails for one."""
        states = states.with_columns(self.ends(states).alias(self.end))
        named, failures = [], dict[int, str]()
        for name, result in self.results.items():
            values, failed_here = result.emitted(states)
            named.append(values.alias(name))
            failures = {**failed_here, **failures}
        return states.with_columns(named).select(list(self.arc.fields)), failures

    def _refused(self, tuples: pl.DataFrame) -> Failures:
        """Return why a user's function does not take a tuple, by row: it is in no window."""
        failures: Failures = {}
        for state in self.states:
            failures = {**state.refused(tuples), **failures}
        return failures

    def _spread(self, tuples: pl.DataFrame, refused: Failures) -> tuple[pl.DataFrame, pl.Series]:
        """Return, a row a tuple and window that holds it, the window's key and the tuple's row."""
        rows, starts = self.window.touched(self.input.event_times(tuples))
        if refused:
            taken = without(refused, tuples.height).gather(rows)
            rows, starts = rows.filter(taken), starts.filter(taken)
        groups = [tuples[name].gather(rows) for name in self.by]
        return pl.DataFrame([*groups, starts.alias(self.start)]), rows

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
        try:
            for state in self.states:
                columns += state.move(states, tuples, rows=rows, groups=groups, sign=sign)
        except UserFunctionError as error:
            if error.row is not None:
                shown = tuples.select(n for n in self.input.visible if n in tuples.columns)
                error.add_note(f"tuple {shown.row(error.row, named=True)}")
            raise
        return states.with_columns(columns)

    def _not_taken(self, entering: pl.DataFrame, refused: Failures, leaving: int) -> list[Refused]:
        """Return what of the tuples that enter goes to the dead letters.

        Args:
            entering: Tuples that enter.
            refused: Why one is in no window, by row among those that leave and those that enter.
            leaving: How many leave.
        """
        fresh = {row - leaving: why for row, why in refused.items() if row >= leaving}
        return failed(self.input.name, entering, fresh)

    def _not_told(
        self, results: pl.DataFrame, failures: Failures, rows: pl.Series
    ) -> list[Refused]:
        """Return what of the results goes to the dead letters: of windows that hold some rows."""
        left_out = {row: why for row, why in failures.items() if rows[row] > 0}
        return failed(self.arc.name, results.select(self.arc.identity), left_out)

    def _moved(
        self,
        states: pl.DataFrame,
        tuples: pl.DataFrame,
        rows: pl.Series,
        groups: pl.Series,
        leaving: int,
    ) -> pl.DataFrame:
        """Let the first `leaving` of the tuples leave, then the others enter."""
        leaves = rows < leaving
        left = self._change(states, tuples, rows.filter(leaves), groups.filter(leaves), -1)
        return self._change(left, tuples, rows.filter(~leaves), groups.filter(~leaves), 1)

    def _recalled(self, results: pl.DataFrame) -> pl.DataFrame:
        """Return the states behind stored results."""
        parts = [part for state in self.states for part in state.recall(results)]
        return results.select([*self.keys, *self.counted]).with_columns(parts)

    def _among(self, states: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
        return states.join(keys, on=self.keys, how="semi", nulls_equal=True)

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
