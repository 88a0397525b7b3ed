"""Instants of groups in time order, and unions over runs of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        places = np.searchsorted(self._instants, instants)
        if groups is None:
            return places
        codes: Rows = groups.cast(pl.Int64).to_numpy() * (len(self._instants) + 1) + places
        return codes


Merge = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


def unions(
    states: pl.DataFrame, none: pl.DataFrame, first: Rows, end: Rows, merge: Merge
) -> pl.DataFrame:
    """Return the union of the states of every run of rows.

    Neighbours are merged into pairs, pairs into fours, and so on; a run consists of at most two
    pieces of each size. That is O(n + m log n) merged states for n rows and m runs, in two calls
    for each of log n sizes, and needs only `merge` of a function.

    Args:
        states: One state per row.
        none: The empty state, in one row.
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
    found = none[np.zeros(len(first), np.int64)]
    while True:
        count = states.height
        padded = pl.concat([states, none])  # row `count`: no piece
        inside = first < end
        left, right = inside & (first & 1 == 1), inside & (end & 1 == 1)
        found = merge(found, padded[np.where(left, first, count)])
        found = merge(found, padded[np.where(right, end - 1, count)])
        first, end = (first + left) >> 1, (end - right) >> 1
        if not (first < end).any():
            return found
        states = padded[: count + count % 2]
        states = merge(states[::2], states[1::2])
