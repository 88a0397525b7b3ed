"""Arithmetic on columns, by operator and type: overflow and division by zero are null."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from processors.expressions import decimals
from processors.expressions.casts import Kernel
from schemas.fields import FieldType

_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def kernel(symbol: str, left: FieldType, right: FieldType, result: FieldType) -> Kernel:
    """Return the function for ``left symbol right``.

    Args:
        symbol: One of ``+ - * / %``.
        left: Type of the left column, of the same kind as the result but for its digits.
        right: Type of the right column, alike.
        result: What `rules.arithmetic` says of the two.
    """
    if result.kind == "double":
        return _DOUBLE[symbol]
    if result.kind == "decimal":
        return _decimal(symbol, left, right, result)
    top, narrow = (2**31, pl.Int32) if result.kind == "int" else (2**63, pl.Int64)

    def fitting(values: pl.Series) -> pl.Series:
        return values.cast(narrow, strict=False).cast(pl.Int64)

    if symbol == "%":
        return lambda a, b: fitting(decimals.remainder(a.cast(pl.Int128), b.cast(pl.Int128)))
    plain = _WHOLE[symbol]
    reach = operator.mul if symbol == "*" else operator.add

    def whole(a: pl.Series, b: pl.Series) -> pl.Series:
        if reach(decimals.peak(a), decimals.peak(b)) < top:
            return plain(a, b)  # type: ignore[no-any-return]
        return fitting(plain(a.cast(pl.Int128), b.cast(pl.Int128)))

    return whole


def negate(kind: FieldType) -> Kernel:
    """Return the function for ``-x``."""
    if kind.kind == "double":
        return lambda values: values * -1.0  # 0 - x would lose the sign of a zero
    if kind.kind == "decimal":
        return decimals.negate
    subtract = kernel("-", kind, kind, kind)
    zero = pl.Series([0], dtype=pl.Int64)
    return lambda values: subtract(zero, values)


def absolute(kind: FieldType) -> Kernel:
    """Return the function for ``abs(x)``."""
    if kind.kind not in ("int", "long"):
        return lambda values: values.abs()
    narrow = pl.Int32 if kind.kind == "int" else pl.Int64
    return lambda values: values.cast(pl.Int128).abs().cast(narrow, strict=False).cast(pl.Int64)


def _decimal(symbol: str, left: FieldType, right: FieldType, result: FieldType) -> Kernel:
    precision = result.precision
    if symbol == "*":
        drop = left.scale + right.scale - result.scale
        return lambda a, b: decimals.multiply(a, b, drop=drop, precision=precision)
    if symbol == "/":
        shift = result.scale - left.scale + right.scale
        return lambda a, b: decimals.divide_half_up(a, b, shift=shift, precision=precision)
    scale = max(left.scale, right.scale)
    up_left, up_right, drop = scale - left.scale, scale - right.scale, scale - result.scale
    if symbol == "%":
        return lambda a, b: decimals.remainder(
            a, b, raise_left=up_left, raise_right=up_right, precision=precision
        )

    def total(a: pl.Series, b: pl.Series) -> pl.Series:
        return decimals.add(
            a,
            b if symbol == "+" else decimals.negate(b),
            raise_left=up_left,
            raise_right=up_right,
            drop=drop,
            precision=precision,
        )

    return total


def _by_numpy(function: Callable[[Any, Any], Any]) -> Kernel:
    """Return a division of doubles, null by zero.

    Not polars's: a column divided by one value it multiplies by the inverse, which rounds twice.
    """

    def divide(left: pl.Series, right: pl.Series) -> pl.Series:
        known = left.is_not_null() & right.is_not_null() & (right != 0.0)
        with np.errstate(all="ignore"):
            quotient = function(left.to_numpy(), right.to_numpy())
        null = pl.Series([None], dtype=pl.Float64)
        return pl.Series(quotient, dtype=pl.Float64).zip_with(known, null)

    return divide


_DOUBLE: dict[str, Kernel] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _by_numpy(np.divide),
    "%": _by_numpy(np.fmod),
}
