"""Windows by group that event times alone determine, and the states of their contents."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from errata.processors.boxes.aggregating import Aggregating
from errata.processors.boxes.base import Failures, Filter, Refused, failed, without
from errata.processors.boxes.states import END, ROWS, START, number_rows
from errata.processors.windows.time_windows import History, Window
from errata.schemas.arc import HIDDEN_PREFIX, Arc


@dataclass(frozen=True, kw_only=True)
class Windowed(Aggregating):
    """The windows of groups, and the states of their contents.

    The key of a state is the group and the window's start.

    Args:
        window: Determines which windows hold a tuple.
        filters: In downstream mode: filters between the box and the stored results, over identity
            fields.
        horizon_ms: How long the state of a window is kept after it closes.
    """

    window: Window | History
    filters: tuple[Filter, ...] = ()
    horizon_ms: int = 0

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

    # ---------------------------------------------------------------- states of windows

    def ends(self, frame: pl.DataFrame) -> pl.Series:
        """Return the exclusive ends of some windows."""
        return self.window.ends(frame[self.start])

    def emit(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the result tuples of the states, with hidden fields."""
        return super().emit(states.with_columns(self.ends(states).alias(self.end)))

    def no_states(self) -> pl.DataFrame:
        """Return an empty frame of states."""
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
            only: Keys of the windows to return; empty windows among them are left out.
            refused: Why a tuple is in no window, by row; computed if it is None.
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

    def emitted(self, states: pl.DataFrame) -> tuple[pl.DataFrame, Failures]:
        """Return a result tuple for each state, and by row why a user's function fails."""
        return super().emitted(states.with_columns(self.ends(states).alias(self.end)))

    def _spread(self, tuples: pl.DataFrame, refused: Failures) -> tuple[pl.DataFrame, pl.Series]:
        """Return the window's key and the tuple's row for each pair of a tuple and its window."""
        rows, starts = self.window.touched(self.input.event_times(tuples))
        if refused:
            taken = without(refused, tuples.height).gather(rows)
            rows, starts = rows.filter(taken), starts.filter(taken)
        groups = [tuples[name].gather(rows) for name in self.by]
        return pl.DataFrame([*groups, starts.alias(self.start)]), rows

    def taken(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the tuples that are in windows, and the dead letters for the others."""
        refused = self._refused(tuples)
        there = tuples.filter(without(refused, tuples.height))
        return there, self._not_taken(tuples, refused, 0)

    def _not_taken(self, entering: pl.DataFrame, refused: Failures, leaving: int) -> list[Refused]:
        """Return the dead letters for tuples that enter and are in no window.

        Args:
            entering: Tuples that enter.
            refused: Why a tuple is in no window, by row among those that leave, then those that
                enter.
            leaving: How many tuples leave.
        """
        fresh = {row - leaving: why for row, why in refused.items() if row >= leaving}
        return failed(self.input.name, entering, fresh)

    def _not_told(
        self, results: pl.DataFrame, failures: Failures, rows: pl.Series
    ) -> list[Refused]:
        """Return the dead letters for failed results of non-empty windows."""
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
        """Compensate the states for the first `leaving` tuples, then accumulate the others."""
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
        """Return the states in the same order, with each known state in place of its own."""
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
