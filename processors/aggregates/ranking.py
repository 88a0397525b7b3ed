"""``top_k(x, k)`` and ``most_common(x, k)``: a few values of a group as a JSON array.

An arc's tuples are flat, so the array is text.
"""

from __future__ import annotations

from json.encoder import encode_basestring

import numpy as np
import polars as pl

from errata.processors.aggregates.bag import VALUES, BagOfValues
from errata.processors.aggregates.grouping import Counts, laid_out
from errata.processors.expressions.casts import cast
from errata.schemas.fields import FieldType

MOST = 1_000
"""The most values of a result."""

_NUMBERS = ("int", "long", "decimal", "float", "double", "boolean")
_NOT_FINITE = {"NaN": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_texts(values: pl.Series, kind: FieldType) -> pl.Series:
    """Return values as JSON: numbers and booleans as such, others as by ``cast(x as string)``.

    A decimal has all its digits; a value that is not finite is a string.

    Example:
        >>> json_texts(pl.Series([1.5, float("inf")]), FieldType("double")).to_list()
        ['1.5', '"Infinity"']
        >>> json_texts(pl.Series([20454]), FieldType("date")).to_list()
        ['"2026-01-01"']
    """
    if kind.kind in ("float", "double"):
        return values.cast(pl.String).replace(_NOT_FINITE)
    texts = cast(kind, FieldType("string"))(values)
    if kind.kind in _NUMBERS:
        return texts
    return pl.Series(list(map(encode_basestring, texts.to_list())), dtype=pl.String)


class Ranking(BagOfValues):
    """The base of functions that return a few values of a group; null without values.

    Args:
        argument: A type other than bytes.
        most: The most values to return, from 1 to `MOST`.
    """

    def __init__(self, argument: FieldType, most: int) -> None:
        super().__init__(argument, result=FieldType("string", optional=True))
        self.most = most

    def _arrays(self, height: int, groups: Counts, items: pl.Series) -> pl.Series:
        """Return the JSON arrays of items that are ordered by group."""
        listed = (
            pl.DataFrame({"group": groups, "item": items})
            .group_by("group", maintain_order=True)
            .agg(pl.col("item").str.join(","))
        )
        return laid_out("[" + listed["item"] + "]", listed["group"], height)


class TopK(Ranking):
    """The largest values with duplicates, the largest first; NaN is above all.

    Example:
        >>> top = TopK(FieldType("long"), 3)
        >>> groups = pl.Series([0, 0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [9, 1, 9, 2]})
        >>> top.emit(top.accumulate(top.init(1), groups, rows))[0]
        '[9,9,2]'
    """

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the arrays."""
        contents = self.contents(states)
        group, counts = contents.group, contents.counts
        # The rows of the group above a line, from running totals over all groups.
        above = np.cumsum(contents.sizes)[group] - np.cumsum(counts)
        taken = np.clip(self.most - above, 0, counts)
        lines = np.repeat(np.arange(len(group)), taken)[::-1]
        lines = lines[np.argsort(group[lines], kind="stable")]
        values = contents.rows[VALUES][lines]
        return self._arrays(states.height, group[lines], json_texts(values, self.argument))


class MostCommon(Ranking):
    """The most frequent values with their counts, the most frequent first.

    Of equally frequent values the smaller one comes first. Names are those of Spark's approx_top_k.

    Example:
        >>> common = MostCommon(FieldType("string"), 2)
        >>> groups = pl.Series([0, 0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": ["b", "c", "a", "c"]})
        >>> common.emit(common.accumulate(common.init(1), groups, rows))[0]
        '[{"item":"c","count":2},{"item":"a","count":1}]'
    """

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the arrays."""
        contents = self.contents(states)
        lines = np.lexsort((-contents.counts, contents.group))
        group = contents.group[lines]
        rank = np.arange(len(group)) - np.searchsorted(group, group)
        lines, group = lines[rank < self.most], group[rank < self.most]
        items = json_texts(contents.rows[VALUES][lines], self.argument)
        counts = pl.Series(contents.counts[lines]).cast(pl.String)
        return self._arrays(states.height, group, '{"item":' + items + ',"count":' + counts + "}")
