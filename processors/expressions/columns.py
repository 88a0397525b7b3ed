"""Runs plain functions on columns that may hold nulls.

A call on a polars series costs about 20 microseconds, however short the series is; a call on a
numpy array costs one. Batches are often short. If numpy has no function, Python's own
(``str.find``) is mapped over the values in C; no Python statement runs per row.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
import polars as pl

Kernel = Callable[..., pl.Series]
"""A function of columns of one height, or of one value that applies to every row."""

BLOCK = 4096
"""The number of array rows that a formula runs on at once."""
_BLANK: dict[Any, Any] = {pl.String: "", pl.Binary: b"", pl.Boolean: False}


def null(dtype: Any) -> pl.Series:
    """Return a column of one null, which polars broadcasts to longer ones."""
    return pl.Series([None], dtype=dtype)


def filled(values: pl.Series, blank: Any = 0) -> pl.Series:
    """Return the values with their nulls replaced."""
    return values.fill_null(blank) if values.null_count() else values


def where_known(result: pl.Series, *columns: pl.Series) -> pl.Series:
    """Return the result with null in rows in which one of the columns is null."""
    for column in columns:
        if column.null_count():
            result = result.zip_with(column.is_not_null(), null(result.dtype))
    return result


def in_blocks(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return the result of a function of arrays, run on blocks that fit the processor's caches.

    On 50,000 rows a formula of ten operators is ten times faster this way.
    """
    height = max((len(array) for array in arrays), default=1)
    if height <= BLOCK:
        return function(*arrays)
    return np.concatenate(
        [
            function(*(a[start : start + BLOCK] if len(a) > 1 else a for a in arrays))
            for start in range(0, height, BLOCK)
        ]
    )


def by_array(function: Callable[..., Any], *, dtype: Any, blank: int = 0) -> Kernel:
    """Wrap a numpy function as a kernel: null if an argument is, or if `dtype` can't hold it.

    Args:
        function: A function from numeric arrays to an array.
        dtype: The type of the result.
        blank: The value that the function gets in place of a null.

    Example:
        >>> by_array(np.fmod, dtype=pl.Int64)(pl.Series([7, None]), pl.Series([4])).to_list()
        [3, None]
    """

    def run(*columns: pl.Series) -> pl.Series:
        arrays = [filled(column, blank).to_numpy() for column in columns]
        with np.errstate(all="ignore"):
            result = pl.Series(in_blocks(function, *arrays))
        return where_known(result.cast(dtype, strict=False), *columns)

    return run


def by_row(function: Callable[..., Any], *, dtype: Any) -> Kernel:
    """Wrap a function of single values, written in C, as a kernel: null if an argument is.

    Example:
        >>> by_row(str.find, dtype=pl.Int32)(pl.Series(["ab", None]), pl.Series(["b"])).to_list()
        [1, None]
    """

    def run(*columns: pl.Series) -> pl.Series:
        lists = [filled(column, _BLANK.get(column.dtype, 0)).to_list() for column in columns]
        height = next((len(values) for values in lists if len(values) != 1), 1)
        rows = [values if len(values) == height else repeat(values[0], height) for values in lists]
        return where_known(pl.Series(list(map(function, *rows)), dtype=dtype), *columns)

    return run
