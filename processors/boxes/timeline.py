"""Instants of groups in time order, and unions over runs of them.

`unions` merges the states of any runs. `TwoStacks` merges runs that only move forward, at constant
cost for each instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.boxes.states import number_rows

Rows = npt.NDArray[np.int64]


class Timeline:
    """A frame's rows by group and instant.

    Args:
        frame: One row per instant of a group.
        by: Group fields.
        at: Column of the instants, Int64.

    Attributes:
        frame: The same rows, grouped and in time order.
        is_first: Whether each row is the first of its group.

    Example:
        >>> frame = pl.DataFrame({"g": ["a", "b", "a", "a"], "at": [30, 5, 10, 20]})
        >>> line = Timeline(frame, by=["g"], at="at")
        >>> first, end = line.runs(pl.DataFrame({"g": ["a", "b"], "at": [30, 4]}), -10, 1)
        >>> [line.frame["at"][i:j].to_list() for i, j in zip(first, end)]
        [[20, 30], []]
    """

    def __init__(self, frame: pl.DataFrame, *, by: Sequence[str], at: str) -> None:
        self._by, self._at = list(by), at
        self._groups, groups = number_rows(frame, self._by) if by else (pl.DataFrame(), None)
        instants = frame[at].to_numpy()
        self._instants = np.unique(instants)
        codes = self._codes(groups, instants)
        order = np.argsort(codes, kind="stable")
        self._sorted, self.frame = codes[order], frame[order]
        group = self._sorted // (len(self._instants) + 1)
        self.is_first = np.diff(group, prepend=-1) > 0

    def runs(self, keys: pl.DataFrame, after: int, until: int) -> tuple[Rows, Rows]:
        """Return for each key the rows of its group within bounds relative to its instant.

        Args:
            keys: Group fields and an instant, in any order.
            after: Added to the instant: where the run begins.
            until: Added to the instant: where it ends, exclusive.

        Returns:
            The index in `frame` of the run's first row, and of the row after its last.
        """
        groups = None
        if self._by:
            groups = (
                keys.select(self._by)
                .join(
                    self._groups.with_row_index("@group"),
                    on=self._by,
                    how="left",
                    nulls_equal=True,
                    maintain_order="left",
                )["@group"]
                .cast(pl.Int64)
                .fill_null(-1)
            )  # a group without rows sorts before all others
        instants = keys[self._at].to_numpy()
        first, end = (
            np.searchsorted(self._sorted, self._codes(groups, instants + offset))
            for offset in (after, until)
        )
        return first, end

    def _codes(self, groups: pl.Series | None, instants: Rows) -> Rows:
        """Return numbers that sort by group and instant."""
        positions = np.searchsorted(self._instants, instants)
        if groups is None:
            return positions
        codes: Rows = groups.cast(pl.Int64).to_numpy() * (len(self._instants) + 1) + positions
        return codes


Merge = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


def unions(
    states: pl.DataFrame, empty: pl.DataFrame, first: Rows, end: Rows, merge: Merge
) -> pl.DataFrame:
    """Return the union of the states of every run of rows.

    Neighbours are merged into pairs, pairs into fours, and so on; a run consists of at most two
    pieces of each size. That is O(n + m log n) merged states for n rows and m runs, in two calls
    for each of log n sizes, and needs only `merge` of a function.

    Args:
        states: One state per row.
        empty: The empty state, in one row.
        first: The first row of each run.
        end: The row after the last of each run.
        merge: Returns the unions of two frames of states, row by row.

    Example:
        >>> states = pl.DataFrame({"n": [1, 2, 3, 4]})
        >>> runs = np.array([0, 1, 2]), np.array([4, 4, 2])
        >>> merged = unions(states, pl.DataFrame({"n": [0]}), *runs, lambda one, two: one + two)
        >>> merged["n"].to_list()
        [10, 9, 0]
    """
    merged = empty[np.zeros(len(first), np.int64)]
    while True:
        count = states.height
        padded = pl.concat([states, empty])  # row `count`: no piece
        remaining = first < end
        has_left, has_right = remaining & (first & 1 == 1), remaining & (end & 1 == 1)
        merged = merge(merged, padded[np.where(has_left, first, count)])
        merged = merge(merged, padded[np.where(has_right, end - 1, count)])
        first, end = (first + has_left) >> 1, (end - has_right) >> 1
        if not (first < end).any():
            return merged
        states = padded[: count + count % 2]
        states = merge(states[::2], states[1::2])


_ALL = "@all"


def prefixes(
    states: pl.DataFrame, empty: pl.DataFrame, is_first: npt.NDArray[np.bool_], merge: Merge
) -> pl.DataFrame:
    """Return for each row the union of its run up to it: O(n) merged states, in O(log n) calls.

    Args:
        states: One state per row.
        empty: The empty state, in one row.
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
    padded = pl.concat([states, empty])
    odd, even = np.arange(1, count, 2), np.arange(2, count, 2)
    pairs = merge(padded[np.where(is_first[odd], count, odd - 1)], states[odd])
    odd_rows = prefixes(pairs, empty, is_first[odd] | is_first[odd - 1], merge)  # of the odd rows
    preceding = np.where(is_first[even], odd_rows.height, even // 2 - 1)
    even_rows = merge(pl.concat([odd_rows, empty])[preceding], states[even])
    order = np.arange(count) // 2
    order[even] += odd_rows.height
    order[0] = odd_rows.height
    return pl.concat([odd_rows, states[:1], even_rows])[order]


@dataclass(frozen=True)
class TwoStacks:
    """A queue of the instants of all groups, as two stacks.

    The front stack has the instants before a turning point and the merged state of each suffix of
    them. The back stack has one merged state of all instants since. A window is the union of a
    suffix, of the instants since, and of the instants it ends with. When windows no longer reach
    back to the turning point, a new one is chosen. So each instant is merged a few times, however
    many are in a window, and no tuple is ever compensated: extremes are as cheap as sums, and
    rounded values can't drift.

    Tangwongsan, Hirzel, Schneider and Wu, *General incremental sliding-window aggregation* (VLDB
    2015). Here a batch of windows is computed at a time, by scans as in Blelloch, *Prefix sums and
    their applications* (1990).

    Args:
        by: Group fields.
        turning_point: The first instant after the turning point.
        front: The instants before it.
        suffixes: The union of each of these with all that follow in its group; last, the empty one.
        groups: The groups that have instants since the turning point.
        since: For each of these groups the union of these instants; last the empty state.
    """

    by: Sequence[str]
    turning_point: int
    front: Timeline
    suffixes: pl.DataFrame
    groups: pl.DataFrame
    since: pl.DataFrame

    @classmethod
    def build(
        cls,
        front: Timeline,
        turning_point: int,
        *,
        by: Sequence[str],
        empty: pl.DataFrame,
        merge: Merge,
    ) -> TwoStacks:
        """Return the stacks for some instants, all of them before the turning point."""
        parts = front.frame.select(empty.columns)
        is_last = np.append(front.is_first[1:], True)[: parts.height]
        suffixes = prefixes(parts[::-1], empty, is_last[::-1], merge)[::-1]
        groups = _groups(front.frame.clear(), by)
        return cls(by, turning_point, front, pl.concat([suffixes, empty]), groups, empty)

    def extend(self, ending: Timeline, size: int, merge: Merge) -> tuple[pl.DataFrame, TwoStacks]:
        """Return the windows that end with some instants, and the stacks with these added.

        Args:
            ending: Instants, later than all so far. The last window begins at or before the turning
                point.
            size: The length of a window.
            merge: Returns the unions of two frames of states, row by row.
        """
        empty, groups = self.since[-1:], _groups(ending.frame, self.by)
        prefix_states = prefixes(ending.frame.select(empty.columns), empty, ending.is_first, merge)
        known = self.groups.with_row_index("@place")
        position = groups.join(
            known, on=groups.columns, how="left", nulls_equal=True, maintain_order="left"
        )["@place"]
        since = merge(self.since[position.fill_null(known.height)], prefix_states)
        first, end = self.front.runs(ending.frame, 1 - size, 1)
        windows = merge(self.suffixes[np.where(first < end, first, len(self.suffixes) - 1)], since)
        is_last = pl.Series(np.append(ending.is_first[1:], True)[: groups.height])
        unchanged = np.setdiff1d(np.arange(known.height), position.filter(is_last).drop_nulls())
        return windows, replace(
            self,
            groups=pl.concat([self.groups[unchanged], groups.filter(is_last)]),
            since=pl.concat([self.since[unchanged], since.filter(is_last), empty]),
        )


def _groups(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    if by:
        return frame.select(by)
    return pl.DataFrame([pl.repeat(0, frame.height, dtype=pl.Int8, eager=True).alias(_ALL)])


def append_run(runs: tuple[pl.DataFrame, ...], last: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
    """Append a run to runs of rows, concatenated so that only O(log n) of them remain.

    Example:
        >>> runs = ()
        >>> for number in range(11):
        ...     runs = append_run(runs, pl.DataFrame({"n": [number]}))
        >>> [run.height for run in runs]
        [8, 2, 1]
    """
    *others, last = *runs, last
    while others and others[-1].height <= last.height:
        last = pl.concat([others.pop(), last])
    return *others, last
