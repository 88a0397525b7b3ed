"""Parts that compare values or choose between them, and their functions; operands run once.

Comparisons are Spark's: NaN equals NaN and is larger than any number, -0.0 equals 0.0, AND and OR
use three-valued logic, and only ``<=>`` treats nulls as equal.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import polars as pl

from errata.processors.expressions import rules
from errata.processors.expressions.columns import Kernel, null
from errata.processors.expressions.function import ANY, Function
from errata.processors.expressions.part import Part, align, apply, constant, readings
from errata.schemas.fields import FieldType

_MIRRORED: dict[Kernel | None, Kernel] = {
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
}
"""The comparison to use if the sides of ``left how right`` are swapped, except for = and <>."""


def compare(how: Kernel, left: Part, right: Part) -> Part:
    """Return ``left how right`` in their common type."""
    left, right = readings(left, right)
    kind, kernel = _comparison(how, left, right)
    return apply(kernel, kind, left, right)


def null_safe_equal(left: Part, right: Part) -> Part:
    """Return ``left <=> right``, true for two nulls and never null."""
    return replace(compare(pl.Series.eq_missing, left, right), type=rules.BOOLEAN)


def member(value: Part, options: Sequence[Part]) -> Part:
    """Return ``value IN (options)``: true if one is equal, null if one may be equal."""
    parts = readings(value, *options)
    aligned = align(*parts)

    def run(*columns: pl.Series) -> pl.Series:
        one, *others = (cast(c) for cast, c in zip(aligned.casts, columns, strict=True))
        return reduce(operator.or_, ((one == other).cast(pl.Boolean) for other in others))

    return apply(run, _boolean(aligned.optional), *parts)


def between(value: Part, low: Part, high: Part) -> Part:
    """Return ``value >= low AND value <= high``."""
    if isinstance(value.literal, str):
        value, low, high = readings(value, low, high)
    else:
        (_, low), (_, high) = readings(value, low), readings(value, high)
    low_kind, above = _comparison(operator.ge, value, low)
    high_kind, below = _comparison(operator.le, value, high)
    kind = _boolean((low_kind.optional, high_kind.optional))
    return apply(lambda x, a, b: above(x, a) & below(x, b), kind, value, low, high)


def null_if(left: Part, right: Part) -> Part:
    """Return null if the two are equal, otherwise the left one, in its own type."""
    one, other = readings(left, right)
    _, equal = _comparison(operator.eq, one, other)
    nulls = null(rules.physical(left.type))
    run: Kernel = lambda a, b, c: nulls.zip_with(equal(a, b), c)  # noqa: E731
    return apply(run, left.type.nullable, one, other, left)


def coalesce(*options: Part) -> Part:
    """Return the first part that is not null."""
    parts = readings(*options)
    aligned = align(*parts)

    def run(*columns: pl.Series) -> pl.Series:
        first, *others = (cast(c) for cast, c in zip(aligned.casts, columns, strict=True))
        for option in others:
            if first.null_count():
                first = first.zip_with(first.is_not_null(), option)
        return first

    return apply(run, replace(aligned.type, optional=all(aligned.optional)), *parts)


def extreme(how: Kernel, *options: Part) -> Part:
    """Return the first part that is `how` all others; nulls are ignored."""
    parts = readings(*options)
    aligned = align(*parts)

    def better(one: pl.Series, other: pl.Series) -> pl.Series:
        is_better = how(one, other) | other.is_null()
        return one.zip_with(is_better, other)  # not better if either is null

    def run(*columns: pl.Series) -> pl.Series:
        return reduce(better, (cast(c) for cast, c in zip(aligned.casts, columns, strict=True)))

    return apply(run, replace(aligned.type, optional=all(aligned.optional)), *parts)


def choose(
    tests: Sequence[Part], results: Sequence[Part], default: Part, *, operand: Part | None = None
) -> Part:
    """Return the first result whose test is true, or equals the operand if there is one."""
    chosen = readings(*results, default)
    aligned = align(*chosen)
    kind = replace(aligned.type, optional=any(aligned.optional))
    equals: list[Kernel] = []
    if operand is not None:
        operand, *tests = readings(operand, *tests)
        equals = [_comparison(operator.eq, operand, test)[1] for test in tests]
    count = len(tests)

    def run(*columns: pl.Series) -> pl.Series:
        truths, values = columns[:count], columns[count : 2 * count + 1]
        if equals:
            *_, operand_values = columns
            truths = tuple(e(operand_values, t) for e, t in zip(equals, truths, strict=True))
        *options, last = (cast(v) for cast, v in zip(aligned.casts, values, strict=True))
        for truth, option in zip(reversed(truths), reversed(options), strict=True):
            last = option.zip_with(truth, last)  # not chosen if the truth is null
        return last

    return apply(run, kind, *tests, *chosen, *([operand] if operand else []))


def _comparison(how: Kernel, left: Part, right: Part) -> tuple[FieldType, Kernel]:
    left, right = _bound(_MIRRORED.get(how), right, left), _bound(how, left, right)
    aligned = align(left, right, literal_digits=True)
    one, other = aligned.casts
    # The cast is for two bare NULLs, whose comparison has polars' null type.
    return _boolean(aligned.optional), lambda a, b: how(one(a), other(b)).cast(pl.Boolean)


def _bound(how: Kernel | None, whole: Part, limit: Part) -> Part:
    """Round a decimal literal next to a whole number to a whole one: x > 1.5 becomes x > 1.

    Spark does the same. It is exact even if a decimal has no digits left for the fraction.
    """
    digits = limit.literal if limit.type.kind == "decimal" else None
    if how not in _MIRRORED or whole.type.kind not in rules.WHOLE or not isinstance(digits, int):
        return limit
    unit = 10**limit.type.scale
    bound = digits // unit if how in (operator.gt, operator.le) else -(-digits // unit)
    return constant(bound, rules.LONG) if -(2**63) <= bound < 2**63 else limit


def _boolean(optional: Sequence[bool]) -> FieldType:
    return FieldType("boolean", optional=any(optional))


def is_null(part: Part) -> Part:
    """Return ``part IS NULL``."""
    return apply(pl.Series.is_null, rules.BOOLEAN, part)


def is_not_null(part: Part) -> Part:
    """Return ``part IS NOT NULL``."""
    return apply(pl.Series.is_not_null, rules.BOOLEAN, part)


def _if_known(part: Part, result: Part, otherwise: Part) -> Part:
    return choose([is_not_null(part)], [result], otherwise)


FUNCTIONS: tuple[Function, ...] = (
    Function("coalesce", (ANY,), "any", coalesce, "coalesce(note, 'none')", repeats=True),
    Function("ifnull", (ANY, ANY), "any", coalesce, "ifnull(note, 'none')", aliases=("nvl",)),
    Function("nvl2", (ANY, ANY, ANY), "any", _if_known, "nvl2(note, 'some', 'none')"),
    Function("nullif", (ANY, ANY), "any", null_if, "nullif(size, 7)"),
    Function("isnull", (ANY,), "boolean, never null", is_null, "isnull(note)"),
    Function("isnotnull", (ANY,), "boolean, never null", is_not_null, "isnotnull(note)"),
)
