"""Casts between the types of expressions: null if a value has no counterpart, never an error.

This is Spark's ``try_cast``. The differences are edge cases: a second beyond Spark's timestamps is
null (Spark returns the last one), and so are strings that Java parses as hexadecimal floats, and
bytes that are not UTF-8 (Spark keeps them); a timestamp beyond the last date becomes that date.
"""

from __future__ import annotations

import decimal
from functools import partial
from itertools import repeat
from operator import methodcaller

import numpy as np
import polars as pl
from sqlglot import exp

from errata.processors.expressions import rules, times
from errata.processors.expressions.columns import Kernel, by_array, by_row, filled, null
from errata.processors.expressions.decimals import constant, rescale, to_double, to_text, within
from errata.processors.expressions.rules import physical
from errata.schemas.fields import MAX_PRECISION, FieldType, FieldTypeError

NAMES = "int, bigint, decimal(p,s), float, double, boolean, string, binary, date or timestamp"
"""The target types of casts, for messages and the documentation."""

_KINDS = {
    "BIGINT": rules.LONG,
    "INT": rules.INT,
    "FLOAT": rules.FLOAT,
    "DOUBLE": rules.DOUBLE,
    "BOOLEAN": rules.BOOLEAN,
    "TEXT": rules.STRING,
    "VARCHAR": rules.STRING,
    "BINARY": rules.BYTES,
    "DATE": rules.DATE,
    "TIMESTAMPTZ": rules.TIMESTAMP,
    "TIMESTAMP": rules.TIMESTAMP,
}


def target(node: exp.DataType) -> FieldType | None:
    """Return the type that a cast names; None if the type is not supported."""
    name = str(getattr(node.this, "value", node.this))
    digits = ",".join(parameter.name for parameter in node.expressions)
    if name == "DECIMAL":
        try:
            return FieldType.parse(f"decimal({digits or '10,0'})")
        except FieldTypeError:
            return None
    return None if digits else _KINDS.get(name)


_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?$"
_NOT_FINITE = r"(?i)^[+-]?(inf|infinity|nan)$"
_TRUE = ["t", "true", "y", "yes", "1"]
_FALSE = ["f", "false", "n", "no", "0"]
# Quiet arithmetic: what overflows becomes NaN, which `min` below turns into a bound out of range.
_EXACT = decimal.Context(
    prec=2 * MAX_PRECISION + 2,
    rounding=decimal.ROUND_HALF_UP,
    Emax=decimal.MAX_EMAX,
    Emin=decimal.MIN_EMIN,
    traps=[],
)
_LAST = pl.Series([2**63 - 1])
_OUT_OF_RANGE = decimal.Decimal(10**MAX_PRECISION)
_LONG_DIGITS = 18
"""Digits of a decimal that Spark keeps in 64 bits."""
_PER_DAY = {"timestamp-millis": times.DAY_MS, "timestamp-micros": times.DAY_MS * 1000}
_DIGITS_OF_SECOND = {"timestamp-millis": 3, "timestamp-micros": 6}
_PER_SECOND = {kind: 10**digits for kind, digits in _DIGITS_OF_SECOND.items()}


def cast(source: FieldType, target: FieldType) -> Kernel:
    """Return the function that casts a column of one type to the other.

    The pair must be one that `rules.can_cast` allows.
    """
    if source.kind == target.kind != "decimal" or {source.kind, target.kind} == set(rules.TEXT):
        return lambda values: values
    if source.kind == "void":
        return lambda values: values.cast(physical(target))
    if target.kind in rules.TEMPORAL:
        return _to_moment(source, target)
    if target.kind == "string":
        return _to_text(source)
    if target.kind == "bytes":
        return lambda values: values.cast(pl.Binary)
    if target.kind == "boolean":
        return _boolean if source.kind == "string" else lambda values: values != 0
    if target.kind in ("double", "float"):
        return _to_real(source, target)
    if target.kind == "decimal":
        return _to_decimal(source, target)
    return _to_whole(source, target)


def _to_moment(source: FieldType, target: FieldType) -> Kernel:
    if source.kind == "string":
        if target.kind == "date":
            return times.dates
        if target.kind == "timestamp-micros":
            return times.micros
        return lambda values: _per(1000)(times.micros(values))
    if target.kind == "date":
        unit, last = _PER_DAY[source.kind], 2**31 - 1
        return by_array(lambda t: np.clip(t // unit, -last, last), dtype=pl.Int32)
    if source.kind == "timestamp-micros":
        return _per(1000)
    unit = _PER_DAY[target.kind] if source.kind == "date" else 1000
    limit = times.SECONDS * _PER_SECOND[target.kind] // unit
    beyond = source.kind in rules.WHOLE or target.kind == "timestamp-micros"

    def widen(values: pl.Series) -> pl.Series:
        wide = values.cast(pl.Int64)
        if beyond:
            wide = wide.zip_with(wide.is_between(-limit, limit), null(pl.Int64))
        return wide * unit

    return widen


def _per(unit: int) -> Kernel:
    return by_array(lambda values: values // unit, dtype=pl.Int64)


def _to_text(source: FieldType) -> Kernel:
    if source.kind == "decimal":
        return lambda values: to_text(values, scale=source.scale)
    if source.kind == "date":
        return times.text_of_dates
    if source.kind in rules.INSTANTS:
        unit = "ms" if source.kind == "timestamp-millis" else "us"
        return partial(times.text_of_instants, unit=unit)
    return _text_of_bytes if source.kind == "bytes" else lambda values: values.cast(pl.String)


def _text_of_bytes(values: pl.Series) -> pl.Series:
    texts = by_row(methodcaller("decode", "utf-8", "replace"), dtype=pl.String)(values)
    return texts.zip_with(texts.cast(pl.Binary) == values, null(pl.String))


def _to_real(source: FieldType, target: FieldType) -> Kernel:
    kind = physical(target)
    if source.kind == "string":
        return lambda values: _real_of_text(values).cast(kind, strict=False)
    if source.kind == "decimal":
        if target.kind == "double":
            return lambda values: to_double(values, scale=source.scale)
        # Through a double it would round twice.
        return lambda values: to_text(values, scale=source.scale).cast(pl.Float32)
    if source.kind in rules.INSTANTS:
        unit = float(_PER_SECOND[source.kind])
        return by_array(lambda t: t / unit, dtype=kind)
    return lambda values: values.cast(kind)


def _to_decimal(source: FieldType, target: FieldType) -> Kernel:
    precision, scale = target.precision, target.scale
    if source.kind == "decimal":
        shift = scale - source.scale
        if not shift and source.precision <= precision:
            return lambda values: values
        return lambda values: rescale(values, shift=shift, precision=precision)
    if source.kind == "string":
        return lambda values: _decimal_of_text(_number(values), target)
    if source.kind in rules.INSTANTS:
        shift = scale - _DIGITS_OF_SECOND[source.kind]
        return lambda values: rescale(values.cast(pl.Int128), shift=shift, precision=precision)
    if source.kind in ("float", "double"):
        # By the shortest digits that identify the double, as Spark does: 0.1 is 0.1.
        double = cast(source, rules.DOUBLE)
        return lambda values: _decimal_of_text(_digits(double(values)), target)
    return lambda values: rescale(values.cast(pl.Int128), shift=scale, precision=precision)


def _to_whole(source: FieldType, target: FieldType) -> Kernel:
    whole = physical(target)

    def fitting(values: pl.Series) -> pl.Series:
        return values.cast(whole, strict=False)

    if target.kind == "long" and source.kind in ("float", "double"):
        # Spark's check of the bound rounds it up to this one, which then becomes the last long.
        return lambda values: _LAST.zip_with(values == 2.0**63, fitting(values))
    if source.kind in rules.INSTANTS:
        seconds = _per(_PER_SECOND[source.kind])
        return lambda values: fitting(seconds(values))
    if source.kind == "decimal" and target.kind == "int" and source.precision > _LONG_DIGITS:
        double = cast(source, rules.DOUBLE)  # as Spark: 0.99999999999999999999 is 1
        return lambda values: fitting(double(values))
    if source.kind == "decimal":
        unit = constant(10**source.scale)
        return lambda values: fitting(values.abs() // unit * values.sign())
    if source.kind == "string":
        return lambda values: fitting(_keep(_trim(values), r"^[+-]?[0-9]+$"))
    return fitting


def _trim(values: pl.Series) -> pl.Series:
    return values.str.strip_chars(times.BLANKS)


def _keep(values: pl.Series, pattern: str) -> pl.Series:
    return values.zip_with(values.str.contains(pattern), null(pl.String))


def _number(values: pl.Series) -> pl.Series:
    return _keep(_trim(values), _NUMBER)


def _boolean(values: pl.Series) -> pl.Series:
    words = _trim(values).str.to_lowercase()
    known = words.is_in(_TRUE)
    return known.zip_with(words.is_in(_TRUE + _FALSE), null(pl.Boolean))


def _real_of_text(values: pl.Series) -> pl.Series:
    plain = _trim(values).str.replace(r"([0-9.])[dDfF]$", "${1}")  # Java's suffixes
    return _keep(plain, f"{_NUMBER}|{_NOT_FINITE}")


def _digits(values: pl.Series) -> pl.Series:
    finite = values.is_finite() & (values.abs() < 10.0**MAX_PRECISION)
    known = values.is_not_null() & finite
    digits = pl.Series(list(map(repr, values.zip_with(known, pl.Series([0.0])).to_list())))
    return digits.cast(pl.String).zip_with(known, null(pl.String))


def _decimal_of_text(values: pl.Series, target: FieldType) -> pl.Series:
    exact = map(decimal.Decimal, filled(values, "0").to_list())
    step = decimal.Decimal((0, (1,), -target.scale))
    whole = map(_EXACT.scaleb, map(_EXACT.quantize, exact, repeat(step)), repeat(target.scale))
    clamped = map(_EXACT.min, whole, repeat(_OUT_OF_RANGE))
    clamped = map(_EXACT.max, clamped, repeat(-_OUT_OF_RANGE))
    unscaled = pl.Series(list(map(int, clamped)), dtype=pl.Int128)
    return within(unscaled, target.precision).zip_with(values.is_not_null(), constant(None))
