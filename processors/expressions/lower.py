"""The compiler: from a checked tree to functions on columns, typed by `rules`."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlglot import exp

from errata.processors.expressions import casts as targets
from errata.processors.expressions import (
    choices,
    literals,
    number_functions,
    rules,
    text_functions,
    time_functions,
)
from errata.processors.expressions.columns import Kernel
from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.function import CONDITION, NUMBER, TEXT, Parameter, UnfitError
from errata.processors.expressions.parse import position
from errata.processors.expressions.part import MisalignedError, Part, apply, constant, reading
from errata.processors.expressions.text import PatternError, like
from errata.processors.expressions.vocabulary import FUNCTIONS, SPELLED, TIMED
from errata.schemas.fields import Fields, FieldType

_PAIRS: dict[type[exp.Expr], Callable[[Part, Part], Part]] = {
    exp.EQ: partial(choices.compare, operator.eq),
    exp.NEQ: partial(choices.compare, operator.ne),
    exp.LT: partial(choices.compare, operator.lt),
    exp.LTE: partial(choices.compare, operator.le),
    exp.GT: partial(choices.compare, operator.gt),
    exp.GTE: partial(choices.compare, operator.ge),
    exp.NullSafeEQ: choices.null_safe_equal,
}
_LOGIC: dict[type[exp.Expr], Kernel] = {exp.And: operator.and_, exp.Or: operator.or_}


class Lowering:
    """Lowers the nodes of one expression.

    Args:
        text: The expression, for messages.
        fields: Types of the fields that it may read.
    """

    def __init__(self, text: str, fields: Fields) -> None:
        self._text = text
        self._fields = fields
        self._by_node: dict[type[exp.Expr], Callable[[Any], Part]] = {
            exp.Column: self._column,
            exp.Literal: self._literal,
            exp.HexString: self._octets,
            exp.Boolean: lambda node: constant(node.this, rules.BOOLEAN),
            exp.Null: lambda node: constant(None, rules.VOID),
            exp.Paren: lambda node: self.part(node.this),
            exp.Neg: self._negative,
            exp.Not: lambda node: self._logic(node, operator.invert, node.this),
            exp.Is: self._is_null,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Case: self._case,
            exp.If: self._if,
            exp.DPipe: lambda node: text_functions.concat(
                self._fitting(node, TEXT, node.this), self._fitting(node, TEXT, node.expression)
            ),
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.Escape: lambda node: self._like(node.this, escape=node.expression.name),
            exp.RegexpLike: self._rlike,
            exp.Anonymous: self._call,
            exp.TryCast: self._cast,
            exp.Cast: self._timed_literal,
            exp.Interval: self._lone_interval,
        }

    def part(self, node: exp.Expr) -> Part:
        """Return a node's part.

        Raises:
            ExpressionError: If the types don't fit or a field is unknown.
        """
        try:
            return self._lower(node)
        except MisalignedError as error:
            raise self._misaligned(node, error.parts) from error
        except UnfitError as error:
            culprit = node if error.argument is None else _arguments(node)[error.argument]
            raise self._refusal(culprit, error.need, found=error.found, hint=error.hint) from error

    def _lower(self, node: exp.Expr) -> Part:
        kind = type(node)
        if symbol := number_functions.SYMBOLS.get(kind):
            return self._arithmetic(node, symbol)
        if kind in _LOGIC:
            return self._logic(node, _LOGIC[kind], node.this, node.expression)
        if kind in _PAIRS:
            return _PAIRS[kind](*self._parts([node.this, node.expression]))
        return self._by_node[kind](node)

    def _parts(self, nodes: Sequence[exp.Expr]) -> list[Part]:
        return [self.part(node) for node in nodes]

    def _misaligned(self, node: exp.Expr, parts: Sequence[Part]) -> ExpressionError:
        kinds = {part.type.kind for part in parts}
        hint = "cast one of them"
        if any(isinstance(part.literal, str) for part in parts):
            hint = "quotes make a string; write a field without quotes or in backticks"
            hint = next((TIMED[kind] for kind in TIMED if kind in kinds), hint)
        name = node.name if isinstance(node, exp.Anonymous) else SPELLED[type(node)]
        return self._refusal(node, f"one common type for the operands of {name}", *parts, hint=hint)

    def _refusal(
        self, node: exp.Expr, need: str, *parts: Part, found: str = "", hint: str = ""
    ) -> ExpressionError:
        found = found or " and ".join(str(part.type.required) for part in parts)
        return ExpressionError(self._text, position(node), need=need, found=found, hint=hint)

    def _column(self, node: exp.Column) -> Part:
        name = node.name
        kind = self._fields.get(name)
        if kind is None:
            matches = [field for field in self._fields if field.lower() == name.lower()]
            matches = matches or difflib.get_close_matches(name, self._fields, n=3)
            names = ", ".join(matches or sorted(self._fields))
            hint = f"did you mean {names}?" if matches else f"the fields are {names}"
            raise self._refusal(node, "a field of the arc", found=repr(name), hint=hint)
        return Part(kind, frozenset((name,)), lambda frame: frame[name], None, position(node))

    def _literal(self, node: exp.Literal) -> Part:
        if not node.is_string:
            return self._number(node, node.name)
        at, end = position(node), node.meta.get("end")
        if self._text[at : at + 1] == '"' and node.name in self._fields:
            raise self._refusal(
                node,
                f"the field {node.name}",
                found="a string: double quotes make strings in Spark's dialect",
                hint=f"write {node.name} or `{node.name}`; for the string, '{node.name}'",
            )
        text = node.name if end is None else literals.unquoted(self._text[at : end + 1])
        return constant(text, rules.STRING, position=at)

    def _number(self, node: exp.Expr, digits: str) -> Part:
        if (parsed := literals.number(digits)) is None:
            raise self._refusal(node, "a number of at most 38 digits", found=digits)
        return constant(*parsed, position=position(node))

    def _long(self, node: exp.Expr, digits: str) -> Part:
        value = literals.number(digits)
        if value is None or value[1].kind not in rules.WHOLE:
            raise self._refusal(node, "a number of 64 bits before L", found=digits)
        return constant(value[0], rules.LONG, position=position(node))

    def _octets(self, node: exp.HexString) -> Part:
        if (octets := literals.octets(node.name)) is None:
            raise self._refusal(node, "bytes such as X'00ff'", found=repr(node.name))
        return constant(octets, rules.BYTES, position=position(node))

    def _negative(self, node: exp.Neg) -> Part:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._number(node, "-" + node.this.name)
        if digits := literals.long_digits(node.this, self._text):
            return self._long(node, "-" + digits)
        return number_functions.negated(self._fitting(node, NUMBER, node.this))

    def _fitting(self, node: exp.Expr, parameter: Parameter, child: exp.Expr) -> Part:
        """Return a child's part in the type that an operator needs."""
        part = self.part(child)
        fitting: Part | None = parameter.take(part)
        if fitting is None:
            owner = SPELLED[type(node)]
            raise self._refusal(child, f"a {parameter.word} for {owner}", part)
        return fitting

    def _arithmetic(self, node: exp.Expr, symbol: str) -> Part:
        left, right = node.this, node.expression
        if symbol == "+" and isinstance(left, exp.Interval):
            left, right = right, left
        if (
            symbol in "+-"
            and isinstance(right, exp.Interval)
            and not isinstance(left, exp.Interval)
        ):
            interval = time_functions.interval(right)
            if interval is None:
                need = "an interval such as interval 5 minutes, of one unit"
                raise self._refusal(node, need, found=right.sql("spark"))
            return time_functions.shifted(
                self.part(left), interval, sign=1 if symbol == "+" else -1
            )
        return number_functions.calculate(symbol, self.part(left), self.part(right))

    def _lone_interval(self, node: exp.Interval) -> Part:
        need = "a date or timestamp to add an interval to"
        raise self._refusal(node, need, found=node.sql("spark"), hint="at + interval 5 minutes")

    def _logic(self, node: exp.Expr, kernel: Kernel, *nodes: exp.Expr) -> Part:
        parts = [self._fitting(node, CONDITION, child) for child in nodes]
        optional = any(part.type.optional for part in parts)
        return apply(kernel, FieldType("boolean", optional=optional), *parts)

    def _is_null(self, node: exp.Is) -> Part:
        if not isinstance(node.expression, exp.Null):
            raise self._refusal(
                node, "IS NULL or IS NOT NULL", found=f"IS {node.expression.key}", hint="use ="
            )
        return choices.is_null(self.part(node.this))

    def _in(self, node: exp.In) -> Part:
        if not node.expressions:
            raise self._refusal(node, "at least one value for IN", found="none")
        return choices.member(self.part(node.this), self._parts(node.expressions))

    def _between(self, node: exp.Between) -> Part:
        return choices.between(*self._parts([node.this, node.args["low"], node.args["high"]]))

    def _if(self, node: exp.If) -> Part:
        test = self._fitting(node, CONDITION, node.this)
        results = self._parts([node.args["true"]])
        return choices.choose([test], results, self._default(node.args.get("false")))

    def _case(self, node: exp.Case) -> Part:
        branches: list[exp.If] = node.args["ifs"]
        results = self._parts([branch.args["true"] for branch in branches])
        default = self._default(node.args.get("default"))
        if node.this is None:
            tests = [self._fitting(node, CONDITION, branch.this) for branch in branches]
            return choices.choose(tests, results, default)
        values = self._parts([branch.this for branch in branches])
        return choices.choose(values, results, default, operand=self.part(node.this))

    def _default(self, node: exp.Expr | None) -> Part:
        return constant(None, rules.VOID) if node is None else self.part(node)

    def _like(self, node: exp.Like | exp.ILike, escape: str = "\\") -> Part:
        value, pattern = self._fitting(node, TEXT, node.this), self.part(node.expression)
        written = pattern.literal
        if not isinstance(written, str) or len(escape) != 1:
            found = str(pattern.type.required) if len(escape) == 1 else f"escape {escape!r}"
            raise self._refusal(
                node,
                "a string literal as the pattern of like, and an escape of one character",
                found=found,
            )
        fold = isinstance(node, exp.ILike)
        try:
            expression = like(written.lower() if fold else written, escape=escape)
        except PatternError as error:
            need = "%, _ or the escape character after the escape character of a pattern"
            raise self._refusal(node, need, found=str(error)) from error
        part = text_functions.matching(value, expression, fold=fold)
        return apply(operator.invert, part.type, part) if node.args.get("negate") else part

    def _rlike(self, node: exp.RegexpLike) -> Part:
        return FUNCTIONS["regexp_like"].call(self._parts([node.this, node.expression]))

    def _call(self, node: exp.Anonymous) -> Part:
        return FUNCTIONS[node.name.lower()].call(self._parts(node.expressions))

    def _cast(self, node: exp.TryCast) -> Part:
        if digits := literals.long_digits(node, self._text):
            return self._long(node, digits)
        part = self.part(node.this)
        target = self._target(node)
        if isinstance(part.literal, str) and target.kind in rules.TEMPORAL:
            return self._timed_literal(node)
        if target == rules.TIMESTAMP and part.type.kind == "timestamp-micros":
            return part
        if not rules.can_cast(part.type, target):
            raise self._refusal(node, f"a type that can be cast to {target}", part)
        return part.cast(target)

    def _target(self, node: exp.Cast | exp.TryCast) -> FieldType:
        if (target := targets.target(node.to)) is None:
            need = f"a cast to {targets.NAMES}, p from 1 to 38"
            raise self._refusal(node.to, need, found=node.to.sql("spark"))
        return target

    def _timed_literal(self, node: exp.Cast | exp.TryCast) -> Part:
        """Return ``DATE '..'``, ``TIMESTAMP '..'``, or a cast of a string literal to one."""
        target = self._target(node)
        part = self.part(node.this)
        parsed = reading(part, target) if target.kind in rules.TEMPORAL else None
        if parsed is None:
            raise self._refusal(node, TIMED[target.kind], found=repr(node.this.name))
        return parsed


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return node.expressions
    return [node.this, node.expression]
