"""Operations on whole columns of frames, which take the place of polars' queries on small frames.

Polars plans each `select`, `filter` and `with_columns` as a query, and hands it to its pool of
threads: 20 to 100 µs, however few the rows, and a wait for another thread on a busy machine. Most
epochs are small and take hundreds of such steps. These functions do the same column by column in
the calling thread; they read and copy no more of a large frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl


def pick(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Return some columns, in this order.

    Example:
        >>> pick(pl.DataFrame({"x": [1], "y": [2]}), ["y"]).columns
        ['y']
    """
    return pl.DataFrame([frame[name] for name in names])


def renamed(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Return some columns under new names.

    Args:
        frame: The frame.
        names: By new name, the column.

    Example:
        >>> renamed(pl.DataFrame({"x": [1], "y": [2]}), {"z": "y"}).to_dict(as_series=False)
        {'z': [2]}
    """
    return pl.DataFrame([frame[name].alias(new) for new, name in names.items()])


def beside(frame: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """Return a frame with more columns; one of the same name takes the place of another.

    Example:
        >>> frame = pl.DataFrame({"x": [1], "y": [2]})
        >>> beside(frame, pl.Series("z", [3]), pl.Series("x", [4])).to_dict(as_series=False)
        {'x': [4], 'y': [2], 'z': [3]}
    """
    known = {column.name: column for column in frame.get_columns()}
    return pl.DataFrame([*(known | {column.name: column for column in columns}).values()])


def kept(frame: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """Return the rows for which a Boolean is true, neither false nor null.

    Example:
        >>> kept(pl.DataFrame({"x": [1, 2, 3]}), pl.Series([True, None, False]))["x"].to_list()
        [1]
    """
    count = wanted.sum()
    if count == frame.height:
        return frame
    if not count:
        return frame.clear()
    return pl.DataFrame([column.filter(wanted) for column in frame.get_columns()])


def rows(frame: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
    """Return rows by their numbers, of any order and number; null for a null.

    Example:
        >>> rows(pl.DataFrame({"x": [1, 2, 3]}), pl.Series([2, 0], dtype=pl.UInt32))["x"].to_list()
        [3, 1]
    """
    return pl.DataFrame([column[numbers] for column in frame.get_columns()])


def spread(columns: Sequence[pl.Series], present: npt.NDArray[np.bool_]) -> list[pl.Series]:
    """Return columns that have values for some rows as columns of all rows, null in the others.

    Example:
        >>> (column,) = spread([pl.Series([7, 8])], np.array([False, True, True]))
        >>> column.to_list()
        [None, 7, 8]
    """
    if present.all():
        return list(columns)
    if not present.any():
        return [column.clear(len(present)) for column in columns]
    numbers = pl.Series(np.where(present, np.cumsum(present) - 1, 0).astype(np.uint32))
    numbers = numbers.zip_with(pl.Series(present), pl.Series([None], dtype=pl.UInt32))
    return [column[numbers] for column in columns]


def constant(value: object, count: int, dtype: pl.DataType | type[pl.DataType]) -> pl.Series:
    """Return a column with the same value in each row.

    Example:
        >>> constant(0, 3, pl.Int64).to_list()
        [0, 0, 0]
    """
    return pl.Series([value], dtype=dtype).new_from_index(0, count)


def as_schema(frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the columns of a schema in its types; those that have them already are not copied."""
    return pl.DataFrame([frame[name].cast(dtype) for name, dtype in schema.items()])


def distinct(column: pl.Series) -> list[Any]:
    """Return the different values of a column, in any order."""
    return column[:1].to_list() if column.n_unique() == 1 else column.unique().to_list()
