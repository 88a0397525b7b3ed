"""Functions and operators of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from sqlglot import exp

from errata.processors.expressions import arithmetic, choices, rules, time_functions
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
from errata.schemas.fields import FieldType

SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
"""The operators by the parser's node."""

_HINTS = {
    frozenset(rules.INSTANTS): "unix_millis(a) - unix_millis(b) is the difference in ms",
    frozenset(("date",)): "datediff(a, b) is the difference in days",
}


def calculate(symbol: str, left: Part, right: Part) -> Part:
    """Return ``left symbol right``.

    Args:
        symbol: One of ``+ - * / % pmod div``.
        left: The left operand.
        right: The right operand.

    Raises:
        UnfitError: If they are not two numbers (or a date and whole days).
    """
    divisor_is_not_zero = isinstance(right.literal, int) and right.literal != 0
    if (dated := _days_moved(symbol, left, right)) is not None:
        return dated
    if left.type == rules.VOID:
        real = symbol == "/" or right.type == rules.VOID  # in Spark also null / decimal
        left = left.cast(rules.DOUBLE if real else right.type)
    if right.type == rules.VOID:
        right = right.cast(left.type)
    kinds = {left.type.kind, right.type.kind}
    if "decimal" in kinds and kinds & set(rules.WHOLE):
        left, right = left.as_decimal(), right.as_decimal()
    result = rules.arithmetic(
        "%" if symbol == "pmod" else symbol,
        left.type,
        right.type,
        divisor_is_not_zero=divisor_is_not_zero,
    )
    if result is None:
        raise _not_numbers(symbol, left, right)
    if result.kind == "double":
        left, right = left.cast(rules.DOUBLE), right.cast(rules.DOUBLE)
    if symbol == "pmod":  # unlike p % q it may have the digits of q
        result = result.nullable
    kernel = arithmetic.kernel(symbol, left.type, right.type, result)
    part = apply(kernel, result, left, right)
    if result.kind == "int" and symbol in "+-*" and not part.columns:
        _refuse_constant_overflow(left, right, part)
    return part


def negated(part: Part) -> Part:
    """Return ``-part``, null for the one whole number without an opposite."""
    return apply(arithmetic.negate(part.type), _with_overflow(part), part)


def absolute(part: Part) -> Part:
    """Return ``abs(part)``, null for the one whole number without an opposite."""
    return apply(arithmetic.absolute(part.type), _with_overflow(part), part)


def _with_overflow(part: Part) -> FieldType:
    return part.type.nullable if part.type.kind in rules.WHOLE else part.type


def _days_moved(symbol: str, left: Part, right: Part) -> Part | None:
    """Return ``date + days``, ``days + date`` or ``date - days``; None if it is none of them."""
    if symbol == "+" and right.type.kind == "date":
        left, right = right, left
    if symbol not in ("+", "-") or left.type.kind != "date" or right.type.kind not in rules.WHOLE:
        return None
    return time_functions.add_days(left, right, sign=1 if symbol == "+" else -1)


def _not_numbers(symbol: str, left: Part, right: Part) -> UnfitError:
    kinds = {left.type.kind, right.type.kind}
    hint = next((hint for among, hint in _HINTS.items() if kinds <= among), "")
    if not hint and kinds & set(rules.TEMPORAL):
        hint = "write a duration as interval 5 minutes"
    if symbol == "div" and kinds <= set(rules.NUMERIC):
        hint = "cast them to bigint, or use floor(a / b)"
    actual = f"{left.type.required} and {right.type.required}"
    return UnfitError(f"two numbers for {symbol}", found=actual, hint=hint)


def _refuse_constant_overflow(*parts: Part) -> None:
    """Refuse ``60*60*24*30*1000``: a user never wants null in every row."""
    *operands, result = (part.run(pl.DataFrame()).item() for part in parts)
    if result is None and None not in operands:
        raise UnfitError(
            "a result of 32 bits between integer literals, as in Spark",
            found="an overflow, which would be null in every row",
            hint="write the first operand with 64 bits: 60L",
        )


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
    is_nan = np.isnan(exponent) | ((abs(base) == 1.0) & np.isinf(exponent))
    return np.where(is_nan, np.nan, np.power(base, exponent))


def _round(value: Part, digits: int = 0, *, even: bool) -> Part:
    if abs(digits) > arithmetic.MAX_DIGITS:
        limit = arithmetic.MAX_DIGITS
        raise UnfitError(f"at most {limit} digits", found=str(digits), argument=1)
    kind = arithmetic.rounded(value.type, digits)
    return apply(arithmetic.round_to(value.type, digits, even=even), kind, value)


def _floor(value: Part, *, up: bool) -> Part:
    return apply(arithmetic.floor(value.type, up=up), arithmetic.whole_kind(value.type), value)


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
    Function("abs", (NUMBER,), "number", absolute, "abs(-price)"),
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
        "floor",
        (NUMBER,),
        "long; a decimal for a decimal",
        partial(_floor, up=False),
        "floor(-1.5)",
    ),
    Function(
        "ceil",
        (NUMBER,),
        "long; a decimal for a decimal",
        partial(_floor, up=True),
        "ceil(rate)",
        aliases=("ceiling",),
    ),
    Function("sign", (DOUBLE,), "double", _real(_sign), "sign(-price)", aliases=("signum",)),
    Function("mod", (OPERAND, OPERAND), "number", partial(calculate, "%"), "mod(-7, 3)"),
    Function(
        "pmod",
        (OPERAND, OPERAND),
        "number, 0 or more for a positive divisor",
        partial(calculate, "pmod"),
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
        "ln",
        (DOUBLE,),
        "double, null for 0 or less",
        _real(np.log, above=0.0),
        "ln(1)",
        aliases=("log",),
    ),
    Function(
        "log10", (DOUBLE,), "double, null for 0 or less", _real(np.log10, above=0.0), "log10(1000)"
    ),
    Function("log2", (DOUBLE,), "double, null for 0 or less", _real(np.log2, above=0.0), "log2(8)"),
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
