"""Rounding to a digit after the point, or before it, by type."""

from __future__ import annotations

import decimal
from operator import methodcaller
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import decimals, rules
from errata.processors.expressions.columns import Kernel, by_array, filled, where_known
from errata.processors.expressions.decimals import sign
from errata.schemas.fields import MAX_PRECISION, FieldType

MAX_DIGITS = 400
"""No double has a digit further from its point than this."""
_EVEN, _UP = decimal.ROUND_HALF_EVEN, decimal.ROUND_HALF_UP


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
        return _real(rules.physical(kind), digits, even=even)
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
        return FieldType("long", optional=kind.optional)
    precision = kind.precision - kind.scale + (kind.scale > 0)
    return FieldType("decimal", precision, 0, kind.optional)


def floor(kind: FieldType, *, up: bool) -> Kernel:
    """Return the function for `floor`, or `ceil` if `up`.

    As in Spark, a double beyond 64 bits becomes the last long, and NaN becomes 0.
    """
    if kind.kind in rules.WHOLE:
        return lambda values: values.cast(pl.Int64)
    if kind.kind == "decimal":
        unit = 10**kind.scale

        def run(values: pl.Series) -> pl.Series:
            bound = decimals.peak(values) + unit
            return decimals.exact(_ceil if up else _floor, values, unit, 1, bound=bound)

        return run
    return by_array(
        lambda values: _saturate(np.ceil(values) if up else np.floor(values)), dtype=pl.Int64
    )


def _floor(value: Any, unit: Any, one: Any) -> Any:
    return value // unit


def _ceil(value: Any, unit: Any, one: Any) -> Any:
    return (value + unit - one) // unit


def _saturate(values: Any) -> Any:
    inside = (values >= -(2.0**63)) & (values < 2.0**63)
    edge = np.where(values > 0, 2**63 - 1, np.where(values < 0, -(2**63), 0))
    return np.where(inside, np.where(inside, values, 0).astype(np.int64), edge)


def _half_up(value: Any, unit: Any, one: Any, two: Any) -> Any:
    return (abs(value) * two + unit) // (unit * two) * sign(value)


def _half_even(value: Any, unit: Any, one: Any, two: Any) -> Any:
    size = abs(value)
    whole = size // unit
    over = (size - whole * unit) * two - unit  # above 0 beyond the tie, 0 at it
    return (whole + (sign(over + whole % two) + one) // two) * sign(value)


def _real(dtype: type[pl.DataType], digits: int, *, even: bool) -> Kernel:
    """Return the rounding of a double by its shortest digits, as Spark does: 1.005 is a tie."""
    context = decimal.Context(prec=2 * MAX_DIGITS, rounding=_EVEN if even else _UP)
    step = decimal.Decimal((0, (1,), -digits))
    quantize = methodcaller("quantize", step, context=context)

    def run(values: pl.Series) -> pl.Series:
        doubles = filled(values).cast(pl.Float64).to_numpy()
        finite = np.isfinite(doubles)
        exact = map(decimal.Decimal, map(repr, np.where(finite, doubles, 0.0).tolist()))
        near = np.fromiter(map(float, map(quantize, exact)), dtype=np.float64) + 0.0
        return where_known(pl.Series(np.where(finite, near, doubles)).cast(dtype), values)

    return run
