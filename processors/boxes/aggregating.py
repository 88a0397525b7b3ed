"""Results by group and the states behind them: the base of every aggregate box.

`Aggregating` knows contents, their states and results, whichever tuples a content holds. `Windowed`
adds the windows that event times alone determine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl

from errata.processors.boxes.base import (
    Box,
    Failures,
    Filter,
    Refused,
    dead_letters_for,
    without_failures,
)
from errata.processors.boxes.bounds import Bounds
from errata.processors.boxes.matching import among
from errata.processors.boxes.modes import RESIDENT
from errata.processors.boxes.states import END, ROWS, START, Result, State, number_rows
from errata.processors.boxes.timeline import Timeline, unions
from errata.processors.expressions.errors import UserFunctionError
from errata.processors.windows.time_windows import History, Hopping, Window
from errata.schemas import by_column
from errata.schemas.arc import HIDDEN_PREFIX, Arc

PANES_FROM = 8
"""Where each tuple is in so many windows at least, these are merged from panes."""


@dataclass(frozen=True, kw_only=True)
class Aggregating(Box):
    """Named results of contents, by group.

    A *content* is the set of tuples in one window. A frame of *states* has one row per content: its
    *key*, its number of rows, and the columns of every state.

    Args:
        arc: The arc it writes; its fields are the key, the results and the hidden fields.
        input: The arc it reads.
        by: Group fields.
        results: By name.
        states: The states behind the results, each once.
        mode: How emitted results are revised.
        on_update: Whether a result is emitted as soon as its content is not empty, not only once
            the watermark has passed it.
    """

    counted: ClassVar[tuple[str, ...]] = (ROWS,)
    """Hidden counts of a result, in addition to its states."""

    arc: Arc
    input: Arc
    by: tuple[str, ...]
    results: Mapping[str, Result]
    states: tuple[State, ...]
    mode: str
    on_update: bool = False

    @property
    def kind(self) -> str:
        """Its name in `errata explain`."""
        return "aggregate"

    @property
    @abstractmethod
    def keys(self) -> list[str]:
        """Names of the columns that identify a content."""

    @property
    def columns_read(self) -> list[str]:
        """The fields of its input that it reads."""
        names = {*self.by, *self.input.identity, self.input.event_time}
        for state in self.states:
            names.update(state.columns)
        return [name for name in self.input.fields if name in names]

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why results of an upstream aggregate can't be revised from its own."""
        return f"{self.kind} {self.arc.name!r} below it does not keep its results' identity"

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its results; see `Result.bound`."""
        (known,) = above
        if known.reads([*self.by, *self.arc.identity]):
            return self._unbounded
        found = {name: result.bound(known) for name, result in self.results.items()}
        return Bounds({name: bound for name, (bound, is_inexact) in found.items() if is_inexact})

    @property
    def emits_on_close(self) -> bool:
        """Whether results are emitted only once the watermark has passed them."""
        return not self.on_update

    @property
    def is_resident(self) -> bool:
        """Whether it keeps all states and its whole input."""
        return self.mode == RESIDENT

    def initial_states(self, count: int) -> pl.DataFrame:
        """Return the states of empty contents, without their keys."""
        parts = [by_column.constant(0, count, pl.Int64).alias(ROWS)]
        for state in self.states:
            parts += state.init(count)
        return pl.DataFrame(parts)

    def empty(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the states of empty contents."""
        return by_column.pick(keys, self.keys).hstack(self.initial_states(keys.height))

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Whether a result can be emitted from each state."""
        exact = by_column.constant(True, states.height, pl.Boolean)
        for state in self.states:
            exact &= state.exact(states)
        return exact

    def emit(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the result tuples of the states with hidden fields, without those left out."""
        results, failures = self.emitted(states)
        return results.filter(without_failures(failures, states.height)) if failures else results

    def emitted(self, states: pl.DataFrame) -> tuple[pl.DataFrame, Failures]:
        """Return a result tuple for each state, and by row why a user's function fails."""
        named, failures = [], dict[int, str]()
        for name, result in self.results.items():
            values, failed_rows = result.emitted(states)
            named.append(values.alias(name))
            failures = {**failed_rows, **failures}
        return by_column.pick(by_column.beside(states, *named), self.arc.fields), failures

    @property
    def leaves_out(self) -> bool:
        """Whether non-empty windows may lack a result, because a user's function emits it."""
        return any(result.is_of_user for result in self.results.values())

    def _refused(self, tuples: pl.DataFrame) -> Failures:
        """Return by row why a user's function refuses a tuple; such a tuple is in no window."""
        failures: Failures = {}
        for state in self.states:
            failures = {**state.refused(tuples), **failures}
        return failures

    def _change(
        self,
        states: pl.DataFrame,
        tuples: pl.DataFrame,
        rows: pl.Series,
        groups: pl.Series,
        sign: int,
    ) -> pl.DataFrame:
        """Apply tuples that enter (sign 1) or leave (-1): tuple rows[i] in state groups[i]."""
        if groups.is_empty():
            return states
        moved = np.bincount(groups.to_numpy(), minlength=states.height).astype(np.int64)
        parts = [states[ROWS] + pl.Series(sign * moved)]
        try:
            for state in self.states:
                parts += state.move(states, tuples, rows=rows, groups=groups, sign=sign)
        except UserFunctionError as error:
            if error.row is not None:
                refused_tuple = tuples.select(n for n in self.input.visible if n in tuples.columns)
                error.add_note(f"tuple {refused_tuple.row(error.row, named=True)}")
            raise
        return by_column.beside(states, *parts)

    def _merged(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of merged contents, row by row, without their keys."""
        parts = [one[ROWS] + other[ROWS]]
        for state in self.states:
            parts += state.merge(one, other)
        return pl.DataFrame(parts)


class Touched(NamedTuple):
    """The windows that hold some tuples.

    Args:
        keys: Their keys, each once.
        rows: For each pair of a tuple and a window that holds it, the tuple's row.
        groups: For each pair, the row of the window in `keys`.
        panes: The panes that tuples enter which are in no pair; None if there are none.
    """

    keys: pl.DataFrame
    rows: pl.Series
    groups: pl.Series
    panes: Timeline | None


@dataclass(frozen=True, kw_only=True)
class Windowed(Aggregating):
    """The windows of groups, and the states of their contents.

    The key of a state is the group and the window's start.

    Args:
        window: Determines which windows hold a tuple.
        filters: In downstream mode: filters between the box and the stored results, over identity
            fields.
        horizon_ms: How long the state of a window is kept after it closes.
        chooses: Whether each closed window is replayed, or its result fetched, by what is cheaper.
    """

    window: Window | History
    filters: tuple[Filter, ...] = ()
    horizon_ms: int = 0
    chooses: bool = False

    @property
    def start(self) -> str:
        """Name of the field with a window's start; hidden if there is only one window."""
        return HIDDEN_PREFIX + START if isinstance(self.window, History) else START

    @property
    def end(self) -> str:
        """Name of the field with a window's end; hidden if there is only one window."""
        return HIDDEN_PREFIX + END if isinstance(self.window, History) else END

    @property
    def keys(self) -> list[str]:
        """Names of the columns that identify a window of a group."""
        return [*self.by, self.start]

    @property
    def stored(self) -> Arc:
        """The fields of its results that downstream mode fetches: identity and hidden fields.

        Every box between this box and the stored results leaves these fields unchanged.
        """
        kept = {
            name: kind
            for name, kind in self.arc.fields.items()
            if name in self.keys or name.startswith(HIDDEN_PREFIX)
        }
        return replace(self.arc, fields=kept)

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the tuples in the windows of some results."""
        of_groups = among(inputs[0], results, {name: name for name in self.by})
        if isinstance(self.window, History):
            return [of_groups]
        at = self.input.event_times(of_groups).alias("@at")
        tuples = of_groups.select(*self.by, at).with_row_index("@row")
        windows = by_column.pick(results, self.keys).with_columns(self.ends(results).alias("@end"))
        on: Any = {"on": list(self.by), "nulls_equal": True} if self.by else {"how": "cross"}
        pairs = tuples.join(windows, **on)
        is_in = pl.col("@at").is_between(self.start, "@end", closed="left")
        return [of_groups[pairs.filter(is_in)["@row"].unique().sort()]]

    # ---------------------------------------------------------------- states of windows

    def ends(self, frame: pl.DataFrame) -> pl.Series:
        """Return the exclusive ends of some windows."""
        return self.window.ends(frame[self.start])

    def emit(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the result tuples of the states, with hidden fields."""
        return super().emit(by_column.beside(states, self.ends(states).alias(self.end)))

    def no_states(self) -> pl.DataFrame:
        """Return an empty frame of states."""
        fields = {name: self.arc.fields[name].dtype for name in self.keys}
        return self.empty(pl.DataFrame(schema=fields))

    def states_of(self, tuples: pl.DataFrame, *, refused: Failures | None = None) -> pl.DataFrame:
        """Return the states of all windows that the tuples touch, from scratch.

        Args:
            tuples: Tuples of the input.
            refused: Why a tuple is in no window, by row; computed if it is None.
        """
        refused = self._refused(tuples) if refused is None else refused
        if self._by_panes:
            panes = self._panes(tuples, refused)
            return self._with_panes(self.empty(self._windows_of(panes)), panes)
        spread, rows = self._spread(tuples, refused)
        keys, groups = number_rows(spread, self.keys)
        return self._change(self.empty(keys), tuples, rows, groups, 1)

    def with_tuples(self, states: pl.DataFrame, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return the states after tuples have entered; tuples of other windows are passed over."""
        if self._by_panes:
            return self._with_panes(states, self._panes(tuples, self._refused(tuples)))
        spread, rows = self._spread(tuples, self._refused(tuples))
        if spread.is_empty() or states.is_empty():
            return states
        known = by_column.pick(states, self.keys).with_row_index("__group")
        found = spread.hstack([rows.alias("__row")]).join(known, on=self.keys, nulls_equal=True)
        return self._change(states, tuples, found["__row"], found["__group"], 1)

    def emitted(self, states: pl.DataFrame) -> tuple[pl.DataFrame, Failures]:
        """Return a result tuple for each state, and by row why a user's function fails."""
        return super().emitted(by_column.beside(states, self.ends(states).alias(self.end)))

    def _spread(self, tuples: pl.DataFrame, refused: Failures) -> tuple[pl.DataFrame, pl.Series]:
        """Return the window's key and the tuple's row for each pair of a tuple and its window."""
        rows, starts = self.window.touched(self.input.event_times(tuples))
        if refused:
            accepted = without_failures(refused, tuples.height)[rows]
            rows, starts = rows.filter(accepted), starts.filter(accepted)
        return self._keyed(tuples, rows, starts), rows

    def _keyed(self, tuples: pl.DataFrame, rows: pl.Series, starts: pl.Series) -> pl.DataFrame:
        """Return keys of windows: a start, and the group of the tuple in that row, for each."""
        groups = [tuples[name][rows] for name in self.by]
        return pl.DataFrame([*groups, starts.alias(self.start)])

    def _touched(self, tuples: pl.DataFrame, refused: Failures, leaving: int) -> Touched:
        """Return the windows that hold some tuples, of which the first `leaving` leave.

        Args:
            tuples: Tuples of the input.
            refused: Why a tuple is in no window, by row.
            leaving: How many leave. They have to be compensated for in each window.
        """
        paired, panes = tuples.height, None
        if self._by_panes:
            paired, panes = leaving, self._panes(tuples, refused, since=leaving)
        spread, rows = self._spread(
            tuples[:paired], {row: why for row, why in refused.items() if row < paired}
        )
        if panes is not None:
            spread = pl.concat([spread, self._windows_of(panes)])
        keys, groups = number_rows(spread, self.keys)
        return Touched(keys, rows, groups[: len(rows)], panes)

    # ---------------------------------------------------------------- windows that overlap much

    @property
    def _by_panes(self) -> bool:
        """Whether tuples enter panes, of which each window is then merged.

        A tuple enters one pane, however many windows hold it. The windows of a batch are merged in
        about log2(overlap) steps (`timeline.unions`).
        """
        window = self.window
        return isinstance(window, Hopping) and not window.tz and window.overlap >= PANES_FROM

    def _panes(self, tuples: pl.DataFrame, refused: Failures, *, since: int = 0) -> Timeline:
        """Return the states of panes; their start is in place of a window's.

        Args:
            tuples: Tuples of the input.
            refused: Why a tuple is in no window, by row.
            since: The first row whose tuple enters a pane.
        """
        assert isinstance(self.window, Hopping)
        rows = pl.Series(np.arange(since, tuples.height, dtype=np.uint32))
        rows = rows.filter(without_failures(refused, tuples.height)[since:])
        starts = self.window.panes(self.input.event_times(tuples)[rows])
        keys, numbers = number_rows(self._keyed(tuples, rows, starts), self.keys)
        states = self._change(self.empty(keys), tuples, rows, numbers, 1)
        return Timeline(states, by=self.by, at=self.start)

    def _windows_of(self, panes: Timeline) -> pl.DataFrame:
        """Return the keys of all windows that hold one of these panes, each once."""
        assert isinstance(self.window, Hopping)
        rows, starts = self.window.of_panes(panes.frame[self.start], panes.is_first)
        return self._keyed(panes.frame, rows, starts)

    def _with_panes(self, states: pl.DataFrame, panes: Timeline) -> pl.DataFrame:
        """Return the states of windows after the tuples of some panes have entered."""
        if states.is_empty() or panes.frame.is_empty():
            return states
        assert isinstance(self.window, Hopping)
        parts = [name for name in states.columns if name not in self.keys]
        entered = unions(
            by_column.pick(panes.frame, parts),
            self.initial_states(1),
            *panes.runs(states, 0, self.window.size_ms),
            self._merged,
        )
        return by_column.beside(states, *self._merged(states, entered))

    def accepted(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the tuples that are in windows, and the dead letters for the others."""
        refused = self._refused(tuples)
        accepted = tuples.filter(without_failures(refused, tuples.height))
        return accepted, self._tuple_dead_letters(tuples, refused, 0)

    def _tuple_dead_letters(
        self, entering: pl.DataFrame, refused: Failures, leaving: int
    ) -> list[Refused]:
        """Return the dead letters for tuples that enter and are in no window.

        Args:
            entering: Tuples that enter.
            refused: Why a tuple is in no window, by row among those that leave, then those that
                enter.
            leaving: How many tuples leave.
        """
        failures = {row - leaving: why for row, why in refused.items() if row >= leaving}
        return dead_letters_for(self.input.name, entering, failures)

    def _result_dead_letters(
        self, results: pl.DataFrame, failures: Failures, rows: pl.Series
    ) -> list[Refused]:
        """Return the dead letters for failed results of non-empty windows."""
        reasons = {row: why for row, why in failures.items() if rows[row] > 0}
        return dead_letters_for(self.arc.name, results.select(self.arc.identity), reasons)

    def _moved(
        self,
        states: pl.DataFrame,
        tuples: pl.DataFrame,
        rows: pl.Series,
        groups: pl.Series,
        leaving: int,
    ) -> pl.DataFrame:
        """Compensate the states for the first `leaving` tuples, then accumulate the others."""
        is_leaving = rows < leaving
        compensated = self._change(
            states, tuples, rows.filter(is_leaving), groups.filter(is_leaving), -1
        )
        return self._change(
            compensated, tuples, rows.filter(~is_leaving), groups.filter(~is_leaving), 1
        )

    def _stored_states(self, results: pl.DataFrame) -> pl.DataFrame:
        """Return the states behind stored results."""
        parts = [part for state in self.states for part in state.recall(results)]
        return by_column.pick(results, [*self.keys, *self.counted]).hstack(parts)

    def _among(self, states: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
        return states.join(keys, on=self.keys, how="semi", nulls_equal=True)

    def _with_known_states(self, states: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
        """Return the states in the same order, with each known state in place of its own."""
        if known.is_empty() or states.is_empty():
            return states
        parts = [name for name in states.columns if name not in self.keys]
        matches = by_column.pick(states, self.keys).join(
            by_column.pick(known, [*self.keys, *parts]),
            on=self.keys,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        is_unknown = matches[ROWS].is_null()
        replaced = (states[name].zip_with(is_unknown, matches[name]) for name in parts)
        return by_column.beside(states, *replaced)
