"""Casts between the types of expressions: null where a value has no counterpart, never a stop.

As Spark's ``try_cast``. Differences, all at the rim: a double of exactly 2^63 is null as a long
(Spark saturates it), and strings that Java reads as hexadecimal floats are null.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from itertools import repeat

import polars as pl

from processors.expressions.decimals import constant, rescale, to_double, within
from processors.expressions.rules import physical
from schemas.fields import MAX_PRECISION, FieldType

Kernel = Callable[..., pl.Series]

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?$"
_NOT_FINITE = r"(?i)^[+-]?(inf|infinity|nan)$"
_TRUE = ["t", "true", "y", "yes", "1"]
_FALSE = ["f", "false", "n", "no", "0"]
# Quiet arithmetic: what overflows becomes NaN, which `min` below turns into a bound out of reach.
_EXACT = decimal.Context(
    prec=2 * MAX_PRECISION + 2,
    rounding=decimal.ROUND_HALF_UP,
    Emax=decimal.MAX_EMAX,
    Emin=decimal.MIN_EMIN,
    traps=[],
)
_OUT_OF_REACH = decimal.Decimal(10**MAX_PRECISION)


def cast(source: FieldType, target: FieldType) -> Kernel:
    """Return the function that casts a column of one type to the other.

    The pair must be one that `rules.can_cast` allows.
    """
    if source.kind == target.kind != "decimal":
        return lambda values: values
    if source.kind == "void" or target.kind == "string":
        return lambda values: values.cast(physical(target))
    if target.kind == "boolean":
        return _boolean if source.kind == "string" else lambda values: values != 0
    if target.kind == "double":
        return _to_double(source)
    if target.kind == "decimal":
        return _to_decimal(source, target)
    return _to_whole(source, target)


def _to_double(source: FieldType) -> Kernel:
    if source.kind == "decimal":
        return lambda values: to_double(values, scale=source.scale)
    if source.kind == "string":
        return _double_of_string
    return lambda values: values.cast(pl.Float64)


def _to_decimal(source: FieldType, target: FieldType) -> Kernel:
    precision, scale = target.precision, target.scale
    if source.kind == "decimal":
        shift = scale - source.scale
        return lambda values: rescale(values, shift=shift, precision=precision)
    if source.kind == "string":
        return lambda values: _decimal_of_text(_number(values), target)
    if source.kind == "double":
        # By the shortest digits that name the double, as Spark does: 0.1 is 0.1.
        return lambda values: _decimal_of_text(_digits(values), target)
    return lambda values: rescale(values.cast(pl.Int128), shift=scale, precision=precision)


def _to_whole(source: FieldType, target: FieldType) -> Kernel:
    narrow = pl.Int32 if target.kind == "int" else pl.Int64

    def fitting(values: pl.Series) -> pl.Series:
        return values.cast(narrow, strict=False).cast(pl.Int64)

    if source.kind == "timestamp-millis":
        return lambda values: values // 1000  # Spark counts seconds
    if source.kind == "decimal":
        unit = constant(10**source.scale)
        return lambda values: fitting(values.abs() // unit * values.sign())
    if source.kind == "string":
        return lambda values: fitting(_keep(_trim(values), r"^[+-]?[0-9]+$"))
    return fitting


def _trim(values: pl.Series) -> pl.Series:
    return values.str.strip_chars(_BLANKS)


def _keep(values: pl.Series, pattern: str) -> pl.Series:
    return values.zip_with(values.str.contains(pattern), pl.Series([None], dtype=pl.String))


def _number(values: pl.Series) -> pl.Series:
    return _keep(_trim(values), _NUMBER)


def _boolean(values: pl.Series) -> pl.Series:
    words = _trim(values).str.to_lowercase()
    known = words.is_in(_TRUE)
    return known.zip_with(words.is_in(_TRUE + _FALSE), pl.Series([None], dtype=pl.Boolean))


def _double_of_string(values: pl.Series) -> pl.Series:
    plain = _trim(values).str.replace(r"([0-9.])[dDfF]$", "${1}")  # Java's suffixes
    return _keep(plain, f"{_NUMBER}|{_NOT_FINITE}").cast(pl.Float64, strict=False)


def _digits(values: pl.Series) -> pl.Series:
    finite = values.is_finite() & (values.abs() < 10.0**MAX_PRECISION)
    known = values.is_not_null() & finite
    digits = pl.Series(list(map(repr, values.zip_with(known, pl.Series([0.0])).to_list())))
    return digits.cast(pl.String).zip_with(known, pl.Series([None], dtype=pl.String))


def _decimal_of_text(values: pl.Series, target: FieldType) -> pl.Series:
    exact = map(decimal.Decimal, values.fill_null("0").to_list())
    step = decimal.Decimal((0, (1,), -target.scale))
    whole = map(_EXACT.scaleb, map(_EXACT.quantize, exact, repeat(step)), repeat(target.scale))
    reach = map(_EXACT.min, whole, repeat(_OUT_OF_REACH))
    reach = map(_EXACT.max, reach, repeat(-_OUT_OF_REACH))
    unscaled = pl.Series(list(map(int, reach)), dtype=pl.Int128)
    return within(unscaled, target.precision).zip_with(values.is_not_null(), constant(None))
