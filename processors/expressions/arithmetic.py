"""Arithmetic on columns, by operator and type: overflow and division by zero return null."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import decimals
from errata.processors.expressions.columns import Kernel, by_array, null
from errata.processors.expressions.decimals import sign
from errata.processors.expressions.rules import physical
from errata.schemas.fields import FieldType

_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def kernel(symbol: str, left: FieldType, right: FieldType, result: FieldType) -> Kernel:
    """Return the function for ``left symbol right``.

    Args:
        symbol: One of ``+ - * / % pmod div``.
        left: Type of the left column, of the same kind as the result except for its digits.
        right: Type of the right column, likewise.
        result: The result of `rules.arithmetic` for the two.
    """
    if symbol == "div":
        return _quotient(left, right)
    if result.kind in ("float", "double"):
        return _real(symbol, physical(result))
    if result.kind == "decimal":
        return _decimal(symbol, left, right, result)
    return _whole(symbol, physical(result))


def negate(kind: FieldType) -> Kernel:
    """Return the function for ``-x``."""
    if kind.kind in ("float", "double"):
        return lambda values: values * -1.0  # 0 - x would lose the sign of a zero
    if kind.kind == "decimal":
        return decimals.negate
    subtract = kernel("-", kind, kind, kind)
    zero = pl.Series([0], dtype=physical(kind))
    return lambda values: subtract(zero, values)


def absolute(kind: FieldType) -> Kernel:
    """Return the function for ``abs(x)``."""
    if kind.kind in ("int", "long"):
        dtype = physical(kind)
        return lambda values: values.cast(pl.Int128).abs().cast(dtype, strict=False)
    return lambda values: values.abs()


def _whole(symbol: str, dtype: type[pl.DataType]) -> Kernel:
    if symbol in ("%", "pmod"):
        formula = _remainder if symbol == "%" else _modulus

        def remain(a: pl.Series, b: pl.Series) -> pl.Series:
            bound = 2 * (decimals.peak(a) + decimals.peak(b))
            whole = decimals.exact(formula, a, decimals.nonzero(b), 2, bound=bound)
            return whole.cast(dtype, strict=False)

        return remain
    plain = _PLAIN[symbol]
    top = 2**31 if dtype == pl.Int32 else 2**63
    reach = operator.mul if symbol == "*" else operator.add

    def run(a: pl.Series, b: pl.Series) -> pl.Series:
        if reach(decimals.peak(a), decimals.peak(b)) < top:
            return plain(a, b)  # type: ignore[no-any-return]
        return plain(a.cast(pl.Int128), b.cast(pl.Int128)).cast(dtype, strict=False)  # type: ignore[no-any-return]

    return run


def _remainder(a: Any, b: Any, two: Any) -> Any:
    return sign(a) * (abs(a) % abs(b))


def _modulus(a: Any, b: Any, two: Any) -> Any:
    """Add a positive divisor to its negative remainder.

    This is Spark's pmod, except that Spark's wraps for two operands near the least long.
    """
    left = _remainder(a, b, two)
    negative = (abs(sign(left)) - sign(left)) // two
    positive = (abs(sign(b)) + sign(b)) // two
    return left + b * negative * positive


def _quotient(left: FieldType, right: FieldType) -> Kernel:
    """Return the division truncated to a long, null if a long can't hold it."""
    up_left, up_right = (10 ** (max(left.scale, right.scale) - k.scale) for k in (left, right))

    def run(a: pl.Series, b: pl.Series) -> pl.Series:
        bound = decimals.peak(a) * up_left + decimals.peak(b) * up_right
        whole = decimals.exact(
            lambda n, d, x, y: sign(n) * sign(d) * (abs(n) * x // (abs(d) * y)),
            a,
            decimals.nonzero(b),
            up_left,
            up_right,
            bound=bound,
        )
        return whole.cast(pl.Int64, strict=False)

    return run


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
    if symbol in ("%", "pmod"):
        formula = _remainder if symbol == "%" else _modulus

        def remain(a: pl.Series, b: pl.Series) -> pl.Series:
            x, y = 10**up_left, 10**up_right
            return decimals.exact(
                lambda n, d, x, y, two: formula(n * x, d * y, two),
                a,
                decimals.nonzero(b),
                x,
                y,
                2,
                bound=2 * (decimals.peak(a) * x + decimals.peak(b) * y),
                precision=precision,
            )

        return remain

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


def _real(symbol: str, dtype: type[pl.DataType]) -> Kernel:
    """Return the operator of floats or doubles; a division by zero returns null.

    It uses numpy: polars multiplies by the inverse of a single divisor, which rounds twice, and
    computes -0.0 + 0 as -0.0.
    """
    if symbol == "*":
        return operator.mul
    if symbol in _PLAIN:
        return by_array(_PLAIN[symbol], dtype=dtype)
    divisions: dict[str, Callable[..., Any]]
    divisions = {"/": np.divide, "%": np.fmod, "pmod": _real_modulus}
    divide = by_array(divisions[symbol], dtype=dtype)

    def run(left: pl.Series, right: pl.Series) -> pl.Series:
        zero = right == 0.0
        return divide(left, right.zip_with(~zero, null(dtype)) if zero.any() else right)

    return run


def _real_modulus(a: Any, b: Any) -> Any:
    left = np.fmod(a, b)
    return np.where(left < 0, np.fmod(left + b, b), left)
