"""Exact arithmetic on decimals as unscaled 128-bit integers.

Polars wraps silently when 128 bits overflow. Every operation here first bounds what its
intermediates can reach from the largest operands of the batch: below 2^127 the formula runs on
128-bit columns, else the same formula runs on Python's integers. Results are rounded half up (away
from zero) as Spark's are, and null where they need more digits than the precision allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from schemas.fields import MAX_PRECISION

_WIDEST = 2**127
_Formula = Callable[..., Any]


def constant(value: int | None) -> pl.Series:
    """Return a column of one value, which polars repeats beside longer ones."""
    return pl.Series([value], dtype=pl.Int128)


def peak(values: pl.Series) -> int:
    """Return the largest absolute value in an integer column, at least 1."""
    low, high = values.min(), values.max()
    return max(abs(int(low or 0)), abs(int(high or 0)), 1)  # type: ignore[arg-type]


def within(values: pl.Series, precision: int) -> pl.Series:
    """Return the values with null where they need more than `precision` digits."""
    if peak(values) < 10**precision:
        return values
    return values.zip_with(values.is_between(1 - 10**precision, 10**precision - 1), constant(None))


def multiply(
    left: pl.Series, right: pl.Series, *, drop: int = 0, precision: int = MAX_PRECISION
) -> pl.Series:
    """Return ``left * right`` less `drop` digits after the point.

    Example:
        >>> tenths = pl.Series([15, None, 10**37], dtype=pl.Int128)
        >>> multiply(tenths, tenths, drop=1).to_list()
        [23, None, None]
    """
    product = peak(left) * peak(right)
    if not drop:
        return _exact(lambda a, b: a * b, left, right, bound=product, precision=precision)
    return _exact(
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
    """Return the sum, each side first times ten to its `raise_`, less `drop` digits."""
    up_left, up_right, unit = 10**raise_left, 10**raise_right, 10**drop
    total = peak(left) * up_left + peak(right) * up_right
    formula: _Formula = lambda a, b, x, y, d: _half_up(a * x + b * y, d)  # noqa: E731
    if not drop:
        formula = lambda a, b, x, y, _: a * x + b * y  # noqa: E731
    return _exact(
        formula, left, right, up_left, up_right, unit, bound=2 * (total + unit), precision=precision
    )


def negate(values: pl.Series) -> pl.Series:
    """Return the values with the other sign; polars has no negation in 128 bits."""
    return constant(0) - values


def rescale(values: pl.Series, *, shift: int, precision: int = MAX_PRECISION) -> pl.Series:
    """Return the values with `shift` digits more (or fewer, rounded) after the point.

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
    """Return ``numerator * 10**shift / denominator`` rounded half up; null where that is 0.

    Example:
        >>> cents, count = (pl.Series([v], dtype=pl.Int128) for v in (200, 3))
        >>> divide_half_up(cents, count, shift=4).to_list()
        [666667]
    """
    up, down = 10 ** max(shift, 0), 10 ** max(-shift, 0)
    return _exact(
        lambda n, d, x, y: _half_up(n * x * _sign(d), abs(d) * y),
        numerator,
        _nonzero(denominator),
        up,
        down,
        bound=2 * (peak(numerator) * up + peak(denominator) * down),
        precision=precision,
    )


def remainder(
    left: pl.Series,
    right: pl.Series,
    *,
    raise_left: int = 0,
    raise_right: int = 0,
    precision: int = MAX_PRECISION,
) -> pl.Series:
    """Return what is left of a division truncated to a whole, with the sign of `left`.

    Null where `right` is 0. Each side is first taken times ten to its `raise_`.
    """
    up_left, up_right = 10**raise_left, 10**raise_right
    return _exact(
        lambda a, b, x, y: _sign(a) * ((abs(a) * x) % (abs(b) * y)),
        left,
        _nonzero(right),
        up_left,
        up_right,
        bound=peak(left) * up_left + peak(right) * up_right,
        precision=precision,
    )


def to_double(values: pl.Series, *, scale: int) -> pl.Series:
    """Return the nearest doubles.

    A division of two whole doubles rounds once, so it is right while both are exact: up to 2^53
    and 10^22. Beyond, Python divides its integers, which rounds once as well. Polars would multiply
    by the inverse, which rounds twice.
    """
    if peak(values) <= 2**53 and scale <= 22:
        nearest = values.cast(pl.Float64).to_numpy() / 10.0**scale
    else:
        whole = np.array(values.fill_null(0).to_list(), dtype=object)
        nearest = (whole / 10**scale).astype(np.float64)
    return pl.Series(nearest).zip_with(values.is_not_null(), pl.Series([None], dtype=pl.Float64))


def _exact(formula: _Formula, *operands: pl.Series | int, bound: int, precision: int) -> pl.Series:
    """Run a formula on 128-bit columns if nothing in it can pass `bound` < 2^127, else exactly."""
    columns = [v for v in operands if isinstance(v, pl.Series)]
    if bound < _WIDEST:
        fast = [v if isinstance(v, pl.Series) else constant(v) for v in operands]
        return within(formula(*fast), precision)
    exact = [
        # 1 is a value that every formula takes, divisors too; null comes back below.
        np.array(v.fill_null(1).to_list() if isinstance(v, pl.Series) else [v], dtype=object)
        for v in operands
    ]
    results = formula(*exact)
    known = np.ones(1, dtype=bool)
    for column in columns:
        known = known & column.is_not_null().to_numpy()
    kept: Any = np.where(known & (abs(results) < 10**precision), results, None)
    return pl.Series(kept.tolist(), dtype=pl.Int128)


def _half_up(numerator: Any, denominator: Any) -> Any:
    """Divide by a positive denominator, ties away from zero; for columns and for arrays."""
    size = abs(numerator)
    return (size + size + denominator) // (denominator + denominator) * _sign(numerator)


def _sign(values: Any) -> Any:
    return values.sign() if isinstance(values, pl.Series) else np.sign(values)


def _nonzero(values: pl.Series) -> pl.Series:
    return values.zip_with(values != 0, constant(None))
