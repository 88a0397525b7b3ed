"""The aggregate functions by name, and which arguments each takes."""

from __future__ import annotations

from processors.aggregates.avg import DecimalAverage, DoubleAverage, LongAverage
from processors.aggregates.compensating import Compensating
from processors.aggregates.count import Count
from processors.aggregates.max import Max
from processors.aggregates.sum import DoubleSum, IntegerSum
from schemas.errors import ErrataError
from schemas.fields import FieldType

FUNCTIONS = ("avg", "count", "max", "sum")


class AggregateTypeError(ErrataError):
    """There is no such aggregate function, or not of such an argument."""

    def __init__(self, name: str, found: str, *, need: str) -> None:
        self.name = name
        super().__init__(f"aggregate {name}({found}): {need}")


def aggregate_function(name: str, star: bool, argument: FieldType | None) -> Compensating:
    """Return the aggregate function of a name for a type of argument.

    Args:
        name: One of `FUNCTIONS`, in lower case.
        star: Whether the argument is ``*``.
        argument: Type of the argument; None iff `star`.

    Raises:
        AggregateTypeError: If the name is unknown or the argument doesn't suit it.

    Example:
        >>> str(aggregate_function("sum", False, FieldType.parse("decimal(18,2)")).result)
        'decimal(28,2)?'
        >>> str(aggregate_function("avg", False, FieldType.parse("long")).result)
        'double?'
    """
    found = "*" if star else str(argument)
    if name not in FUNCTIONS:
        raise AggregateTypeError(name, found, need=f"needs one of {', '.join(FUNCTIONS)}")
    if star != (argument is None):
        raise AggregateTypeError(name, found, need="needs either * or one argument")
    if name == "count":
        return Count(star=star)
    if argument is None:
        raise AggregateTypeError(name, found, need="only count takes *; name a field")
    if name == "max":
        return Max(argument)
    match name, argument.kind:
        case "sum", "long" | "decimal":
            return IntegerSum(argument)
        case "sum", "double":
            return DoubleSum()
        case "avg", "long":
            return LongAverage(argument)
        case "avg", "decimal":
            return DecimalAverage(argument)
        case "avg", "double":
            return DoubleAverage()
    raise AggregateTypeError(
        name, found, need="needs a long, decimal or double; cast the argument to one"
    )
