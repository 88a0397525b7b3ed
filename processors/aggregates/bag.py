"""The state of functions that need every value of a group: a sorted bag.

Percentiles, modes and numbers of distinct values are not invertible: after a row leaves, only the
content determines them. So the state is the content itself: its distinct rows in order, each with
its count.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.compensating import Part, Signed
from errata.processors.aggregates.grouping import Counts
from errata.processors.aggregates.ladder import Key
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
