"""Aggregates over windows that count tuples (`windows.row_windows`).

A *sliding* window ends with each tuple of a group. Its result has the identity of that tuple, so an
insert or delete changes only the windows that hold the tuple. A *hopping* window starts with each
tuple whose number is a multiple of `every`; an insert or delete moves all windows that follow. The
state of a window is merged from those of its tuples, so a function needs only `merge`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from errata.processors.boxes.aggregating import Aggregating
from errata.processors.boxes.base import WHY, Failures, Filter, without_failures
from errata.processors.boxes.matching import among
from errata.processors.boxes.modes import ADAPTIVE, RESIDENT, Choice, ModeRequest
from errata.processors.boxes.ordered import (
    NEVER_LEGAL,
    NO_RADIUS,
    READ_AGAIN,
    Numbers,
    Ordered,
    OrderedGroups,
)
from errata.processors.boxes.states import END, START
from errata.processors.boxes.timeline import unions
from errata.processors.declare.faults import Fault
from errata.processors.windows.row_windows import HoppingRows, RowWindow
from errata.schemas.arc import HIDDEN_PREFIX

TIME = HIDDEN_PREFIX + "at"
"""The event time of a hopping window: that of the last tuple in it."""


@dataclass(frozen=True, kw_only=True)
class Counting(Aggregating, Ordered):
    """An aggregate box over windows that count tuples.

    A result that waits is emitted once the watermark has passed the last tuple of its window. A
    hopping window must be full as well. The first sliding windows of a group are not full.

    Args:
        window: Which tuples a window holds.
    """

    window: RowWindow

    @property
    def keys(self) -> list[str]:
        """Names of the columns that identify a window, and of its event time."""
        if isinstance(self.window, HoppingRows):
            return [*self.by, START, END, TIME]
        return list(dict.fromkeys([*self.by, *self.input.identity, self.input.event_time]))

    @property
    def reach(self) -> int:
        """How many preceding tuples a result reads; at least one, which determines the number."""
        return max(1, self.window.rows - 1)

    @property
    def looks_ahead(self) -> bool:
        """Whether later tuples matter: a hopping window has the event time of its last tuple."""
        return self.on_update and isinstance(self.window, HoppingRows)

    def choose_mode(self, request: ModeRequest) -> Choice | Fault:
        """Return how it revises emitted results: it rereads groups, or keeps its whole input."""
        requested = RESIDENT if request.override == RESIDENT else self.mode
        if request.on_spark:
            requested = self.mode
        if requested == ADAPTIVE or (requested == RESIDENT and not request.on_spark):
            reason = "requested" if requested == RESIDENT else READ_AGAIN
            return Choice(requested, requested, reason, illegal=NEVER_LEGAL)
        need = f"mode={ADAPTIVE!r} or mode={RESIDENT!r} with windows that count tuples"
        if request.on_spark:
            need = f"mode={ADAPTIVE!r} with windows that count tuples and place='spark'"
        why_not = "Spark keeps its input" if requested == RESIDENT else NO_RADIUS
        found = f"{requested!r}, but {why_not}"
        return Fault(self.arc.name, need, found, "omit mode=", request.place)

    def in_mode(self, choice: Choice, filters: tuple[Filter, ...]) -> Counting:
        """Return the aggregate configured for a mode."""
        return replace(self, mode=choice.mode)

    def refused(self, tuples: pl.DataFrame) -> Failures:
        """Return by row why a user's function refuses a tuple; such a tuple is in no window."""
        return self._refused(tuples)

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {
            "aggregate": {name: result.text for name, result in self.results.items()},
            "by": list(self.by),
            **self.window.describe(),
            **({"emit": "on_update"} if self.on_update else {}),
            "input": self.input.name,
        }

    def due_results(self, ordered: OrderedGroups, *, wm: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results that are due, of windows whose tuples are all known.

        The second frame holds the states for which a user's function fails.
        """
        size, number = self.window.rows, ordered.first + ordered.position
        times = self.input.event_times(ordered.tuples).to_numpy()
        if isinstance(self.window, HoppingRows):
            first = np.flatnonzero(number % self.window.every == 0)
            end = np.minimum(first + size, ordered.end[first])
            full = end - first == size
        else:
            has_predecessors = (ordered.position >= size - 1) | (ordered.first == 0)
            end = ordered.rows[has_predecessors] + 1
            first = np.maximum(end - size, ordered.start[has_predecessors])
            full = np.ones(len(end), np.bool_)
        due = (full & (times[end - 1] < wm)) | self.on_update
        return self._results(ordered.tuples, number, first[due], end[due])

    def _read_by(self, results: pl.DataFrame, ordered: OrderedGroups) -> tuple[Numbers, Numbers]:
        """Return the first row that each of some results reads, and the row after the last."""
        if not isinstance(self.window, HoppingRows):
            return super()._read_by(results, ordered)
        first_rows = ordered.tuples.with_row_index("@row").with_columns(
            pl.Series(START, ordered.first + ordered.position)
        )
        names = {name: name for name in (*self.by, START)}
        first = among(first_rows, results, names)["@row"].to_numpy().astype(np.int64)
        return first, np.minimum(first + self.window.rows, ordered.end[first])

    def _results(
        self, tuples: pl.DataFrame, number: Numbers, first: Numbers, end: Numbers
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results of runs of tuples, and the states without a result."""
        keys = tuples[end - 1]
        if isinstance(self.window, HoppingRows):
            starts = pl.Series(number[first])
            keys = keys.with_columns(
                starts.alias(START),
                (starts + self.window.rows).alias(END),
                self.input.event_times(keys).alias(TIME),
            )
        used, first, end = _compacted(tuples, first, end)
        rows = pl.Series(np.arange(used.height, dtype=np.uint32))
        states_of_rows = self._change(self.initial_states(used.height), used, rows, rows, 1)
        merged = unions(states_of_rows, self.initial_states(1), first, end, self._merged)
        states = pl.concat([keys.select(self.keys), merged], how="horizontal")
        results, failures = self.emitted(states)
        failed_states = states[list(failures)].with_columns(
            pl.Series(WHY, list(failures.values()), pl.String)
        )
        return results.filter(without_failures(failures, states.height)), failed_states


def _compacted(
    tuples: pl.DataFrame, first: Numbers, end: Numbers
) -> tuple[pl.DataFrame, Numbers, Numbers]:
    """Return the tuples in some runs, and the runs as indexes into these tuples."""
    edges = [np.bincount(indexes, minlength=tuples.height + 1) for indexes in (first, end)]
    used = np.cumsum(edges[0] - edges[1])[:-1] > 0
    new_index = np.concatenate([[0], np.cumsum(used)])
    return tuples.filter(pl.Series(used)), new_index[first], new_index[end]
