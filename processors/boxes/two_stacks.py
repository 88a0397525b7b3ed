"""Windows that slide over instants in order of time, by no more than the union of states.

Two stacks make a queue: what is before a turning point, of which every suffix is united, and what
has come since, united to one. A window is a suffix, what has come since, and what comes with it.
When the windows have left the turning point behind, a new one is made. So each instant is merged a
few times, however many are in a window, and nothing ever has to be taken off: extremes are as cheap
as sums, and what is rounded can't drift.

Tangwongsan, Hirzel, Schneider and Wu, *General incremental sliding-window aggregation* (VLDB 2015);
here a batch of windows at a time, by scans as in Blelloch, *Prefix sums and their applications*
(1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.boxes.timeline import Merge, Timeline

_ALL = "@all"


def prefixes(
    states: pl.DataFrame, none: pl.DataFrame, is_first: npt.NDArray[np.bool_], merge: Merge
) -> pl.DataFrame:
    """Return for each row the union of its run up to it: O(n) merged states, in O(log n) calls.

    Args:
        states: A row a state.
        none: The state that holds nothing, in one row.
        is_first: Whether a run begins with a row.
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
        suffixes: The union of each of these with all that follow in its group, and nothing.
        groups: The groups that have instants since.
        since: For each the union of these, and nothing.
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
        """Return the stacks of some instants, all of them before the turning point."""
        parts = front.frame.select(none.columns)
        is_last = np.append(front.is_first[1:], True)[: parts.height]
        suffixes = prefixes(parts[::-1], none, is_last[::-1], merge)[::-1]
        groups = _groups(front.frame.clear(), by)
        return cls(by, turning, front, pl.concat([suffixes, none]), groups, none)

    def followed(self, ending: Timeline, size: int, merge: Merge) -> tuple[pl.DataFrame, TwoStacks]:
        """Return the windows that end with some instants, and the stacks that these are part of.

        Args:
            ending: Instants, later than all so far. The last window begins before the turning point
                or with it.
            size: How long a window is.
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
    """Return runs of rows and one more, joined so that there are but O(log n) of them.

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
