"""Exact arithmetic on decimals as unscaled 128-bit integers.

Polars wraps silently when 128 bits overflow. Every operation first computes a bound on its
intermediate values from the largest operands of the batch: below 2^63 the formula runs on numpy's
64-bit arrays, below 2^127 on 128-bit columns, otherwise on Python's integers. Results are rounded
half up (away from zero) as in Spark, and null if they need more digits than the precision allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions.columns import filled, in_blocks, where_known
from errata.schemas.fields import MAX_PRECISION

_WIDE, _WIDEST = 2**63, 2**127
_Formula = Callable[..., Any]


def constant(value: int | None) -> pl.Series:
    """Return a column of one value, which polars broadcasts to longer ones."""
    return pl.Series([value], dtype=pl.Int128)


def peak(values: pl.Series) -> int:
    """Return the largest absolute value in an integer column, at least 1."""
    low, high = values.min(), values.max()
    return max(abs(int(low or 0)), abs(int(high or 0)), 1)  # type: ignore[arg-type]


def within(values: pl.Series, precision: int) -> pl.Series:
    """Return the values, null if they need more than `precision` digits."""
    if peak(values) < 10**precision:
        return values
    return values.zip_with(values.is_between(1 - 10**precision, 10**precision - 1), constant(None))


def multiply(
    left: pl.Series, right: pl.Series, *, drop: int = 0, precision: int = MAX_PRECISION
) -> pl.Series:
    """Return ``left * right`` with `drop` fewer digits after the point.

    Example:
        >>> tenths = pl.Series([15, None, 10**37], dtype=pl.Int128)
        >>> multiply(tenths, tenths, drop=1).to_list()
        [23, None, None]
    """
    product = peak(left) * peak(right)
    if not drop:
        multiplied: _Formula = lambda a, b: a * b  # noqa: E731
        return exact(multiplied, left, right, bound=product, precision=precision, divides=False)
    return exact(
        lambda a, b, unit: _half_up(a * b, unit),
        left,
        right,
        10**drop,
        bound=2 * product + 2 * 10**drop,
        precision=precision,
    )


def add(
    left: pl.Series,
    right: pl.Series,
    *,
    raise_left: int = 0,
    raise_right: int = 0,
    drop: int = 0,
    precision: int = MAX_PRECISION,
) -> pl.Series:
    """Return the sum of both sides, each times ten to its `raise_`, with `drop` fewer digits."""
    up_left, up_right, unit = 10**raise_left, 10**raise_right, 10**drop
    total = peak(left) * up_left + peak(right) * up_right
    formula: _Formula = lambda a, b, x, y, d: _half_up(a * x + b * y, d)  # noqa: E731
    if not drop:
        formula = lambda a, b, x, y, _: a * x + b * y  # noqa: E731
    return exact(
        formula, left, right, up_left, up_right, unit, bound=2 * (total + unit), precision=precision
    )


def negate(values: pl.Series) -> pl.Series:
    """Return the negated values; polars has no negation in 128 bits."""
    return constant(0) - values


def rescale(values: pl.Series, *, shift: int, precision: int = MAX_PRECISION) -> pl.Series:
    """Return the values with `shift` more digits (or fewer, rounded) after the point.

    Example:
        >>> rescale(pl.Series([25, -25, 24], dtype=pl.Int128), shift=-1).to_list()
        [3, -3, 2]
    """
    if not shift:
        return within(values, precision)
    return multiply(values, constant(10 ** max(shift, 0)), drop=max(-shift, 0), precision=precision)


def divide_half_up(
    numerator: pl.Series, denominator: pl.Series, *, shift: int, precision: int = MAX_PRECISION
) -> pl.Series:
    """Return ``numerator * 10**shift / denominator`` rounded half up; null if that divides by 0.

    Example:
        >>> cents, count = (pl.Series([v], dtype=pl.Int128) for v in (200, 3))
        >>> divide_half_up(cents, count, shift=4).to_list()
        [666667]
    """
    up, down = 10 ** max(shift, 0), 10 ** max(-shift, 0)
    return exact(
        lambda n, d, x, y: _half_up(n * x * sign(d), abs(d) * y),
        numerator,
        nonzero(denominator),
        up,
        down,
        bound=2 * (peak(numerator) * up + peak(denominator) * down),
        precision=precision,
    )


def to_double(values: pl.Series, *, scale: int) -> pl.Series:
    """Return the nearest doubles.

    A division of two whole doubles rounds once, so it is correct while both are exact: up to 2^53
    and 10^22. Beyond that, Python divides its integers, which rounds once as well. Polars would
    multiply by the inverse, which rounds twice.
    """
    if peak(values) <= 2**53 and scale <= 22:
        nearest = filled(values).cast(pl.Float64).to_numpy() / 10.0**scale
    else:
        whole = np.array(filled(values).to_list(), dtype=object)
        nearest = (whole / 10**scale).astype(np.float64)
    return where_known(pl.Series(nearest), values)


def to_text(values: pl.Series, *, scale: int) -> pl.Series:
    """Return the values as text, with the point before the last `scale` digits.

    Example:
        >>> to_text(pl.Series([-5, 1234], dtype=pl.Int128), scale=2).to_list()
        ['-0.05', '12.34']
    """
    digits = values.cast(pl.String)
    if not scale:
        return digits
    sized = digits.str.strip_prefix("-").str.zfill(scale + 1)
    point = sized.str.head(-scale) + "." + sized.str.tail(scale)
    return pl.Series(["-"]).zip_with(values < 0, pl.Series([""])) + point


def exact(
    formula: _Formula,
    *operands: pl.Series | int,
    bound: int,
    precision: int = MAX_PRECISION,
    divides: bool = True,
) -> pl.Series:
    """Run a formula on a type in which no value can overflow; null if an operand is.

    Args:
        formula: A formula of ``+ - * //``, `abs` and `sign`, for arrays, columns and lists of
            Python's integers alike.
        operands: Integer columns, and single values that can't be null.
        bound: A bound on every value in the formula, operands included.
        precision: Digits of the result; null if it needs more.
        divides: Whether the formula has more than sums and products; only then 64 bits are faster.
    """
    columns = [v for v in operands if isinstance(v, pl.Series)]
    if bound >= _WIDEST:
        return _by_python(formula, operands, columns, precision)
    if bound >= _WIDE or not divides:
        wide = [v.cast(pl.Int128) if isinstance(v, pl.Series) else constant(v) for v in operands]
        return within(formula(*wide), precision)
    narrow = [
        # 1 is valid in every formula, also as a divisor; nulls are restored below.
        filled(v, 1).cast(pl.Int64).to_numpy() if isinstance(v, pl.Series) else np.array([v])
        for v in operands
    ]
    result = pl.Series(in_blocks(formula, *narrow)).cast(pl.Int128)
    return where_known(within(result, precision), *columns)


def _by_python(
    formula: _Formula, operands: Any, columns: list[pl.Series], precision: int
) -> pl.Series:
    arrays = [
        np.array(filled(v, 1).to_list() if isinstance(v, pl.Series) else [v], dtype=object)
        for v in operands
    ]
    results = formula(*arrays)
    kept: Any = np.where(abs(results) < 10**precision, results, None)
    return where_known(pl.Series(kept.tolist(), dtype=pl.Int128), *columns)


def _half_up(numerator: Any, denominator: Any) -> Any:
    """Divide by a positive denominator, ties away from zero; for columns and for arrays."""
    size = abs(numerator)
    return (size + size + denominator) // (denominator + denominator) * sign(numerator)


def sign(values: Any) -> Any:
    """Return -1, 0 or 1, for columns and for arrays."""
    return values.sign() if isinstance(values, pl.Series) else np.sign(values)


def nonzero(values: pl.Series) -> pl.Series:
    """Return the values with null for 0."""
    zero = values == 0
    return values.zip_with(~zero, constant(None)) if zero.any() else values
