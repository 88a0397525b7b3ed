"""Functions that need every value of a group: their state is a sorted bag.

They are ``count(distinct x)``, ``mode``, ``percentile`` and ``median``, ``top_k`` and
``most_common``, and ``realised_volatility``. They are not invertible: after a row leaves, only the
content determines the result. So the state is the content itself: its distinct rows in order, each
with its count.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import repeat
from json.encoder import encode_basestring
from operator import add, itemgetter, mul, sub, truediv

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.compensating import AVERAGES, Part, Signed
from errata.processors.aggregates.grouping import Counts, scatter_to_groups
from errata.processors.aggregates.ladder import Key
from errata.processors.expressions.casts import cast
from errata.schemas.fields import MAX_PRECISION, FieldType

VALUES, COUNTS = "values", "counts"


@dataclass(frozen=True)
class Contents:
    """The contents of some bags, one line per distinct row, ordered by group and then by row.

    Args:
        group: Index of a row's group, in 64 bits.
        rows: The rows, in physical types.
        counts: The count of each row.
        sizes: The number of rows by group: the sum of its counts.
    """

    group: Counts
    rows: pl.DataFrame
    counts: Counts
    sizes: Counts

    def at(self, groups: Counts, ranks: Counts) -> Counts:
        """Return the lines that hold the rows of some ranks, from 0, with each row's count.

        Args:
            groups: Groups that have rows.
            ranks: For each group a number below its size.
        """
        before = np.cumsum(self.sizes) - self.sizes
        return np.searchsorted(np.cumsum(self.counts), before[groups] + ranks, side="right")


class Bag(Signed):
    """The distinct rows of each group in order, each with its count.

    NaN equals NaN and is above all numbers, -0.0 is 0.0, null is below all values. Texts and bytes
    are ordered by their octets. The cost of a change is linear in the contents of the groups that
    it touches. No result carries a bag: see `kept`.

    Args:
        order: Keys by column, most significant first; rows that are equal in all of them are the
            same row.
        columns: The columns in the order of the arguments.
        needed: Columns; rows in which one of them is null are ignored.
        result: Type of the emitted value.
    """

    result: FieldType

    def __init__(
        self,
        order: Mapping[str, Key],
        *,
        columns: Sequence[str],
        needed: Sequence[str],
        result: FieldType,
    ) -> None:
        self.order = order
        self.columns = columns
        self.needed = needed
        self.result = result
        lists = {name: pl.List(_list_item_type(key.type)) for name, key in order.items()}
        self.parts: dict[str, Part] = {**lists, COUNTS: pl.List(pl.Int64)}

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Functions that need the same rows in the same order share their state."""
        return ("bag", *self.order.items(), *self.needed)

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Add rows to their bags, or remove them."""
        arguments = dict(zip(self.columns, values.get_columns(), strict=True))
        columns = [
            _normalized(arguments[name]).cast(_list_item_type(key.type)).alias(name)
            for name, key in self.order.items()
        ]
        count = pl.repeat(sign, len(groups), dtype=pl.Int64, eager=True).alias(COUNTS)
        rows = pl.DataFrame([groups.cast(pl.UInt32).alias("@group"), *columns, count])
        return self._updated(states, rows.drop_nulls(self.needed))

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Merge both bags."""
        return self._updated(one, self._exploded(other))

    def contents(self, states: pl.DataFrame) -> Contents:
        """Return the contents of the bags."""
        lines = self._exploded(states)
        group, counts = (lines[name].to_numpy().astype(np.int64) for name in ("@group", COUNTS))
        sizes = np.zeros(states.height, dtype=np.int64)
        np.add.at(sizes, group, counts)
        rows = [lines[name].cast(key.type.dtype) for name, key in self.order.items()]
        return Contents(group, pl.DataFrame(rows), counts, sizes)

    def _updated(self, states: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the states after rows are added, or removed by counts below 0."""
        if rows.is_empty():
            return states
        touched = np.zeros(states.height, dtype=np.bool_)
        touched[rows["@group"].to_numpy()] = True
        largest = [key.largest for key in self.order.values()]
        names = ["@group", *self.order]
        lines = (
            pl.concat([self._exploded(states, touched), rows])
            .group_by(names)
            .agg(pl.col(COUNTS).sum())
            .filter(pl.col(COUNTS) != 0)
            .sort(names, descending=[False, *largest], nulls_last=[False, *largest])
        )
        bags = lines.group_by("@group", maintain_order=True).agg(pl.col(*self.order, COUNTS))
        # Lines to choose from: the old ones, then an empty one, then the new ones.
        order = np.where(touched, states.height, np.arange(states.height))
        order[bags["@group"].to_numpy()] = states.height + 1 + np.arange(bags.height)
        return pl.concat([states, self.init(1), bags.select(list(self.parts))])[order]

    def _exploded(
        self, states: pl.DataFrame, selected: npt.NDArray[np.bool_] | None = None
    ) -> pl.DataFrame:
        """Return the contents of all bags or of some, one line per distinct row."""
        is_selected = states[COUNTS].list.len() > 0
        if selected is not None:
            is_selected &= pl.Series(selected)
        return states.with_row_index("@group").filter(is_selected).explode(list(self.parts))


class BagOfValues(Bag):
    """The values of an argument, in order; nulls are ignored.

    Args:
        argument: Type of the argument.
        result: Type of the emitted value.
    """

    def __init__(self, argument: FieldType, *, result: FieldType) -> None:
        key = Key(argument.required, largest=False)
        super().__init__({VALUES: key}, columns=(VALUES,), needed=(VALUES,), result=result)
        self.argument = argument


def _list_item_type(kind: FieldType) -> pl.DataType | type[pl.DataType]:
    """Return the type of a field's values in a list: Arrow has no 128-bit integers."""
    return pl.Decimal(MAX_PRECISION, 0) if kind.dtype == pl.Int128 else kind.dtype


def _normalized(column: pl.Series) -> pl.Series:
    """Return a column in which equal values have the same bits: -0.0 becomes 0.0."""
    if not column.dtype.is_float():
        return column
    return column.set(column == 0.0, 0.0)


MAX_VALUES = 1_000
"""The most values of a result."""
_NUMBERS = ("int", "long", "decimal", "float", "double", "boolean")
_NOT_FINITE = {"NaN": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_DOUBLE = FieldType("double")


class CountDistinct(Bag):
    """The number of different values, or of different rows of values; 0 for none.

    A row with a null in it isn't counted. NaN is one value; -0.0 and 0.0 are the same value.

    Args:
        arguments: Types of the arguments.

    Example:
        >>> distinct = CountDistinct([FieldType("string")])
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": ["a", "b", "a"]})
        >>> states = distinct.accumulate(distinct.init(1), groups, rows)
        >>> left = [distinct.compensate(states, groups[:1], rows[n : n + 1]) for n in range(2)]
        >>> [distinct.emit(some)[0] for some in (states, *left)]
        [2, 2, 1]
    """

    def __init__(self, arguments: Sequence[FieldType]) -> None:
        names = [VALUES, *(f"{VALUES}_{number}" for number in range(1, len(arguments)))]
        order = dict(zip(names, (Key(kind.required, False) for kind in arguments), strict=True))
        super().__init__(order, columns=names, needed=names, result=FieldType("long"))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the counts, never null."""
        return states[COUNTS].list.len().cast(pl.Int64)


class Mode(BagOfValues):
    """The most frequent value, the smallest one among equally frequent ones; null without values.

    Spark does not define which of these it returns, except for ``mode(x, true)``.

    Example:
        >>> mode = Mode(FieldType("string"))
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": ["b", "a", "b"]})
        >>> states = mode.accumulate(mode.init(1), groups, rows)
        >>> mode.emit(states)[0], mode.emit(mode.compensate(states, groups[:1], rows[:1]))[0]
        ('b', 'a')
    """

    def __init__(self, argument: FieldType) -> None:
        super().__init__(argument, result=argument.nullable)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the modes."""
        contents = self.contents(states)
        most = np.zeros(states.height, dtype=np.int64)
        np.maximum.at(most, contents.group, contents.counts)
        lines = np.flatnonzero(contents.counts == most[contents.group])
        groups, first = np.unique(contents.group[lines], return_index=True)
        return scatter_to_groups(contents.rows[VALUES][lines[first]], groups, states.height)


class Percentile(BagOfValues):
    """The value that a share of all values doesn't exceed; null without values.

    Of n values in order, numbered from 0, it is the value at p * (n - 1); between two values it is
    interpolated linearly, as in Spark, but as the nearest double. Spark first rounds the position
    (the value 7 at 0.07 * 100 becomes 7.000000000000001), then each value, then twice more. Between
    an infinity and another value the result is that infinity; between the two infinities, or next
    to a NaN, it is NaN.

    Args:
        argument: A number.
        share: p, from 0 to 1.

    Example:
        >>> median = Percentile(FieldType("long"), Fraction(1, 2))
        >>> groups = pl.Series([0, 0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [9, 1, 4, 2]})
        >>> states = median.accumulate(median.init(1), groups, rows)
        >>> median.emit(states)[0], median.emit(median.compensate(states, groups[:1], rows[:1]))[0]
        (3.0, 2.0)
    """

    distance = AVERAGES

    def __init__(self, argument: FieldType, share: Fraction) -> None:
        super().__init__(argument, result=FieldType("double", optional=True))
        self.share = share

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the percentiles."""
        contents = self.contents(states)
        groups = np.flatnonzero(contents.sizes)
        last_ranks = (contents.sizes[groups] - 1).tolist()
        products = map(mul, last_ranks, repeat(self.share.numerator))
        divisions = list(map(divmod, products, repeat(self.share.denominator)))
        rank = np.fromiter(map(itemgetter(0), divisions), dtype=np.int64, count=len(divisions))
        remainders = list(map(itemgetter(1), divisions))
        next_rank = rank + np.fromiter(map(bool, remainders), dtype=np.int64, count=len(divisions))
        low, high = (contents.rows[VALUES][contents.at(groups, r)] for r in (rank, next_rank))
        return scatter_to_groups(self._between(low, high, remainders), groups, states.height)

    def _between(self, low: pl.Series, high: pl.Series, remainders: list[int]) -> pl.Series:
        """Return the values interpolated between pairs of values, at some fractions."""
        if not low.dtype.is_float():
            return pl.Series(self._nearest(low, high, remainders), dtype=pl.Float64)
        low, high = low.cast(pl.Float64), high.cast(pl.Float64)
        finite, zero = low.is_finite() & high.is_finite(), pl.Series([0.0])
        ends = (low.zip_with(finite, zero), high.zip_with(finite, zero))
        nearest = pl.Series(self._nearest(*ends, remainders), dtype=pl.Float64)
        return nearest.zip_with(finite, low + high)

    def _nearest(self, low: pl.Series, high: pl.Series, remainders: list[int]) -> list[float]:
        parts = self.share.denominator
        (a, b), (c, d) = (self._ratios(side) for side in (low, high))
        low_terms = map(mul, map(mul, a, d), map(sub, repeat(parts), remainders))
        high_terms = map(mul, map(mul, c, b), remainders)
        # Python divides integers of any size with one rounding.
        return list(
            map(truediv, map(add, low_terms, high_terms), map(mul, map(mul, b, d), repeat(parts)))
        )

    def _ratios(self, values: pl.Series) -> tuple[list[int], list[int]]:
        """Return values as numerators and denominators, exactly."""
        if not values.dtype.is_float():
            return values.to_list(), [10**self.argument.scale] * len(values)
        pairs = list(map(float.as_integer_ratio, values.to_list()))
        return list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs))


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
        limit: The most values to return, from 1 to `MAX_VALUES`.
    """

    def __init__(self, argument: FieldType, limit: int) -> None:
        super().__init__(argument, result=FieldType("string", optional=True))
        self.limit = limit

    def _arrays(self, height: int, groups: Counts, items: pl.Series) -> pl.Series:
        """Return the JSON arrays of items that are ordered by group."""
        arrays = (
            pl.DataFrame({"group": groups, "item": items})
            .group_by("group", maintain_order=True)
            .agg(pl.col("item").str.join(","))
        )
        return scatter_to_groups("[" + arrays["item"] + "]", arrays["group"], height)


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
        rows_above = np.cumsum(contents.sizes)[group] - np.cumsum(counts)
        taken_counts = np.clip(self.limit - rows_above, 0, counts)
        lines = np.repeat(np.arange(len(group)), taken_counts)[::-1]
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
        lines, group = lines[rank < self.limit], group[rank < self.limit]
        items = json_texts(contents.rows[VALUES][lines], self.argument)
        counts = pl.Series(contents.counts[lines]).cast(pl.String)
        return self._arrays(states.height, group, '{"item":' + items + ',"count":' + counts + "}")


class RealisedVolatility(Bag):
    """The root of the sum of the squared logarithmic returns from each price to the next.

    Null prices are ignored. The result is null for less than two prices, and if one is 0 or below;
    it is NaN if one is NaN or infinite. A return is the difference of two logarithms of doubles;
    squares are summed exactly, and the sum is rounded once, then its root.

    Andersen and Bollerslev, *Answering the skeptics* (1998).

    Args:
        argument: A number, the price.
        order: The keys that prices are ordered by; the last key identifies a tuple.

    Example:
        >>> at = Key(FieldType("timestamp-millis"), largest=False)
        >>> volatility = RealisedVolatility(FieldType("double"), [at])
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"price": [100.0, 102.0, 101.0], "at": [1, 3, 2]})
        >>> states = volatility.accumulate(volatility.init(1), groups, rows)
        >>> root = math.hypot(math.log(101 / 100), math.log(102 / 101))
        >>> math.isclose(volatility.emit(states)[0], root)
        True
    """

    def __init__(self, argument: FieldType, order: Sequence[Key]) -> None:
        keys = {f"by_{number}": key for number, key in enumerate(order)}
        super().__init__(
            {**keys, VALUES: Key(argument.required, largest=False)},
            columns=(VALUES, *keys),
            needed=(VALUES,),
            result=_DOUBLE.nullable,
        )
        self.argument = argument

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the volatilities."""
        contents = self.contents(states)
        prices = cast(self.argument, _DOUBLE)(contents.rows[VALUES]).to_numpy()
        undefined = prices <= 0
        # The C library's logarithm: numpy's may depend on a value's position in the array.
        logs = np.fromiter(map(math.log, np.where(undefined, 1.0, prices).tolist()), np.float64)
        same_group = contents.group[1:] == contents.group[:-1]
        with np.errstate(invalid="ignore"):
            squares = np.square(np.diff(logs))[same_group]
        returns = (
            pl.DataFrame({"group": contents.group[1:][same_group], "square": squares})
            .group_by("group", maintain_order=True)
            .agg("square")
        )
        sums = np.fromiter(map(math.fsum, returns["square"].to_list()), np.float64)
        roots = np.where(np.isfinite(sums), np.sqrt(sums), np.nan)
        result = scatter_to_groups(pl.Series(roots), returns["group"], states.height)
        return result.scatter(contents.group[undefined], None)
