"""An expression around calls of aggregate functions, such as ``sum(price * size) / sum(size)``.

Each call is extracted from the tree and replaced by a column. The remaining tree is an expression
over the results of the calls, and over the fields that are constant in a group.

A macro is a name for such an expression: ``vwap(price, size)`` expands to the one above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from errata.processors.aggregates.functions import FUNCTIONS, MACROS, NAMES, Macro, suggestion
from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import Expression, lowered
from errata.processors.expressions.literals import number
from errata.processors.expressions.lower import Lowering
from errata.processors.expressions.parse import check, position, read, written_name
from errata.schemas.fields import Fields, FieldType


def expanded(
    macro: Macro, arguments: Sequence[exp.Expr], *, condition: exp.Expr | None, start: int
) -> exp.Expr:
    """Return the expansion of a macro call.

    Args:
        macro: The macro.
        arguments: One for each of its names.
        condition: The FILTER (WHERE ...) condition to add to each call; None: no condition.
        start: The position of the call in the text, which every node of the expansion gets.

    Example:
        >>> from errata.processors.aggregates.functions import MACROS
        >>> arguments = [read("price + 1"), read("size")]
        >>> expanded(MACROS["vwap"], arguments, condition=None, start=0).sql("spark")
        'SUM((price + 1) * size) / SUM(IF((price + 1) IS NULL, NULL, size))'
    """
    values = dict(zip(macro.arguments, arguments, strict=True))
    tree = read(macro.expansion)
    for column in list(tree.find_all(exp.Column)):
        value = values[column.name].copy()
        column.replace(exp.Paren(this=value) if isinstance(value, exp.Binary) else value)
    for call in list(tree.find_all(exp.AggFunc)):
        call.meta.update(start=start, end=start)
        if condition is not None:
            filter_condition = exp.Where(this=condition.copy())
            call.replace(exp.Filter(this=call.copy(), expression=filter_condition))
    return tree


_NODES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.AnyValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.Any: "bool_or",
    exp.Median: "median",
    exp.Mode: "mode",
    exp.Corr: "corr",
    exp.CovarSamp: "covar_samp",
    exp.CovarPop: "covar_pop",
}
"""Function by the parser's node; a name that the parser doesn't know is looked up unchanged."""

_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Distinct: ("DISTINCT", "only count(distinct ...) accepts it"),
    exp.Window: ("OVER (...)", "windows are those of .aggregate(window=...)"),
    exp.Order: ("ORDER BY", "write order_by=[...] in .aggregate(...)"),
}
_IGNORES_NULLS = ("first", "last")
_ARGUMENTS = frozenset(("this", "expression", "expressions", "big_int"))


@dataclass(frozen=True)
class AggregateCall:
    """One call of an aggregate function.

    Args:
        function: A name of `FUNCTIONS`.
        arguments: Its arguments; none for ``count(*)``.
        parameters: The literal numbers that follow the arguments.
        ignore_nulls: Whether it has IGNORE NULLS.
        condition: The condition of its FILTER (WHERE ...); None without one.
        position: Its position in the text.
    """

    function: str
    arguments: tuple[Expression, ...]
    parameters: tuple[Fraction, ...]
    ignore_nulls: bool
    condition: Expression | None
    position: int


@dataclass(frozen=True)
class AggregateExpression:
    """The expression that a user wrote for one result.

    Args:
        text: The whole text.
        calls: The calls in it, from left to right.
        tree: The expression around them, with a column ``#n`` for the call number n.
    """

    text: str
    calls: tuple[AggregateCall, ...]
    tree: exp.Expr

    @property
    def is_bare(self) -> bool:
        """Whether it is a single call with nothing around it."""
        return isinstance(self.tree, exp.Column)

    def around(self, types: Sequence[FieldType], groups: Fields) -> Expression:
        """Return the expression around the calls, over columns ``#0``, ``#1`` and so on.

        Args:
            types: Types of the results of the calls.
            groups: The fields that are constant in a group.

        Raises:
            ExpressionError: If it is not allowed, reads another field, or types don't fit.
        """
        fields = {**groups, **{f"#{number}": kind for number, kind in enumerate(types)}}
        check(self.text, self.tree)
        for column in self.tree.find_all(exp.Column):
            if column.name not in fields:
                raise ExpressionError(
                    self.text,
                    position(column),
                    need="an aggregate or a group field",
                    found=f"{column.name!r}, which differs between tuples",
                    hint=f"use max({column.name}), for example, or group by it",
                )
        return lowered(self.text, Lowering(self.text, fields).part(self.tree))


def parse_aggregate(text: str, fields: Fields) -> AggregateExpression:
    """Find the calls of aggregate functions in a text and compile their arguments.

    Args:
        text: An expression with at least one call in it.
        fields: Types of the fields that arguments and filters may read.

    Raises:
        ExpressionError: If there is no call, or an argument is no expression.

    Example:
        >>> fields = {"price": FieldType("double"), "size": FieldType("long")}
        >>> vwap = parse_aggregate("sum(price * size) / sum(size)", fields)
        >>> [(call.function, call.arguments[0].text) for call in vwap.calls]
        [('sum', 'price * size'), ('sum', 'size')]
        >>> str(vwap.around([FieldType("double"), FieldType("long")], {}).type)
        'double?'
    """
    extractor = _CallExtractor(text, fields)
    tree = extractor.extract(read(text))
    if not extractor.calls:
        name = tree.name if isinstance(tree, exp.Anonymous) else tree.key
        if isinstance(tree, exp.Column):
            name = f"the field {tree.name}"
        raise ExpressionError(
            text, position(tree), need="an aggregate function", found=name, hint=suggestion(name)
        )
    return AggregateExpression(text, tuple(extractor.calls), tree)


class _CallExtractor:
    """Extracts the calls from one tree."""

    def __init__(self, text: str, fields: Fields) -> None:
        self.text = text
        self.calls: list[AggregateCall] = []
        self._fields = fields

    def extract(self, node: exp.Expr) -> exp.Expr:
        """Return a node with a column in place of each call."""
        self._refuse_forms(node)
        call, ignore_nulls, condition = self._unwrapped(node)
        name = _function(call)
        if name in MACROS and not ignore_nulls:
            macro, arguments = MACROS[name], self._arguments(call)
            if len(arguments) != len(macro.arguments):
                raise self._refusal(call, macro.takes, str(len(arguments)))
            start = position(call)
            return self.extract(expanded(macro, arguments, condition=condition, start=start))
        if name:
            column = exp.column(f"#{len(self.calls)}", quoted=True)
            start = position(call)
            column.this.meta.update(start=start, end=start)
            self.calls.append(self._call(name, call, ignore_nulls, condition, start))
            return column
        if isinstance(call, exp.AggFunc):
            name = written_name(self.text, call)
            raise self._refusal(
                call, "an aggregate function", f"{name}, not supported", suggestion(name)
            )
        if call is not node:
            raise self._refusal(node, "an aggregate before FILTER and NULLS", _node_name(call))
        for child in list(node.iter_expressions()):
            replacement = self.extract(child)
            if replacement is not child:
                child.replace(replacement)
        return node

    def _unwrapped(self, node: exp.Expr) -> tuple[exp.Expr, bool, exp.Expr | None]:
        """Return a call without its FILTER, IGNORE NULLS and RESPECT NULLS, and their values."""
        ignore_nulls, condition = False, None
        while isinstance(node, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
            if isinstance(node, exp.Filter):
                condition = node.expression.this
            ignore_nulls |= isinstance(node, exp.IgnoreNulls)
            node = node.this
        if isinstance(node.this, (exp.IgnoreNulls, exp.RespectNulls)):  # inside the brackets
            ignore_nulls |= isinstance(node.this, exp.IgnoreNulls)
            node.set("this", node.this.this)
        return node, ignore_nulls, condition

    def _call(
        self,
        name: str,
        node: exp.Expr,
        ignore_nulls: bool,
        condition: exp.Expr | None,
        start: int,
    ) -> AggregateCall:
        nodes = self._arguments(node)
        unsupported = {key for key, value in node.args.items() if value} - _ARGUMENTS
        if unsupported:
            raise self._refusal(node, f"a plain {name}", ", ".join(sorted(unsupported)))
        if ignore_nulls and name not in _IGNORES_NULLS:
            need = f"IGNORE NULLS with {' or '.join(_IGNORES_NULLS)} only"
            raise self._refusal(node, need, name, "omit IGNORE NULLS")
        if name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
            name, nodes = "count distinct", nodes[0].expressions
        is_star = name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Star)
        function = FUNCTIONS[name]
        argument_count = len(nodes) if is_star else function.arguments or max(len(nodes), 1)
        if len(nodes) != argument_count + function.parameters:
            raise self._refusal(node, function.takes, str(len(nodes)))
        return AggregateCall(
            name,
            () if is_star else tuple(map(self._argument, nodes[:argument_count])),
            tuple(self._parameter(name, literal) for literal in nodes[argument_count:]),
            ignore_nulls,
            None if condition is None else self._argument(condition, needs="boolean"),
            start,
        )

    def _arguments(self, node: exp.Expr) -> list[exp.Expr]:
        """Return the arguments of a call."""
        arguments = [] if isinstance(node, exp.Anonymous) or node.this is None else [node.this]
        arguments += [node.expression] if node.args.get("expression") else []
        arguments += node.expressions
        if not isinstance(node, exp.Count):
            self._refuse_forms(*arguments)
        return arguments

    def _parameter(self, name: str, node: exp.Expr) -> Fraction:
        """Return the value of a number literal."""
        sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
        is_number = isinstance(literal, exp.Literal) and not literal.is_string
        parsed = number(literal.name) if is_number else None
        if parsed is None:
            need = f"a number literal as the last argument of {name}"
            raise self._refusal(node, need, node.sql("spark"))
        value, kind = parsed
        unit = Fraction(10**kind.scale)
        return sign * Fraction(str(value)) / unit

    def _argument(self, node: exp.Expr, *, needs: str | None = None) -> Expression:
        for inner in node.walk():
            if name := _function(inner):
                raise self._refusal(
                    inner,
                    "a value of each tuple",
                    f"the aggregate {name} inside another",
                    "aggregate twice, one box after the other",
                )
            self._refuse_forms(inner)
        check(self.text, node)
        part = Lowering(self.text, self._fields).part(node)
        return replace(lowered(self.text, part, needs=needs), text=node.sql("spark"))

    def _refuse_forms(self, *nodes: exp.Expr) -> None:
        for node in nodes:
            if form := _REFUSED.get(type(node)):
                raise self._refusal(node, "a plain aggregate", f"{form[0]}, not supported", form[1])

    def _refusal(self, node: exp.Expr, need: str, found: str, hint: str = "") -> ExpressionError:
        return ExpressionError(self.text, position(node), need=need, found=found, hint=hint)


def _function(node: exp.Expr) -> str | None:
    """Return the name of the aggregate function that a node calls; None if it calls none."""
    if isinstance(node, exp.Anonymous):
        return NAMES.get(node.name.lower())
    return _NODES.get(type(node))


def _node_name(node: exp.Expr) -> str:
    return node.name if isinstance(node, exp.Anonymous) else node.key
