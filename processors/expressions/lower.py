"""The compiler: from a checked tree to functions on columns, typed by `rules`."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
from sqlglot import exp

from processors.expressions import arithmetic, choices, literals, rules
from processors.expressions.alignment import MisalignedError
from processors.expressions.casts import Kernel
from processors.expressions.errors import ExpressionError
from processors.expressions.parse import position
from processors.expressions.part import Part, apply, constant
from processors.expressions.vocabulary import SPELLED
from schemas.fields import Fields, FieldType, FieldTypeError

_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_PAIRS: dict[type[exp.Expr], Callable[[Part, Part], Part]] = {
    exp.EQ: partial(choices.compare, operator.eq),
    exp.NEQ: partial(choices.compare, operator.ne),
    exp.LT: partial(choices.compare, operator.lt),
    exp.LTE: partial(choices.compare, operator.le),
    exp.GT: partial(choices.compare, operator.gt),
    exp.GTE: partial(choices.compare, operator.ge),
    exp.NullSafeEQ: choices.null_safe_equal,
    exp.Nullif: choices.null_if,
}
_LOGIC: dict[type[exp.Expr], Kernel] = {
    exp.And: operator.and_,
    exp.Or: operator.or_,
}
_CAST_NAMES = {"BIGINT": "long", "INT": "int", "TEXT": "string", "VARCHAR": "string"} | {
    name.upper(): name for name in ("double", "boolean", "decimal")
}
_ZONED = ("TIMESTAMPTZ", "TIMESTAMP")


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
            exp.Boolean: lambda node: constant(node.this, rules.BOOLEAN),
            exp.Null: lambda node: constant(None, rules.VOID),
            exp.Paren: lambda node: self.part(node.this),
            exp.Neg: self._negative,
            exp.Abs: self._absolute,
            exp.Not: lambda node: self._logic(node, operator.invert, node.this),
            exp.Is: self._is_null,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: lambda node: choices.coalesce(
                self._parts([node.this, *node.expressions])
            ),
            exp.TryCast: self._cast,
            exp.Cast: self._timestamp,
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

    def _lower(self, node: exp.Expr) -> Part:
        kind = type(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(node, _ARITHMETIC[kind])
        if kind in _LOGIC:
            return self._logic(node, _LOGIC[kind], node.this, node.expression)
        if kind in _PAIRS:
            return _PAIRS[kind](*self._parts([node.this, node.expression]))
        return self._by_node[kind](node)

    def _parts(self, nodes: Sequence[exp.Expr]) -> list[Part]:
        return [self.part(node) for node in nodes]

    def _misaligned(self, node: exp.Expr, parts: Sequence[Part]) -> ExpressionError:
        texts = any(isinstance(part.literal, str) for part in parts)
        if texts and any(part.type.kind == "timestamp-millis" for part in parts):
            hint = "write a timestamp as '2026-07-15 09:30:00'"
        elif texts:
            hint = "quotes make a string; a field stands bare or in backticks"
        else:
            hint = "cast one of them"
        return self._refusal(node, f"one type in all of {SPELLED[type(node)]}", *parts, hint=hint)

    def _refusal(
        self, node: exp.Expr, need: str, *parts: Part, found: str = "", hint: str = ""
    ) -> ExpressionError:
        found = found or " and ".join(str(part.type.required) for part in parts)
        return ExpressionError(self._text, position(node), need=need, found=found, hint=hint)

    def _column(self, node: exp.Column) -> Part:
        name = node.name
        kind = self._fields.get(name)
        if kind is None:
            near = [field for field in self._fields if field.lower() == name.lower()]
            near = near or difflib.get_close_matches(name, self._fields, n=3)
            names = ", ".join(near or sorted(self._fields))
            hint = f"did you mean {names}?" if near else f"the fields are {names}"
            raise self._refusal(node, "a field of the arc", found=repr(name), hint=hint)
        return Part(kind, frozenset((name,)), lambda frame: frame[name], None, position(node))

    def _literal(self, node: exp.Literal) -> Part:
        at = position(node)
        if not node.is_string:
            return self._number(node, node.name)
        if self._text[at : at + 1] == '"' and node.name in self._fields:
            raise self._refusal(
                node,
                f"the field {node.name}",
                found="a string, which is what double quotes make in Spark's dialect",
                hint=f"write {node.name} or `{node.name}`; for the string, '{node.name}'",
            )
        return constant(node.name, rules.STRING, position=at)

    def _number(self, node: exp.Expr, digits: str) -> Part:
        read = literals.number(digits)
        if read is None:
            raise self._refusal(node, "a number of at most 38 digits", found=digits)
        return constant(*read, position=position(node))

    def _negative(self, node: exp.Neg) -> Part:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._number(node, "-" + node.this.name)
        part = self._numeric(node)
        optional = part.type.optional or part.type.kind in rules.WHOLE
        kind = part.type.nullable if optional else part.type
        return apply(arithmetic.negate(kind), kind, part)

    def _absolute(self, node: exp.Abs) -> Part:
        part = self._numeric(node)
        kind = part.type.nullable if part.type.kind in rules.WHOLE else part.type
        return apply(arithmetic.absolute(kind), kind, part)

    def _numeric(self, node: exp.Expr) -> Part:
        part = self.part(node.this)
        if part.type == rules.VOID:
            return part.cast(rules.DOUBLE)
        if part.type.kind not in rules.NUMERIC:
            raise self._refusal(node, f"a number for {SPELLED[type(node)]}", part)
        return part

    def _arithmetic(self, node: exp.Expr, symbol: str) -> Part:
        left, right = self.part(node.this), self.part(node.expression)
        divisor_is_not_zero = isinstance(right.literal, int) and right.literal != 0
        if left.type == rules.VOID:
            left = left.cast(rules.DOUBLE if right.type == rules.VOID else right.type)
        if right.type == rules.VOID:
            right = right.cast(left.type)
        kinds = {left.type.kind, right.type.kind}
        if "decimal" in kinds and kinds & set(rules.WHOLE):
            left, right = left.as_decimal(), right.as_decimal()
        result = rules.arithmetic(
            symbol, left.type, right.type, divisor_is_not_zero=divisor_is_not_zero
        )
        if result is None:
            timed = "timestamp-millis" in kinds
            hint = "arithmetic on timestamps does not exist yet" if timed else ""
            raise self._refusal(node, f"two numbers for {symbol}", left, right, hint=hint)
        if result.kind == "double":
            left, right = left.cast(rules.DOUBLE), right.cast(rules.DOUBLE)
        kernel = arithmetic.kernel(symbol, left.type, right.type, result)
        part = apply(kernel, result, left, right)
        if result.kind == "int" and symbol in "+-*" and not part.columns:
            self._refuse_constant_overflow(node, left, right, part)
        return part

    def _refuse_constant_overflow(self, node: exp.Expr, *parts: Part) -> None:
        """Refuse ``60*60*24*30*1000``: null in every row is never what was meant."""
        *operands, result = (part.run(pl.DataFrame()).item() for part in parts)
        if result is None and None not in operands:
            raise self._refusal(
                node,
                "a result of 32 bits between integer literals, as in Spark",
                found="one that overflows and would be null in every row",
                hint="write the first as 64 bits: 60L",
            )

    @staticmethod
    def _boolean(*parts: Part) -> FieldType:
        return FieldType("boolean", optional=any(part.type.optional for part in parts))

    def _logic(self, node: exp.Expr, kernel: Kernel, *nodes: exp.Expr) -> Part:
        parts = [self._condition(child, SPELLED[type(node)]) for child in nodes]
        return apply(kernel, self._boolean(*parts), *parts)

    def _condition(self, node: exp.Expr, owner: str) -> Part:
        part = self.part(node)
        if part.type == rules.VOID:
            return part.cast(rules.BOOLEAN)
        if part.type.kind != "boolean":
            raise self._refusal(node, f"a boolean for {owner}", part)
        return part

    def _is_null(self, node: exp.Is) -> Part:
        if not isinstance(node.expression, exp.Null):
            raise self._refusal(
                node, "IS NULL or IS NOT NULL", found=f"IS {node.expression.key}", hint="use ="
            )
        return apply(pl.Series.is_null, rules.BOOLEAN, self.part(node.this))

    def _in(self, node: exp.In) -> Part:
        if not node.expressions:
            raise self._refusal(node, "at least one value for IN", found="none")
        return choices.member(self.part(node.this), self._parts(node.expressions))

    def _between(self, node: exp.Between) -> Part:
        return choices.between(*self._parts([node.this, node.args["low"], node.args["high"]]))

    def _if(self, node: exp.If) -> Part:
        test = self._condition(node.this, "if")
        results = self._parts([node.args["true"]])
        return choices.choose([test], results, self._default(node.args.get("false")))

    def _case(self, node: exp.Case) -> Part:
        branches: list[exp.If] = node.args["ifs"]
        results = self._parts([branch.args["true"] for branch in branches])
        default = self._default(node.args.get("default"))
        if node.this is None:
            tests = [self._condition(branch.this, "case") for branch in branches]
            return choices.choose(tests, results, default)
        values = self._parts([branch.this for branch in branches])
        return choices.choose(values, results, default, operand=self.part(node.this))

    def _default(self, node: exp.Expr | None) -> Part:
        return constant(None, rules.VOID) if node is None else self.part(node)

    def _cast(self, node: exp.TryCast) -> Part:
        part = self.part(node.this)
        target = self._cast_target(node.to)
        if target == rules.TIMESTAMP and isinstance(part.literal, str):
            return self._timestamp(node)
        if not rules.can_cast(part.type, target):
            raise self._refusal(node, f"something that casts to {target}", part)
        cast = part.cast(target)
        written_long = (
            target == rules.LONG
            and part.is_whole_literal
            and self._text[node.this.meta.get("end", len(self._text)) :][:1] in ("L", "l")
        )
        return replace(cast, type=rules.LONG, literal=part.literal) if written_long else cast

    def _cast_target(self, node: exp.DataType) -> FieldType:
        name = str(getattr(node.this, "value", node.this))
        if name in _ZONED:
            return rules.TIMESTAMP
        kind = _CAST_NAMES.get(name)
        digits = [parameter.name for parameter in node.expressions]
        if kind is None or (digits and kind != "decimal"):
            raise self._refusal(
                node,
                "a cast to bigint, int, double, decimal(p,s), boolean or string",
                found=node.sql("spark"),
            )
        if kind != "decimal":
            return FieldType(kind)
        try:
            return FieldType.parse(f"decimal({','.join(digits)})" if digits else "decimal(10,0)")
        except FieldTypeError as error:
            need = "decimal(p,s) with p from 1 to 38"
            raise self._refusal(node, need, found=node.sql("spark")) from error

    def _timestamp(self, node: exp.Cast) -> Part:
        text = node.this.name if isinstance(node.this, exp.Literal) else ""
        at = literals.timestamp_ms(text) if self._cast_target(node.to) == rules.TIMESTAMP else None
        if at is None:
            need = "a timestamp such as TIMESTAMP '2026-07-15 09:30:00'"
            raise self._refusal(node, need, found=repr(text))
        return constant(at, rules.TIMESTAMP, position=position(node))
