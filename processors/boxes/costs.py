"""What it costs to revise closed windows by replaying them and by fetching their results.

Borealis leaves the choice between upstream and downstream processing to a planner (section 3.3).
Windows that overlap share the tuples of a replay, so many small ones are cheaper to replay, and few
large ones to fetch. The unit of costs is a value: one field of one tuple, or of one result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Cost(NamedTuple):
    """What the revision of one tuple of closed windows costs at most.

    Args:
        results: How many results it revises, and fetches downstream; None: any number.
        replayed_ms: How much event time of its group it replays upstream.
    """

    results: int | None
    replayed_ms: int


class Sizes(NamedTuple):
    """How large windows are: a running total.

    Args:
        windows: How many closed windows were seen, each time they closed or were revised.
        tuples: How many tuples they held.
    """

    windows: int = 0
    tuples: int = 0

    def plus(self, windows: int, tuples: int) -> Sizes:
        """Return the total with some more windows."""
        return Sizes(self.windows + windows, self.tuples + tuples)

    @property
    def mean(self) -> float:
        """How many tuples a window holds; infinite if none was seen."""
        return self.tuples / self.windows if self.windows else np.inf


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
    tuples_a_ms: float,
    values_a_tuple: int,
    values_a_result: int,
) -> Ways:
    """Return the cheaper way for each window.

    Windows of a group that overlap or touch are replayed, or fetched, together.

    Args:
        groups: For each window, the number of its group.
        starts: Their starts, in ms.
        ends: Their exclusive ends, in ms.
        tuples_a_ms: How many tuples a group has in a millisecond.
        values_a_tuple: How many fields of a tuple are replayed.
        values_a_result: How many fields of a result are fetched.

    Example:
        A tuple that lies in ten windows of 100 ms each, with a tuple in every 50 ms of its group:

        >>> starts = np.arange(0, 100, 10)
        >>> ways = cheaper_ways(np.zeros(10, np.int64), starts, starts + 100, tuples_a_ms=1 / 50,
        ...     values_a_tuple=4, values_a_result=4)
        >>> bool(ways.replayed.all()), ways.expected
        (True, 4)
    """
    order = np.lexsort((starts, groups))
    group, start, end = groups[order], starts[order], ends[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (group[1:] != group[:-1]) | (start[1:] > end[:-1])
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(order)) - 1
    tuples, results = (end[last] - start[first]) * tuples_a_ms, last - first + 1
    is_cheaper = tuples * values_a_tuple < results * values_a_result
    replayed = np.empty(len(order), np.bool_)
    replayed[order] = is_cheaper[np.cumsum(is_first) - 1]
    expected = tuples[is_cheaper].sum() + results[~is_cheaper].sum()
    return Ways(replayed, round(expected))
