"""Functions of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from errata.processors.expressions import choices, operators, rounding, rules
from errata.processors.expressions.columns import by_array
from errata.processors.expressions.function import (
    ANY,
    DOUBLE,
    NUMBER,
    OPERAND,
    SOME_NUMBER,
    Function,
    UnfitError,
    plain,
)
from errata.processors.expressions.part import Part, apply


def _real(function: Callable[[Any], Any], *, above: float | None = None) -> Callable[..., Part]:
    """Return a function of doubles, null if the argument is not above a bound."""
    kernel = by_array(function, dtype=pl.Float64)
    if above is None:
        return plain(kernel, rules.DOUBLE)

    def bounded(values: pl.Series) -> pl.Series:
        outside = values <= above
        return kernel(values).zip_with(~outside, pl.Series([None], dtype=pl.Float64))

    return plain(bounded, rules.DOUBLE.nullable)


def _sign(values: Any) -> Any:
    return np.where(values == 0.0, values, np.sign(values))  # -0.0 stays


def _power(base: Any, exponent: Any) -> Any:
    """Return powers as in Java: 1 to a NaN or infinite power is NaN; in C it is 1.

    A single exponent is repeated for each base. For a scalar exponent numpy uses another algorithm
    with other last bits, and a tuple's value would depend on the size of its batch.
    """
    base, exponent = map(np.ascontiguousarray, np.broadcast_arrays(base, exponent))
    unclear = np.isnan(exponent) | ((abs(base) == 1.0) & np.isinf(exponent))
    return np.where(unclear, np.nan, np.power(base, exponent))


def _round(value: Part, digits: int = 0, *, even: bool) -> Part:
    if abs(digits) > rounding.MAX_DIGITS:
        most = rounding.MAX_DIGITS
        raise UnfitError(f"at most {most} digits", found=str(digits), argument=1)
    kind = rounding.rounded(value.type, digits)
    return apply(rounding.round_to(value.type, digits, even=even), kind, value)


def _floor(value: Part, *, up: bool) -> Part:
    return apply(rounding.floor(value.type, up=up), rounding.whole_kind(value.type), value)


def _nan_or(value: Part, other: Part) -> Part:
    if other.type == rules.VOID:
        other = other.cast(value.type)
    if {value.type.kind, other.type.kind} != {"float"}:
        value, other = value.cast(rules.DOUBLE), other.cast(rules.DOUBLE)
    kind = replace(value.type, optional=value.type.optional or other.type.optional)

    def run(values: pl.Series, others: pl.Series) -> pl.Series:
        return others.zip_with(values.is_nan(), values)

    return apply(run, kind, value, other)


def _is_nan(value: Part) -> Part:
    return apply(lambda values: values.is_nan().fill_null(False), rules.BOOLEAN, value)


FUNCTIONS: tuple[Function, ...] = (
    Function("abs", (NUMBER,), "number", operators.absolute, "abs(-price)"),
    Function(
        "round",
        (NUMBER, SOME_NUMBER),
        "number, ties away from zero",
        partial(_round, even=False),
        "round(price, 1)",
        least=1,
    ),
    Function(
        "bround",
        (NUMBER, SOME_NUMBER),
        "number, ties to the even neighbour",
        partial(_round, even=True),
        "bround(2.5)",
        least=1,
    ),
    Function(
        "floor", (NUMBER,), "long, of a decimal a decimal", partial(_floor, up=False), "floor(-1.5)"
    ),
    Function(
        "ceil",
        (NUMBER,),
        "long, of a decimal a decimal",
        partial(_floor, up=True),
        "ceil(rate)",
        aliases=("ceiling",),
    ),
    Function("sign", (DOUBLE,), "double", _real(_sign), "sign(-price)", aliases=("signum",)),
    Function("mod", (OPERAND, OPERAND), "number", partial(operators.calculate, "%"), "mod(-7, 3)"),
    Function(
        "pmod",
        (OPERAND, OPERAND),
        "number, not below 0 for a divisor above",
        partial(operators.calculate, "pmod"),
        "pmod(-7, 3)",
    ),
    Function("sqrt", (DOUBLE,), "double", _real(np.sqrt), "sqrt(size)"),
    Function(
        "power",
        (DOUBLE, DOUBLE),
        "double",
        plain(by_array(_power, dtype=pl.Float64), rules.DOUBLE),
        "power(2, 10)",
        aliases=("pow",),
    ),
    Function("exp", (DOUBLE,), "double", _real(np.exp), "exp(0)"),
    Function(
        "ln", (DOUBLE,), "double, null up to 0", _real(np.log, above=0.0), "ln(1)", aliases=("log",)
    ),
    Function("log10", (DOUBLE,), "double, null up to 0", _real(np.log10, above=0.0), "log10(1000)"),
    Function("log2", (DOUBLE,), "double, null up to 0", _real(np.log2, above=0.0), "log2(8)"),
    Function("isnan", (DOUBLE,), "boolean, never null", _is_nan, "isnan(rate)"),
    Function(
        "nanvl",
        (NUMBER, OPERAND),
        "double, or float of two floats",
        _nan_or,
        "nanvl(rate, 0)",
    ),
    Function(
        "greatest",
        (ANY, ANY),
        "any, null if all are",
        partial(choices.extreme, operator.ge),
        "greatest(price, 20, null)",
        repeats=True,
    ),
    Function(
        "least",
        (ANY, ANY),
        "any, null if all are",
        partial(choices.extreme, operator.le),
        "least(price, 20, null)",
        repeats=True,
    ),
)
