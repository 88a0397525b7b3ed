"""The aggregate functions as data: their names, arguments, accuracy and descriptions.

The compiler, the messages and the page ``docs/aggregates.md`` read this table.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from errata.processors.aggregates.calls import (
    AggregateTypeError,
    Call,
    avg_of,
    count_of,
    covariance_of,
    distinct_of,
    extreme_by,
    first_of,
    last_of,
    median_of,
    mode_of,
    of_booleans,
    percentile_of,
    ranking_of,
    sum_of,
    variance_of,
    volatility_of,
)
from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.extreme import Max, Min
from errata.processors.aggregates.holistic import MostCommon, TopK
from errata.processors.aggregates.sums import TRUE, Count, Logical


@dataclass(frozen=True)
class Function:
    """One aggregate function.

    Args:
        name: Its name.
        signature: Its arguments and its result.
        example: A call of it.
        exact: The accuracy of its result.
        compensates: Which rows can leave without a replay of the rest.
        make: Returns the function for a call.
        also: Its other names.
        arguments: The number of arguments; None if one or more.
        parameters: The number of literal numbers after the arguments.
        ordered: The order of rows: ``order_by`` or ``event time``; "" if there is none.
    """

    name: str
    signature: str
    example: str
    exact: str
    compensates: str
    make: Callable[[Call], Compensating]
    also: tuple[str, ...] = ()
    arguments: int | None = 1
    parameters: int = 0
    ordered: str = ""

    @property
    def takes(self) -> str:
        """The number of arguments, in words."""
        if self.arguments is None:
            return f"one argument or more of {self.name}"
        count = self.arguments + self.parameters
        return f"{'one argument' if count == 1 else f'{count} arguments'} of {self.name}"


@dataclass(frozen=True)
class Macro:
    """A name for an expression around calls of functions.

    Args:
        name: Its name.
        signature: Its arguments and its result.
        example: A call of it.
        expansion: The expression, over columns with the names of its arguments.
        arguments: The names of its arguments.
        exact: The accuracy of its result.
        compensates: Which rows can leave without a replay of the rest.
        also: Its other names.
    """

    name: str
    signature: str
    example: str
    expansion: str
    arguments: tuple[str, ...]
    exact: str
    compensates: str
    also: tuple[str, ...] = ()

    @property
    def takes(self) -> str:
        """The number of arguments, in words."""
        return f"{len(self.arguments)} arguments of {self.name}"


BY_ORDER, BY_TIME = "order_by", "event time"

_ALWAYS = "always"
_WHILE_KNOWN = "while one of its first few values is left; else replayed"
_EXACT = "exact"
_TOTAL = "exact for int, long, decimal; else to 2^-96 of what was ever summed"
_SPREAD = "rounded once for int, long, decimal; else to 2^-130 of the mean square"
_NEAREST = "rounded once"
_PRODUCTS = (
    "rounded once for int, long, decimal; else to 2^-130 of the product of the root mean squares"
)
_WHOLE = "always, in time linear in the content; never from a stored result"


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
            "rounded once for int, long, decimal; else from the total of sum",
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
        Function(
            "percentile",
            "percentile(number, p) -> double, p from 0 to 1, on the line between the closest ranks",
            "percentile(price, 0.9)",
            _NEAREST,
            _WHOLE,
            percentile_of,
            parameters=1,
        ),
        Function(
            "median",
            "median(number) -> double, percentile(number, 0.5)",
            "median(size)",
            _NEAREST,
            _WHOLE,
            median_of,
        ),
        Function(
            "count distinct",
            "count(distinct any, ...) -> long, different rows of values, those with a null left "
            "out",
            "count(distinct venue)",
            _EXACT,
            _WHOLE,
            distinct_of,
            arguments=None,
        ),
        Function(
            "mode",
            "mode(any) -> its type, the most frequent; the smallest of those that are as frequent",
            "mode(venue)",
            _EXACT,
            _WHOLE,
            mode_of,
        ),
        Function(
            "top_k",
            "top_k(any but bytes, k) -> string, a JSON array of the k largest, the largest first; "
            "k from 1 to 1000",
            "top_k(price, 2)",
            _EXACT,
            _WHOLE,
            ranking_of(TopK),
            parameters=1,
        ),
        Function(
            "most_common",
            "most_common(any but bytes, k) -> string, a JSON array of the k most frequent with "
            "their counts, the most frequent first, then the smaller one",
            "most_common(venue, 1)",
            _EXACT,
            _WHOLE,
            ranking_of(MostCommon),
            parameters=1,
        ),
        Function(
            "corr",
            "corr(number, number) -> double; null for less than two rows, and where all values of "
            "one are the same",
            "corr(price, size)",
            _PRODUCTS,
            _ALWAYS,
            covariance_of,
            arguments=2,
        ),
        Function(
            "covar_samp",
            "covar_samp(number, number) -> double; null for less than two rows",
            "covar_samp(price, size)",
            _PRODUCTS,
            _ALWAYS,
            covariance_of,
            arguments=2,
        ),
        Function(
            "covar_pop",
            "covar_pop(number, number) -> double",
            "covar_pop(price, size)",
            _PRODUCTS,
            _ALWAYS,
            covariance_of,
            arguments=2,
        ),
        Function(
            "realised_volatility",
            "realised_volatility(number) -> double, the root of the sum of the squared logarithmic "
            "returns from tuple to tuple; null for less than two prices, and if one is 0 or below",
            "realised_volatility(price)",
            "in doubles; the squares are summed exactly",
            _WHOLE,
            volatility_of,
            ordered=BY_ORDER,
        ),
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
        "as the sums, then their quotient",
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


def suggestion(name: str) -> str:
    """Return the hint for an unknown function name.

    Example:
        >>> suggestion("vwap_samp")
        'did you mean var_samp or covar_samp?'
    """
    matches = difflib.get_close_matches(name.lower(), NAMES, n=2)
    return (
        f"did you mean {' or '.join(matches)}?"
        if matches
        else f"the functions are {', '.join(FUNCTIONS)}"
    )


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
            call.name, need="an aggregate function", found=call.name, hint=suggestion(call.name)
        )
    is_star = call.name == "count" and not call.types
    arguments = function.arguments or max(len(call.types), 1)
    counts = len(call.types), len(call.parameters)
    if counts != (arguments, function.parameters) and not is_star:
        actual = str(sum(counts)) if call.types else "none"
        raise AggregateTypeError(call.name, need=function.takes, found=actual)
    return function.make(call)


def ohlc(price: str) -> dict[str, str]:
    """Return the four results of a bar by name, for ``fields=`` of an aggregate.

    Open and close depend on event time, or on the ``order_by`` of the box; nulls are ignored.

    Args:
        price: A field or an expression.

    Example:
        >>> for name, text in ohlc("price").items():
        ...     print(f"{name}: {text}")
        open: first(price) ignore nulls
        high: max(price)
        low: min(price)
        close: last(price) ignore nulls
    """
    return {
        "open": f"first({price}) ignore nulls",
        "high": f"max({price})",
        "low": f"min({price})",
        "close": f"last({price}) ignore nulls",
    }
