"""What it costs to revise closed windows by replaying them and by fetching their results.

Borealis leaves the choice between upstream and downstream processing to a planner (section 3.3).
Windows that overlap share the tuples of a replay, so many small ones are cheaper to replay, and few
large ones to fetch. The unit of costs is a row that is read: a tuple, or a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Integers = npt.NDArray[np.int64]

PLACES = 1024
"""Groups share as many places, so that what is known of them needs bounded memory."""


class Cost(NamedTuple):
    """What the revision of one tuple of closed windows costs at most.

    Args:
        results: How many results it revises, and fetches downstream; None: any number.
        replayed_ms: How much event time of its group it replays upstream.
    """

    results: int | None
    replayed_ms: int


def places_of(windows: pl.DataFrame, by: Sequence[str]) -> Integers:
    """Return for each window the place that its group shares with some others.

    Args:
        windows: The windows, with the fields of their groups.
        by: These fields; without any there is one group.
    """
    if not by:
        return np.zeros(windows.height, np.int64)
    return (windows.select(by).hash_rows() % PLACES).to_numpy().astype(np.int64)


def _no_places() -> Integers:
    return np.zeros((2, PLACES), np.int64)


@dataclass(frozen=True)
class Sizes:
    """How large windows are, and what a replay of them takes: running totals.

    Args:
        windows: How many closed windows were seen, each time they closed or were revised.
        tuples: How many tuples they held.
        replayed: How many tuples were replayed.
        anchor_tuples: How many tuples of connection points these were computed from.
        by_place: Windows, and their tuples, by the place of their group, since the task started.
    """

    windows: int = 0
    tuples: int = 0
    replayed: int = 0
    anchor_tuples: int = 0
    by_place: Integers = field(default_factory=_no_places, compare=False, repr=False, kw_only=True)

    def plus(self, held: Integers, places: Integers | None = None) -> Sizes:
        """Return the totals with some more windows.

        Args:
            held: For each window, how many tuples it holds.
            places: For each, the place of its group; None if nobody asks for it.
        """
        by_place = self.by_place
        if places is not None and len(places):
            more = [np.bincount(places, weights, PLACES) for weights in (None, held)]
            by_place = by_place + np.array(more, np.int64)
        windows, tuples = self.windows + len(held), self.tuples + int(held.sum())
        return replace(self, windows=windows, tuples=tuples, by_place=by_place)

    def with_replay(self, replayed: int, anchor_tuples: int) -> Sizes:
        """Return the totals after a replay."""
        return replace(
            self,
            replayed=self.replayed + replayed,
            anchor_tuples=self.anchor_tuples + anchor_tuples,
        )

    @property
    def mean(self) -> float:
        """How many tuples a window holds; infinite if none was seen."""
        return self.tuples / self.windows if self.windows else np.inf

    def means(self, places: Integers) -> npt.NDArray[np.float64]:
        """Return the same for the groups of some places: `mean` where none was seen of them."""
        windows, tuples = self.by_place[:, places]
        means = np.full(len(places), self.mean)
        np.divide(tuples, windows, out=means, where=windows > 0)
        return means

    @property
    def anchors_share(self) -> float:
        """How many tuples of connection points a replayed tuple takes: 1 until that is known."""
        known = self.replayed and self.anchor_tuples
        return self.anchor_tuples / self.replayed if known else 1.0


UNKNOWN = Sizes()


class Ways(NamedTuple):
    """By which way each of some windows is revised.

    Args:
        replayed: For each window, whether it is replayed; else its result is fetched.
        expected: How many tuples and results are replayed and fetched for that, as estimated.
    """

    replayed: npt.NDArray[np.bool_]
    expected: int


def cheaper_ways(
    groups: Integers,
    starts: Integers,
    ends: Integers,
    *,
    tuples_a_ms: float | npt.NDArray[np.float64],
) -> Ways:
    """Return the cheaper way for each window.

    Windows of a group that overlap or touch are replayed, or fetched, together.

    Args:
        groups: For each window, the number of its group.
        starts: Their starts, in ms.
        ends: Their exclusive ends, in ms.
        tuples_a_ms: How many tuples are replayed for a millisecond of its group; one number is of
            all groups.

    Example:
        A tuple that lies in ten windows of 100 ms each, with a tuple in every 50 ms of its group:

        >>> starts = np.arange(0, 100, 10)
        >>> ways = cheaper_ways(np.zeros(10, np.int64), starts, starts + 100, tuples_a_ms=1 / 50)
        >>> bool(ways.replayed.all()), ways.expected
        (True, 4)
    """
    order = np.lexsort((starts, groups))
    group, start, end = groups[order], starts[order], ends[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (group[1:] != group[:-1]) | (start[1:] > end[:-1])
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(order)) - 1
    density = np.broadcast_to(tuples_a_ms, len(order))[order]
    tuples, results = (end[last] - start[first]) * density[first], last - first + 1
    is_cheaper = tuples < results
    replayed = np.empty(len(order), np.bool_)
    replayed[order] = is_cheaper[np.cumsum(is_first) - 1]
    expected = tuples[is_cheaper].sum() + results[~is_cheaper].sum()
    return Ways(replayed, round(expected))
