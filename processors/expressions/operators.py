"""Parts that calculate: numbers with numbers, times with days and intervals."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal

import polars as pl
from sqlglot import exp

from errata.processors.expressions import arithmetic, civil, clock, rules
from errata.processors.expressions.columns import by_array
from errata.processors.expressions.function import UnfitError
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

_UNIT_MICROS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": civil.DAY_MS * 1000,
    "week": 7 * civil.DAY_MS * 1000,
}
_UNIT_MONTHS = {"month": 1, "year": 12}
_HINTS = {
    frozenset(rules.INSTANTS): "unix_millis(a) - unix_millis(b) is the difference in ms",
    frozenset(("date",)): "datediff(a, b) is the difference in days",
}


@dataclass(frozen=True)
class Interval:
    """A length of time: months, or microseconds; ``in_days`` if it was written in days or weeks."""

    months: int = 0
    micros: int = 0
    in_days: bool = False


def interval(node: exp.Interval) -> Interval | None:
    """Return the interval of ``INTERVAL 'count' unit``, None if the node is not one."""
    unit = node.args.get("unit")
    unit = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    count = node.this.name if isinstance(node.this, exp.Literal) else ""
    fraction = r"(\.[0-9]{1,6})?" if unit == "second" else ""
    if not re.fullmatch(r"[+-]?[0-9]{1,9}" + fraction, count):
        return None
    if unit in _UNIT_MONTHS:
        return Interval(months=int(count) * _UNIT_MONTHS[unit])
    if unit not in _UNIT_MICROS:
        return None
    micros = int(Decimal(count) * _UNIT_MICROS[unit])
    return Interval(micros=micros, in_days=unit in ("day", "week"))


def shifted(part: Part, by: Interval, *, sign: int) -> Part:
    """Return a date or timestamp moved by an interval; null if the result is out of range.

    A date moved by an interval in units below days becomes a timestamp.
    """
    if part.type.kind not in rules.TEMPORAL:
        raise UnfitError("a date or timestamp beside the interval", found=str(part.type.required))
    if part.type.kind == "date" and by.micros and not by.in_days:
        part = part.cast(rules.TIMESTAMP)
    if part.type.kind == "timestamp-millis" and by.micros % 1000:
        part = part.cast(rules.MICROS)
    kernel = clock.shift(part.type, months=sign * by.months, micros=sign * by.micros)
    return apply(kernel, part.type.nullable, part)


def add_days(part: Part, days: Part, *, sign: int) -> Part:
    """Return a date some days later, null beyond the last date."""
    kind = replace(rules.DATE, optional=True)
    plus = by_array(lambda d, n: d.astype("int64") + sign * n.astype("int64"), dtype=pl.Int32)
    return apply(plus, kind, part, days)


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
        raise _no_numbers(symbol, left, right)
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
    return add_days(left, right, sign=1 if symbol == "+" else -1)


def _no_numbers(symbol: str, left: Part, right: Part) -> UnfitError:
    kinds = {left.type.kind, right.type.kind}
    hint = next((hint for among, hint in _HINTS.items() if kinds <= among), "")
    if not hint and kinds & set(rules.TEMPORAL):
        hint = "write a length of time as interval 5 minutes"
    if symbol == "div" and kinds <= set(rules.NUMERIC):
        hint = "cast them to bigint, or use floor(a / b)"
    found = f"{left.type.required} and {right.type.required}"
    return UnfitError(f"two numbers for {symbol}", found=found, hint=hint)


def _refuse_constant_overflow(*parts: Part) -> None:
    """Refuse ``60*60*24*30*1000``: a user never wants null in every row."""
    *operands, result = (part.run(pl.DataFrame()).item() for part in parts)
    if result is None and None not in operands:
        raise UnfitError(
            "a result of 32 bits between integer literals, as in Spark",
            found="one that overflows and would be null in every row",
            hint="write the first as 64 bits: 60L",
        )
