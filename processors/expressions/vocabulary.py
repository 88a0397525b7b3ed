"""What an expression may contain, as data: the checker and the documentation read this table.

Everything else that the parser knows is refused, and so is a known form with an argument that is
not listed (``x IN (SELECT ...)``, ``CAST(x AS int FORMAT ...)``).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Entry:
    """One form that is allowed.

    Args:
        name: How it is called in the documentation.
        signature: What it takes and gives.
        example: An expression that has it.
        node: The class of the parser's node.
        arguments: The node's arguments that may be set.
    """

    name: str
    signature: str
    example: str
    node: type[exp.Expr]
    arguments: frozenset[str]


def _entry(name: str, signature: str, example: str, node: type[exp.Expr], arguments: str) -> Entry:
    return Entry(name, signature, example, node, frozenset(arguments.split()))


_BOTH = "this expression"

ENTRIES: tuple[Entry, ...] = (
    _entry("field", "a field of the arc; case counts", "`unit price`", exp.Column, "this"),
    _entry("literal", "1, 1L, 1.5, 1e7, 'text'", "1.5", exp.Literal, "this is_string"),
    _entry("boolean", "true, false", "true", exp.Boolean, "this"),
    _entry("null", "null", "null", exp.Null, ""),
    _entry("parentheses", "(any) -> any", "(a + b) * c", exp.Paren, "this"),
    _entry("-", "-number -> number", "-a", exp.Neg, "this"),
    _entry("+", "number + number -> number", "a + b", exp.Add, _BOTH),
    _entry("-", "number - number -> number", "a - b", exp.Sub, _BOTH),
    _entry("*", "number * number -> number", "a * b", exp.Mul, _BOTH),
    _entry(
        "/",
        "number / number -> decimal if one is, else double; null by 0",
        "a / b",
        exp.Div,
        f"{_BOTH} safe",
    ),
    _entry("%", "number % number -> number, sign of the left; null by 0", "a % b", exp.Mod, _BOTH),
    _entry("abs", "abs(number) -> number", "abs(a)", exp.Abs, "this"),
    _entry("=", "any = any -> boolean", "a = b", exp.EQ, _BOTH),
    _entry("<>", "any <> any -> boolean", "a <> b", exp.NEQ, _BOTH),
    _entry("<", "any < any -> boolean", "a < b", exp.LT, _BOTH),
    _entry("<=", "any <= any -> boolean", "a <= b", exp.LTE, _BOTH),
    _entry(">", "any > any -> boolean", "a > b", exp.GT, _BOTH),
    _entry(">=", "any >= any -> boolean", "a >= b", exp.GTE, _BOTH),
    _entry("<=>", "any <=> any -> boolean, never null", "a <=> b", exp.NullSafeEQ, _BOTH),
    _entry("and", "boolean and boolean -> boolean", "a > 1 and b > 1", exp.And, _BOTH),
    _entry("or", "boolean or boolean -> boolean", "a > 1 or b > 1", exp.Or, _BOTH),
    _entry("not", "not boolean -> boolean", "not a > 1", exp.Not, "this"),
    _entry("is null", "any is [not] null -> boolean", "a is not null", exp.Is, _BOTH),
    _entry("in", "any [not] in (any, ...) -> boolean", "a in (1, 2)", exp.In, "this expressions"),
    _entry(
        "between",
        "any [not] between any and any -> boolean",
        "a between 1 and 2",
        exp.Between,
        "this low high",
    ),
    _entry(
        "case",
        "case [any] when .. then any [else any] end -> any",
        "case when a > 1 then b else c end",
        exp.Case,
        "this ifs default",
    ),
    _entry("if", "if(boolean, any, any) -> any", "if(a > 1, b, c)", exp.If, "this true false"),
    _entry(
        "coalesce",
        "coalesce(any, ...) -> any; also ifnull, nvl",
        "coalesce(a, 1)",
        exp.Coalesce,
        "this expressions",
    ),
    _entry("nullif", "nullif(any, any) -> any", "nullif(a, b)", exp.Nullif, _BOTH),
    _entry(
        "cast",
        "cast(any as bigint | int | double | decimal(p,s) | boolean | string), null on failure",
        "cast(a as decimal(18,2))",
        exp.TryCast,
        "this to safe",
    ),
    _entry(
        "timestamp",
        "timestamp 'date time' -> timestamp-millis, in UTC",
        "timestamp '2026-07-15 00:00:00'",
        exp.Cast,
        "this to",
    ),
)

_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Identifier: frozenset(("this", "quoted")),
    exp.DataType: frozenset(("this", "expressions")),
    exp.DataTypeParam: frozenset(("this",)),
}
ALLOWED = {entry.node: entry.arguments for entry in ENTRIES} | _PARTS
"""Arguments that may be set, by node."""

SPELLED = {exp.Coalesce: "coalesce", exp.Div: "/", exp.Mod: "%"} | {
    entry.node: entry.name for entry in ENTRIES
}
"""How a node is written, for messages."""
