"""The aggregate functions as data: their names, arguments and descriptions.

The compiler, the messages and the page ``docs/aggregates.md`` read this table.
"""

from __future__ import annotations

import difflib

from errata.processors.aggregates.calls import (
    AggregateTypeError,
    Call,
    avg_of,
    count_of,
    extreme_by,
    first_of,
    last_of,
    of_booleans,
    sum_of,
    variance_of,
)
from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.count import TRUE, Count
from errata.processors.aggregates.function import BY_ORDER, BY_TIME, Function, Macro
from errata.processors.aggregates.holistic_functions import HOLISTIC
from errata.processors.aggregates.logical import Logical
from errata.processors.aggregates.max import Max, Min

_ALWAYS = "always"
_WHILE_KNOWN = "while one of its best few is left; else replayed"
_EXACT = "exact"
_TOTAL = "exact for int, long, decimal; else to 2^-96 of what was ever summed"
_SPREAD = "rounded once for int, long, decimal; else to 2^-130 of the mean square"


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        Function(
            "count",
            "count(*) -> long, all tuples; count(any) -> long, those where it is not null",
            "count(*)",
            _EXACT,
            _ALWAYS,
            count_of,
        ),
        Function(
            "count_if",
            "count_if(boolean) -> long, tuples for which it is true",
            "count_if(price > 10)",
            _EXACT,
            _ALWAYS,
            of_booleans(lambda: Count(TRUE)),
        ),
        Function(
            "sum",
            "sum(int or long) -> long; sum(decimal(p,s)) -> decimal(p+10,s); "
            "sum(float or double) -> double; null if it doesn't fit",
            "sum(price * size)",
            _TOTAL,
            _ALWAYS,
            sum_of,
            ("try_sum",),
        ),
        Function(
            "avg",
            "avg(decimal(p,s)) -> decimal(p+4,s+4); avg(other number) -> double",
            "avg(price)",
            "rounded once for int, long, decimal; else from the total, as that of sum",
            _ALWAYS,
            avg_of,
            ("mean", "try_avg"),
        ),
        Function(
            "min",
            "min(any) -> its type",
            "min(price)",
            _EXACT,
            _WHILE_KNOWN,
            lambda call: Min(call.types[0]),
        ),
        Function(
            "max",
            "max(any) -> its type",
            "max(price)",
            _EXACT,
            _WHILE_KNOWN,
            lambda call: Max(call.types[0]),
        ),
        Function(
            "first",
            "first(any) [ignore nulls] -> its type, of the first tuple; also first(any, true)",
            "first(price)",
            _EXACT,
            _WHILE_KNOWN,
            first_of,
            ("first_value", "any_value"),
            ordered=BY_ORDER,
        ),
        Function(
            "last",
            "last(any) [ignore nulls] -> its type, of the last tuple; also last(any, true)",
            "last(price)",
            _EXACT,
            _WHILE_KNOWN,
            last_of,
            ("last_value",),
            ordered=BY_ORDER,
        ),
        Function(
            "min_by",
            "min_by(any, any) -> the first where the second is smallest",
            "min_by(venue, price)",
            _EXACT,
            _WHILE_KNOWN,
            extreme_by(largest=False),
            arguments=2,
            ordered=BY_TIME,
        ),
        Function(
            "max_by",
            "max_by(any, any) -> the first where the second is largest",
            "max_by(venue, price)",
            _EXACT,
            _WHILE_KNOWN,
            extreme_by(largest=True),
            arguments=2,
            ordered=BY_TIME,
        ),
        Function(
            "var_samp",
            "var_samp(number) -> double; null for less than two values",
            "var_samp(size)",
            _SPREAD,
            _ALWAYS,
            variance_of(sample=True, root=False),
            ("variance",),
        ),
        Function(
            "var_pop",
            "var_pop(number) -> double",
            "var_pop(size)",
            _SPREAD,
            _ALWAYS,
            variance_of(sample=False, root=False),
        ),
        Function(
            "stddev_samp",
            "stddev_samp(number) -> double; null for less than two values",
            "stddev_samp(size)",
            _SPREAD,
            _ALWAYS,
            variance_of(sample=True, root=True),
            ("stddev", "std"),
        ),
        Function(
            "stddev_pop",
            "stddev_pop(number) -> double",
            "stddev_pop(size)",
            _SPREAD,
            _ALWAYS,
            variance_of(sample=False, root=True),
        ),
        Function(
            "bool_and",
            "bool_and(boolean) -> boolean, whether all are true",
            "bool_and(price > 10)",
            _EXACT,
            _ALWAYS,
            of_booleans(lambda: Logical(every=True)),
            ("every",),
        ),
        Function(
            "bool_or",
            "bool_or(boolean) -> boolean, whether any is true",
            "bool_or(price > 10)",
            _EXACT,
            _ALWAYS,
            of_booleans(lambda: Logical(every=False)),
            ("any", "some"),
        ),
        *HOLISTIC,
    )
}
"""Functions by name."""

MACROS: dict[str, Macro] = {
    "vwap": Macro(
        "vwap",
        "vwap(price, size) -> sum(price * size) / sum(size), over tuples that have both",
        "vwap(price, size)",
        "sum(price * size) / sum(if(price is null, null, size))",
        ("price", "size"),
        "that of the sums, then of their quotient",
        _ALWAYS,
    )
}
"""Macros by name."""

NAMES: dict[str, str] = {
    name: function.name
    for function in FUNCTIONS.values()
    for name in (function.name, *function.also)
} | {name: name for name in MACROS}
"""The name in the tables, by every name of a function or macro."""


def nearest(name: str) -> str:
    """Return the hint for an unknown function name.

    Example:
        >>> nearest("vwap_samp")
        'did you mean var_samp or covar_samp?'
    """
    near = difflib.get_close_matches(name.lower(), NAMES, n=2)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(FUNCTIONS)}"


def aggregate_function(call: Call) -> Compensating:
    """Return the aggregate function for a call.

    Raises:
        AggregateTypeError: If the name is unknown or the arguments don't fit.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> str(aggregate_function(Call("sum", (FieldType.parse("decimal(18,2)"),))).result)
        'decimal(28,2)?'
        >>> str(aggregate_function(Call("avg", (FieldType.parse("long"),))).result)
        'double?'
    """
    function = FUNCTIONS.get(call.name)
    if function is None:
        raise AggregateTypeError(
            call.name, need="an aggregate function", found=call.name, hint=nearest(call.name)
        )
    star = call.name == "count" and not call.types
    arguments = function.arguments or max(len(call.types), 1)
    given = len(call.types), len(call.parameters)
    if given != (arguments, function.parameters) and not star:
        found = str(sum(given)) if call.types else "none"
        raise AggregateTypeError(call.name, need=function.takes, found=found)
    return function.make(call)
