"""Names for expressions around calls of aggregate functions, such as ``vwap(price, size)``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from errata.processors.aggregates.function import Macro
from errata.processors.expressions.parse import read


def expanded(
    macro: Macro, given: Sequence[exp.Expr], *, condition: exp.Expr | None, start: int
) -> exp.Expr:
    """Return what a call of a macro stands for.

    Args:
        macro: The macro.
        given: Its arguments, one for each of its names.
        condition: What is put behind each call as its FILTER (WHERE ...); None: nothing.
        start: Where the call stands in the text; all that is in its place stands there.

    Example:
        >>> from errata.processors.aggregates.functions import MACROS
        >>> given = [read("price + 1"), read("size")]
        >>> expanded(MACROS["vwap"], given, condition=None, start=0).sql("spark")
        'SUM((price + 1) * size) / SUM(IF((price + 1) IS NULL, NULL, size))'
    """
    values = dict(zip(macro.arguments, given, strict=True))
    tree = read(macro.stands_for)
    for column in list(tree.find_all(exp.Column)):
        value = values[column.name].copy()
        column.replace(exp.Paren(this=value) if isinstance(value, exp.Binary) else value)
    for call in list(tree.find_all(exp.AggFunc)):
        call.meta.update(start=start, end=start)
        if condition is not None:
            where = exp.Where(this=condition.copy())
            call.replace(exp.Filter(this=call.copy(), expression=where))
    return tree
