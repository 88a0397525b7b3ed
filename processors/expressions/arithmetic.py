"""Arithmetic and rounding on columns, by operator and type.

An overflow and a division by zero return null.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import decimals, rules
from errata.processors.expressions.columns import Kernel, by_array, filled, null, where_known
from errata.processors.expressions.decimals import sign
from errata.processors.expressions.rules import physical
from errata.schemas.fields import MAX_PRECISION, FieldType

_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}

MAX_DIGITS = 400
"""No double has a digit further from its point than this."""
_EVEN, _UP = decimal.ROUND_HALF_EVEN, decimal.ROUND_HALF_UP


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
    bound_of = operator.mul if symbol == "*" else operator.add

    def run(a: pl.Series, b: pl.Series) -> pl.Series:
        if bound_of(decimals.peak(a), decimals.peak(b)) < top:
            return plain(a, b)  # type: ignore[no-any-return]
        return plain(a.cast(pl.Int128), b.cast(pl.Int128)).cast(dtype, strict=False)  # type: ignore[no-any-return]

    return run


def _remainder(a: Any, b: Any, two: Any) -> Any:
    return sign(a) * (abs(a) % abs(b))


def _modulus(a: Any, b: Any, two: Any) -> Any:
    """Add a positive divisor to its negative remainder.

    This is Spark's pmod, except that Spark's wraps for two operands near the least long.
    """
    remainder = _remainder(a, b, two)
    negative = (abs(sign(remainder)) - sign(remainder)) // two
    positive = (abs(sign(b)) + sign(b)) // two
    return remainder + b * negative * positive


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
    remainder = np.fmod(a, b)
    return np.where(remainder < 0, np.fmod(remainder + b, b), remainder)


def rounded(kind: FieldType, digits: int) -> FieldType:
    """Return the type of a number rounded to `digits` after the point.

    Example:
        >>> str(rounded(FieldType("decimal", 18, 4), 2))
        'decimal(17,2)'
    """
    if kind.kind != "decimal":
        return FieldType(kind.kind, optional=kind.optional or kind.kind in rules.WHOLE)
    whole = kind.precision - kind.scale + 1
    if digits < 0:
        return FieldType("decimal", min(max(whole, 1 - digits), MAX_PRECISION), 0, kind.optional)
    scale = min(kind.scale, digits)
    precision = min(whole + scale, MAX_PRECISION)
    return FieldType("decimal", precision, scale, kind.optional or whole + scale > MAX_PRECISION)


def round_to(kind: FieldType, digits: int, *, even: bool) -> Kernel:
    """Return the function that rounds, ties away from zero or to the even neighbour."""
    if kind.kind in ("float", "double"):
        return _round_real(rules.physical(kind), digits, even=even)
    result = rounded(kind, digits)
    unit = 10 ** max(kind.scale - digits, 0)
    back = 10 ** max(-digits, 0)
    precision = result.precision or MAX_PRECISION
    formula = _half_even if even else _half_up

    def run(values: pl.Series) -> pl.Series:
        whole = decimals.exact(
            lambda v, u, b, one, two: formula(v, u, one, two) * b,
            values,
            unit,
            back,
            1,
            2,
            bound=4 * decimals.peak(values) + 4 * unit * back,
            precision=precision,
        )
        return whole.cast(rules.physical(kind), strict=False)

    return run


def whole_kind(kind: FieldType) -> FieldType:
    """Return the type of `floor` and `ceil`: a decimal without a fraction, else a long."""
    if kind.kind != "decimal":
        return FieldType("long", optional=kind.optional or kind.kind not in rules.WHOLE)
    precision = kind.precision - kind.scale + (kind.scale > 0)
    return FieldType("decimal", precision, 0, kind.optional)


def floor(kind: FieldType, *, up: bool) -> Kernel:
    """Return the function for `floor`, or `ceil` if `up`.

    A double beyond 64 bits, and NaN, become null; Spark stops for them since release 4.3.
    """
    if kind.kind in rules.WHOLE:
        return lambda values: values.cast(pl.Int64)
    if kind.kind == "decimal":
        unit = 10**kind.scale

        def run(values: pl.Series) -> pl.Series:
            bound = decimals.peak(values) + unit
            return decimals.exact(_ceil if up else _floor, values, unit, 1, bound=bound)

        return run
    return by_array(np.ceil if up else np.floor, dtype=pl.Int64)


def _floor(value: Any, unit: Any, one: Any) -> Any:
    return value // unit


def _ceil(value: Any, unit: Any, one: Any) -> Any:
    return (value + unit - one) // unit


def _half_up(value: Any, unit: Any, one: Any, two: Any) -> Any:
    return (abs(value) * two + unit) // (unit * two) * sign(value)


def _half_even(value: Any, unit: Any, one: Any, two: Any) -> Any:
    size = abs(value)
    whole = size // unit
    over = (size - whole * unit) * two - unit  # above 0 beyond the tie, 0 at it
    return (whole + (sign(over + whole % two) + one) // two) * sign(value)


def _round_real(dtype: type[pl.DataType], digits: int, *, even: bool) -> Kernel:
    """Return the rounding of a double by its shortest digits, as Spark does: 1.005 is a tie."""
    context = decimal.Context(prec=2 * MAX_DIGITS, rounding=_EVEN if even else _UP)
    step = decimal.Decimal((0, (1,), -digits))
    quantize = methodcaller("quantize", step, context=context)

    def run(values: pl.Series) -> pl.Series:
        doubles = filled(values).cast(pl.Float64).to_numpy()
        finite = np.isfinite(doubles)
        exact = map(decimal.Decimal, map(repr, np.where(finite, doubles, 0.0).tolist()))
        nearest = np.fromiter(map(float, map(quantize, exact)), dtype=np.float64) + 0.0
        return where_known(pl.Series(np.where(finite, nearest, doubles)).cast(dtype), values)

    return run
