"""Which aggregate function a call means, by the types of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from processors.aggregates.avg import DecimalAverage, DoubleAverage, LongAverage
from processors.aggregates.compensating import Compensating
from processors.aggregates.count import ROWS, VALUES, Count
from processors.aggregates.double_variance import DoubleVariance
from processors.aggregates.first import First, backwards
from processors.aggregates.ladder import Key
from processors.aggregates.sum import DoubleSum, IntegerSum
from processors.aggregates.variance import IntegerVariance
from schemas.errors import ErrataError
from schemas.fields import FieldType

WHOLE, REAL = ("int", "long", "decimal"), ("float", "double")


class AggregateTypeError(ErrataError):
    """There is no such aggregate function, or not of such arguments.

    Args:
        name: The function.
        need: What it needs.
        found: What it was given.
        hint: What to do, if there is something to say.
    """

    def __init__(self, name: str, *, need: str, found: str, hint: str = "") -> None:
        self.name, self.need, self.found, self.hint = name, need, found, hint
        super().__init__(
            f"aggregate {name}: needs {need}, found {found}" + (f"; {hint}" if hint else "")
        )


@dataclass(frozen=True)
class Call:
    """What a function is called with.

    Args:
        name: Its name in the table.
        types: Types of its arguments; none for ``*``.
        order: First and last: the keys that rows are ordered by. Of min_by and max_by: those that
            decide between rows with the same second argument.
        ignore_nulls: Whether rows in which the first argument is null don't take part.
    """

    name: str
    types: tuple[FieldType, ...] = ()
    order: tuple[Key, ...] = ()
    ignore_nulls: bool = False


def count_of(call: Call) -> Compensating:
    """Return ``count``, of rows without an argument, of values with one."""
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
    """Return what makes one of the four variances of a number."""

    def make(call: Call) -> Compensating:
        (argument,) = call.types
        if argument.kind in WHOLE:
            return IntegerVariance(argument, sample=sample, root=root)
        if argument.kind in REAL:
            return DoubleVariance(sample=sample, root=root)
        _refuse(call, "a number")

    return make


def of_booleans(function: Callable[[], Compensating]) -> Callable[[Call], Compensating]:
    """Return what makes a function of a boolean."""

    def make(call: Call) -> Compensating:
        if call.types[0].kind != "boolean":
            _refuse(call, "a boolean")
        return function()

    return make


def first_of(call: Call) -> Compensating:
    """Return ``first`` by the order of the call."""
    return First(call.types[0], call.order, ignore_nulls=call.ignore_nulls)


def last_of(call: Call) -> Compensating:
    """Return ``last``, the first in the order turned round."""
    return First(call.types[0], backwards(call.order), ignore_nulls=call.ignore_nulls)


def extreme_by(*, largest: bool) -> Callable[[Call], Compensating]:
    """Return what makes ``max_by`` or ``min_by``."""

    def make(call: Call) -> Compensating:
        value, key = call.types
        return First(value, (Key(key, largest), *call.order), needs_key=True)

    return make


def _refuse(call: Call, need: str) -> NoReturn:
    found = f"{call.name}({', '.join(str(kind.required) for kind in call.types)})"
    raise AggregateTypeError(
        call.name, need=f"{need} for {call.name}", found=found, hint="cast the argument to one"
    )
