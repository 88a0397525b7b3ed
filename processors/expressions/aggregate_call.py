"""A call of one aggregate function, such as ``sum(price * size)``."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from processors.expressions.errors import ExpressionError
from processors.expressions.expression import Expression, lowered
from processors.expressions.lower import Lowering
from processors.expressions.parse import check, position, read
from schemas.fields import Fields

AGGREGATES: dict[str, tuple[type[exp.Expr], str]] = {
    "count": (exp.Count, "count(*) -> tuples; count(any) -> tuples where it is not null"),
    "sum": (exp.Sum, "sum(number) -> number"),
    "avg": (exp.Avg, "avg(number) -> number; also mean"),
    "max": (exp.Max, "max(any) -> any"),
}
"""Node and signature by function."""

_REFUSED: dict[type[exp.Expr], str] = {
    exp.Distinct: "DISTINCT",
    exp.Filter: "FILTER (WHERE ...)",
    exp.Window: "OVER (...)",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.RespectNulls: "RESPECT NULLS",
}
_NAMES = {node: name for name, (node, _) in AGGREGATES.items()}


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function with its arguments.

    Args:
        function: A name of `AGGREGATES`.
        arguments: What it is applied to; none for ``count(*)``.
        star: Whether it is ``count(*)``.
        text: What the user wrote.
    """

    function: str
    arguments: tuple[Expression, ...]
    star: bool
    text: str

    @property
    def columns(self) -> frozenset[str]:
        """The fields that it is computed from."""
        return frozenset[str]().union(*(argument.columns for argument in self.arguments))


def parse_aggregate(text: str, fields: Fields) -> AggregateCall:
    """Check one call of an aggregate function and compile its argument.

    Args:
        text: The call; nothing may stand around it yet.
        fields: Types of the fields that the argument may read.

    Raises:
        ExpressionError: If it is no such call, or its argument is no expression.

    Example:
        >>> from schemas.fields import FieldType
        >>> call = parse_aggregate("mean(price)", {"price": FieldType("double")})
        >>> call.function, [argument.text for argument in call.arguments]
        ('avg', ['price'])
    """
    tree = read(text)
    for node in tree.walk():
        if form := _REFUSED.get(type(node)):
            raise ExpressionError(
                text, position(node), need="a plain aggregate", found=f"{form}, not supported yet"
            )
    function = _function(tree)
    if function is None:
        inside = any(_function(node) for node in tree.walk())
        raise ExpressionError(
            text,
            position(tree),
            need=f"one call of {', '.join(AGGREGATES)}",
            found="an expression around it, not supported yet" if inside else _named(tree),
            hint="name each aggregate, then use map" if inside else "",
        )
    given = [tree.this] if tree.this and not isinstance(tree, exp.Anonymous) else []
    given += tree.expressions
    if function == "count" and len(given) == 1 and isinstance(given[0], exp.Star):
        return AggregateCall(function, (), star=True, text=text)
    if len(given) != 1:
        raise ExpressionError(
            text, position(tree), need=f"one argument of {function}", found=str(len(given))
        )
    check(text, given[0])
    inner = text[text.index("(") + 1 : text.rindex(")")].strip()
    argument = lowered(inner, Lowering(text, fields).part(given[0]))
    return AggregateCall(function, (argument,), star=False, text=text)


def _function(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Anonymous):
        return "avg" if node.name.lower() == "mean" else None
    return _NAMES.get(type(node))


def _named(node: exp.Expr) -> str:
    return node.name if isinstance(node, exp.Anonymous) else node.key
