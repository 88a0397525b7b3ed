"""The kernels of text functions; characters are code points, as in Spark."""

from __future__ import annotations

import hashlib
from functools import partial
from operator import contains, itemgetter, methodcaller, mul

import polars as pl

from errata.processors.expressions.columns import by_row, filled, where_known

MAX_REPEAT = 10_000
"""The most repetitions of `repeat`, and the greatest length for `lpad` and `rpad`."""


def upper(values: pl.Series) -> pl.Series:
    """Return the texts in upper case."""
    return values.str.to_uppercase()


def lower(values: pl.Series) -> pl.Series:
    """Return the texts in lower case."""
    return values.str.to_lowercase()


def length(values: pl.Series) -> pl.Series:
    """Return the number of characters of strings, or of octets of bytes."""
    size = values.bin.size() if values.dtype == pl.Binary else values.str.len_chars()
    return size.cast(pl.Int32)


def substring(values: pl.Series, start: pl.Series, count: pl.Series | None = None) -> pl.Series:
    """Return `count` characters from `start` on: 1 and 0 are the first, -1 the last.

    A start before the first character still counts towards the end.

    Example:
        >>> three, start = pl.Series(["abc"]), pl.Series([-5])
        >>> substring(three, start, pl.Series([4])).to_list()
        ['ab']
    """
    columns = [values, start] if count is None else [values, start, count]
    frame = _frame(*columns)
    begin = pl.col("1").cast(pl.Int64)
    size = pl.col("0").str.len_chars().cast(pl.Int64)
    begin = pl.when(begin > 0).then(begin - 1).when(begin < 0).then(begin + size).otherwise(0)
    first = begin.clip(0)
    taken = None if count is None else (begin + pl.col("2").cast(pl.Int64) - first).clip(0)
    return where_known(frame.select(pl.col("0").str.slice(first, taken)).to_series(), *columns)


def left(values: pl.Series, count: pl.Series) -> pl.Series:
    """Return the first characters."""
    return substring(values, pl.Series([1]), count)


def right(values: pl.Series, count: pl.Series) -> pl.Series:
    """Return the last characters."""
    frame = _frame(values, count)
    start = -pl.col("1").cast(pl.Int64).clip(0)
    size = pl.col("0").str.len_chars().cast(pl.Int64)
    cut = frame.select(pl.col("0").str.slice((size + start).clip(0))).to_series()
    return where_known(cut, values, count)


def concat(*columns: pl.Series) -> pl.Series:
    """Return the concatenated texts, null if one of them is."""
    return _frame(*columns).select(pl.concat_str(pl.all())).to_series()


def concat_ws(separator: str, *columns: pl.Series) -> pl.Series:
    """Return the texts that are not null with a separator between them."""
    joined = pl.concat_str(pl.all(), separator=separator, ignore_nulls=True)
    return _frame(*columns).select(joined).to_series()


def replace(values: pl.Series, old: str, new: str = "") -> pl.Series:
    """Return the texts with every occurrence replaced; an empty `old` changes nothing."""
    return values.str.replace_all(old, new, literal=True) if old else values


def translate(values: pl.Series, old: str, new: str) -> pl.Series:
    """Replace each character of `old` by the one at its position in `new`, if any."""
    table = {ord(a): new[i] if i < len(new) else None for i, a in reversed([*enumerate(old)])}
    return by_row(methodcaller("translate", table), dtype=pl.String)(values)


def pad(values: pl.Series, count: int, fill: str, *, before: bool) -> pl.Series:
    """Return the texts cut or padded to `count` characters."""
    padding = (fill * count)[: max(count, 0)] if fill else ""
    text = pl.col("0")
    missing = (count - text.str.len_chars().cast(pl.Int64)).clip(0)
    filling = pl.lit(padding).str.slice(0, missing)
    cut = text.str.slice(0, max(count, 0))
    padded = pl.concat_str(filling, cut) if before else pl.concat_str(cut, filling)
    return values.to_frame("0").select(padded).to_series()


def split_part(values: pl.Series, separator: str, number: int) -> pl.Series:
    """Return one part between separators, by number from 1, or from -1 at the end; else empty."""
    if not separator:
        return values if number in (1, -1) else where_known(values.str.slice(0, 0), values)
    parts = values.str.split(separator)
    part = parts.list.get(number - 1 if number > 0 else number, null_on_oob=True)
    return where_known(filled(part, ""), values)


def locate(part: pl.Series, values: pl.Series, start: pl.Series | None = None) -> pl.Series:
    """Return the position of a text in others, from `start` on and counted from 1; 0 if absent.

    An empty text is at 1 whatever the start. A start that is null or below 1 finds nothing.
    """
    first = filled(pl.Series([1]) if start is None else start)
    at = by_row(str.find, dtype=pl.Int32)(values, part, first.clip(1) - 1) + 1
    at = pl.Series([1], dtype=pl.Int32).zip_with(part == "", at)
    nowhere = pl.Series([0], dtype=pl.Int32)
    at = where_known(at.zip_with(first > 0, nowhere), part, values)
    return at if start is None else at.zip_with(start.is_not_null(), nowhere)


reverse = by_row(itemgetter(slice(None, None, -1)), dtype=pl.String)
starts_with = by_row(str.startswith, dtype=pl.Boolean)
ends_with = by_row(str.endswith, dtype=pl.Boolean)
holds = by_row(contains, dtype=pl.Boolean)


def repeat(values: pl.Series, count: int) -> pl.Series:
    """Return texts repeated `count` times, empty below 1."""
    return by_row(mul, dtype=pl.String)(values, pl.Series([count]))


def sha2(values: pl.Series, bits: int) -> pl.Series:
    """Return the SHA-2 digest of bytes in hexadecimal digits; 0 bits are 256."""
    return _digest(f"sha{bits or 256}", values)


def md5(values: pl.Series) -> pl.Series:
    """Return the MD5 digest of bytes in hexadecimal digits."""
    return _digest("md5", values)


def hexadecimal(values: pl.Series) -> pl.Series:
    """Return bytes as hexadecimal digits, two per octet."""
    return values.bin.encode("hex").str.to_uppercase()


def _digest(algorithm: str, values: pl.Series) -> pl.Series:
    hashed = map(
        partial(hashlib.new, algorithm, usedforsecurity=False), filled(values, b"").to_list()
    )
    digits = list(map(methodcaller("hexdigest"), hashed))
    return where_known(pl.Series(digits, dtype=pl.String), values)


def _frame(*columns: pl.Series) -> pl.DataFrame:
    """Return columns as ``0``, ``1``..., single values repeated."""
    height = next((len(column) for column in columns if len(column) != 1), 1)
    return pl.DataFrame(
        [
            (column if len(column) == height else column.new_from_index(0, height)).alias(str(i))
            for i, column in enumerate(columns)
        ]
    )
