"""Windows by group that can be told from event times alone, and the states of what they hold."""

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
    """The windows of groups, and the states of what they hold.

    The key of a state is the group and the window's start.

    Args:
        window: Which windows hold a tuple.
        filters: Downstream: filters on the way to the stored results, over identity fields.
        horizon_ms: How long after it closed the state of a window is kept.
    """

    window: Window | History
    filters: tuple[Filter, ...] = ()
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

    # ---------------------------------------------------------------- states of windows

    def ends(self, frame: pl.DataFrame) -> pl.Series:
        """Return the exclusive ends of some windows."""
        return self.window.ends(frame[self.start])

    def emit(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the result tuples of the states, hidden part included."""
        return super().emit(states.with_columns(self.ends(states).alias(self.end)))

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

    def emitted(self, states: pl.DataFrame) -> tuple[pl.DataFrame, Failures]:
        """Return a result tuple for each state, and by row why a user's function fails for one."""
        return super().emitted(states.with_columns(self.ends(states).alias(self.end)))

    def _spread(self, tuples: pl.DataFrame, refused: Failures) -> tuple[pl.DataFrame, pl.Series]:
        """Return, a row a tuple and window that holds it, the window's key and the tuple's row."""
        rows, starts = self.window.touched(self.input.event_times(tuples))
        if refused:
            taken = without(refused, tuples.height).gather(rows)
            rows, starts = rows.filter(taken), starts.filter(taken)
        groups = [tuples[name].gather(rows) for name in self.by]
        return pl.DataFrame([*groups, starts.alias(self.start)]), rows

    def taken(self, tuples: pl.DataFrame) -> tuple[pl.DataFrame, list[Refused]]:
        """Return those of some tuples that are in windows, and why the others are in none."""
        refused = self._refused(tuples)
        there = tuples.filter(without(refused, tuples.height))
        return there, self._not_taken(tuples, refused, 0)

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
