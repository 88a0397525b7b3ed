"""Selects the aggregate function for a call, by the types of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.extreme import First, reversed_order
from errata.processors.aggregates.holistic import (
    MAX_VALUES,
    CountDistinct,
    Mode,
    Percentile,
    Ranking,
    RealisedVolatility,
)
from errata.processors.aggregates.ladder import Key
from errata.processors.aggregates.sums import (
    ROWS,
    VALUES,
    Count,
    DecimalAverage,
    DoubleAverage,
    DoubleSum,
    IntegerSum,
    LongAverage,
)
from errata.processors.aggregates.variance import (
    DoubleCovariance,
    DoubleVariance,
    IntegerCovariance,
    IntegerVariance,
)
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

WHOLE, REAL = ("int", "long", "decimal"), ("float", "double")


class AggregateTypeError(ErrataError):
    """An aggregate function is unknown, or does not accept the arguments.

    Args:
        name: The function.
        need: What it needs.
        found: What the call has.
        hint: The remedy, if there is one.
    """

    def __init__(self, name: str, *, need: str, found: str, hint: str = "") -> None:
        self.name, self.need, self.found, self.hint = name, need, found, hint
        super().__init__(
            f"aggregate {name}: needs {need}, found {found}" + (f"; {hint}" if hint else "")
        )


@dataclass(frozen=True)
class Call:
    """The name and the argument types of a call.

    Args:
        name: The function's name in the table.
        types: Types of its arguments; none for ``*``.
        order: For first and last: the keys that rows are ordered by. For min_by and max_by: the
            keys that decide between rows with the same second argument.
        ignore_nulls: Whether rows in which the first argument is null are ignored.
        parameters: Literal numbers after the arguments, such as the share of a percentile.
    """

    name: str
    types: tuple[FieldType, ...] = ()
    order: tuple[Key, ...] = ()
    ignore_nulls: bool = False
    parameters: tuple[Fraction, ...] = ()


def count_of(call: Call) -> Compensating:
    """Return ``count``: of rows without an argument, of values with one."""
    return Count(VALUES if call.types else ROWS)


def sum_of(call: Call) -> Compensating:
    """Return ``sum`` of a number."""
    (argument,) = call.types
    if argument.kind in WHOLE:
        return IntegerSum(argument)
    if argument.kind in REAL:
        return DoubleSum()
    _refuse(call, "a number")


def avg_of(call: Call) -> Compensating:
    """Return ``avg`` of a number."""
    (argument,) = call.types
    if argument.kind == "decimal":
        return DecimalAverage(argument)
    if argument.kind in WHOLE:
        return LongAverage(argument)
    if argument.kind in REAL:
        return DoubleAverage()
    _refuse(call, "a number")


def variance_of(*, sample: bool, root: bool) -> Callable[[Call], Compensating]:
    """Return the constructor of one of the four variances of a number."""

    def make(call: Call) -> Compensating:
        (argument,) = call.types
        if argument.kind in WHOLE:
            return IntegerVariance(argument, sample=sample, root=root)
        if argument.kind in REAL:
            return DoubleVariance(sample=sample, root=root)
        _refuse(call, "a number")

    return make


def of_booleans(function: Callable[[], Compensating]) -> Callable[[Call], Compensating]:
    """Return the constructor of a function of a boolean."""

    def make(call: Call) -> Compensating:
        if call.types[0].kind != "boolean":
            _refuse(call, "a boolean")
        return function()

    return make


def first_of(call: Call) -> Compensating:
    """Return ``first`` by the order of the call."""
    return First(call.types[0], call.order, ignore_nulls=call.ignore_nulls)


def last_of(call: Call) -> Compensating:
    """Return ``last``, which is ``first`` in the reversed order."""
    return First(call.types[0], reversed_order(call.order), ignore_nulls=call.ignore_nulls)


def extreme_by(*, largest: bool) -> Callable[[Call], Compensating]:
    """Return the constructor of ``max_by`` or ``min_by``."""

    def make(call: Call) -> Compensating:
        value, key = call.types
        return First(value, (Key(key, largest), *call.order), needs_key=True)

    return make


def distinct_of(call: Call) -> Compensating:
    """Return ``count(distinct ...)``."""
    return CountDistinct(call.types)


def mode_of(call: Call) -> Compensating:
    """Return ``mode``."""
    return Mode(call.types[0])


def percentile_of(call: Call) -> Compensating:
    """Return ``percentile`` of a number."""
    (share,) = call.parameters
    if not 0 <= share <= 1:
        raise AggregateTypeError(
            call.name,
            need="a share of 0 to 1 for percentile",
            found=_number_text(share),
            hint="0.99 is the 99th percentile",
        )
    return Percentile(_number(call), share)


def median_of(call: Call) -> Compensating:
    """Return ``median`` of a number."""
    return Percentile(_number(call), Fraction(1, 2))


def ranking_of(ranking: type[Ranking]) -> Callable[[Call], Compensating]:
    """Return the constructor of ``top_k`` or ``most_common``."""

    def make(call: Call) -> Compensating:
        (argument,), (limit,) = call.types, call.parameters
        if limit.denominator > 1 or not 1 <= limit <= MAX_VALUES:
            need = f"a whole number of 1 to {MAX_VALUES} for {call.name}"
            raise AggregateTypeError(call.name, need=need, found=_number_text(limit))
        if argument.kind == "bytes":
            _refuse(call, "anything but bytes", hint="write hex(x), or cast(x as string)")
        return ranking(argument, int(limit))

    return make


def covariance_of(call: Call) -> Compensating:
    """Return ``corr``, ``covar_samp`` or ``covar_pop`` of two numbers."""
    kinds = {argument.kind for argument in call.types}
    if not kinds <= {*WHOLE, *REAL}:
        _refuse(call, "two numbers")
    function = IntegerCovariance if kinds <= set(WHOLE) else DoubleCovariance
    return function(call.types, call.name)


def volatility_of(call: Call) -> Compensating:
    """Return ``realised_volatility`` of a number, by the order of the call."""
    return RealisedVolatility(_number(call), call.order)


def _number(call: Call) -> FieldType:
    (argument,) = call.types
    if argument.kind not in (*WHOLE, *REAL):
        _refuse(call, "a number")
    return argument


def _number_text(number: Fraction) -> str:
    return str(number if number.denominator == 1 else float(number))


def _refuse(call: Call, need: str, *, hint: str = "cast the argument to one") -> NoReturn:
    actual = f"{call.name}({', '.join(str(kind.required) for kind in call.types)})"
    raise AggregateTypeError(call.name, need=f"{need} for {call.name}", found=actual, hint=hint)
