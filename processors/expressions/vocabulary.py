"""The forms and functions that an expression may contain, for the checker and the documentation.

All other forms that the parser knows are refused, and so is a listed form with an argument that is
not listed (``x IN (SELECT ...)``, ``CAST(x AS int FORMAT ...)``).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from errata.processors.expressions import choices, number_functions, text_functions, time_functions
from errata.processors.expressions.casts import NAMES
from errata.processors.expressions.function import Function


@dataclass(frozen=True)
class Entry:
    """One allowed form.

    Args:
        name: Its name in the documentation.
        signature: Its arguments and its result.
        example: An expression that contains it.
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
    _entry(
        "literal",
        "1 (int), 1L, 1.5 (decimal), 1e7 (double), 1.5f, 'text' with Spark's escapes",
        "'it\\'s'",
        exp.Literal,
        "this is_string",
    ),
    _entry("bytes", "X'hexadecimal digits' -> bytes", "X'00ff'", exp.HexString, "this"),
    _entry("boolean", "true, false", "true", exp.Boolean, "this"),
    _entry("null", "null, of any type", "coalesce(null, 1)", exp.Null, ""),
    _entry(
        "date",
        "date 'yyyy-MM-dd' -> date",
        "date '2026-07-15'",
        exp.Cast,
        "this to",
    ),
    _entry(
        "timestamp",
        "timestamp 'yyyy-MM-dd HH:mm:ss[.fraction][zone]' -> timestamp-millis, in UTC "
        "(timestamp-micros with more than 3 digits)",
        "timestamp '2026-07-15 09:30:00.250+02:00'",
        exp.Cast,
        "this to",
    ),
    _entry("parentheses", "(any) -> any", "(size + 1) * 2", exp.Paren, "this"),
    _entry("-", "-number -> number", "-price", exp.Neg, "this"),
    _entry(
        "+",
        "number + number -> number; date + int -> date; date or timestamp + interval",
        "price + 1",
        exp.Add,
        _BOTH,
    ),
    _entry("-", "as +", "day - 1", exp.Sub, _BOTH),
    _entry(
        "interval",
        "interval 5 minutes or '5' minutes, next to a date or timestamp; "
        "units microsecond to week, month, year",
        "at + interval 90 minutes",
        exp.Interval,
        "this unit",
    ),
    _entry("*", "number * number -> number", "price * size", exp.Mul, _BOTH),
    _entry(
        "/",
        "number / number -> decimal if one is, else double; null by 0",
        "price / 3",
        exp.Div,
        f"{_BOTH} safe",
    ),
    _entry(
        "%", "number % number -> number, sign of the left; null by 0", "-size % 4", exp.Mod, _BOTH
    ),
    _entry(
        "div",
        "number div number -> long, no float or double; null by 0",
        "price div 5",
        exp.IntDiv,
        _BOTH,
    ),
    _entry("=", "any = any -> boolean; also ==", "size = 7", exp.EQ, _BOTH),
    _entry("<>", "any <> any -> boolean; also !=", "size <> 7", exp.NEQ, _BOTH),
    _entry("<", "any < any -> boolean", "at < '2026-07-15 10:00'", exp.LT, _BOTH),
    _entry("<=", "any <= any -> boolean", "price <= size", exp.LTE, _BOTH),
    _entry(">", "any > any -> boolean", "day > '2026-01-31'", exp.GT, _BOTH),
    _entry(">=", "any >= any -> boolean", "rate >= price", exp.GTE, _BOTH),
    _entry("<=>", "any <=> any -> boolean, never null", "note <=> null", exp.NullSafeEQ, _BOTH),
    _entry("and", "boolean and boolean -> boolean", "flag and size > 1", exp.And, _BOTH),
    _entry("or", "boolean or boolean -> boolean", "flag or null", exp.Or, _BOTH),
    _entry("not", "not boolean -> boolean", "not flag", exp.Not, "this"),
    _entry("is null", "any is [not] null -> boolean", "note is not null", exp.Is, _BOTH),
    _entry(
        "in", "any [not] in (any, ...) -> boolean", "size in (1, 7)", exp.In, "this expressions"
    ),
    _entry(
        "between",
        "any [not] between any and any -> boolean",
        "price between 10 and 20",
        exp.Between,
        "this low high",
    ),
    _entry(
        "like",
        "string [not] like 'pattern' [escape 'c'] -> boolean; % is any text, _ any character",
        "name like 'E%'",
        exp.Like,
        f"{_BOTH} negate",
    ),
    _entry(
        "ilike",
        "as like, but ignores case",
        "name ilike 'e%'",
        exp.ILike,
        f"{_BOTH} negate",
    ),
    _entry(
        "escape",
        "after like: the character that escapes % and _; \\ by default",
        "name like 'E!_%' escape '!'",
        exp.Escape,
        _BOTH,
    ),
    _entry(
        "rlike",
        "string [not] rlike 'pattern' -> boolean: whether it contains a match; characters, "
        "classes, groups, |, ^, $, * + ? {n,m}; no flags, look-around, back references, \\b",
        "name rlike '^E[a-z]+$'",
        exp.RegexpLike,
        _BOTH,
    ),
    _entry(
        "||",
        "string || string -> string, as concat",
        "name || '-' || size",
        exp.DPipe,
        f"{_BOTH} safe",
    ),
    _entry(
        "case",
        "case [any] when .. then any [else any] end -> any",
        "case when size > 5 then 'big' else 'small' end",
        exp.Case,
        "this ifs default",
    ),
    _entry("if", "if(boolean, any[, any]) -> any", "if(flag, price, 0)", exp.If, "this true false"),
    _entry(
        "cast",
        f"cast(any as {NAMES}), null on failure; also try_cast and ::",
        "cast(price as int)",
        exp.TryCast,
        "this to safe",
    ),
)

_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Anonymous: frozenset(("this", "expressions")),
    exp.Identifier: frozenset(("this", "quoted")),
    exp.DataType: frozenset(("this", "expressions", "nested")),
    exp.DataTypeParam: frozenset(("this",)),
    exp.Var: frozenset(("this",)),
}
ALLOWED = {entry.node: entry.arguments for entry in ENTRIES} | _PARTS
"""The arguments that may be set, by node."""

SPELLED: dict[type[exp.Expr], str] = {entry.node: entry.name for entry in ENTRIES} | {
    exp.Sub: "-",
    exp.Neg: "-",
}
"""The written form of a node, for messages."""

TIMED = {
    "timestamp-millis": "write a timestamp as '2026-07-15 09:30:00'",
    "timestamp-micros": "write a timestamp as '2026-07-15 09:30:00'",
    "date": "write a date as '2026-07-15'",
    "uuid": "write a uuid as '123e4567-e89b-12d3-a456-426614174000'",
}
"""The written form of a literal of a kind, for messages."""


GROUPS: dict[str, tuple[Function, ...]] = {
    "Choices and nulls": choices.FUNCTIONS,
    "Numbers": number_functions.FUNCTIONS,
    "Text and bytes": text_functions.FUNCTIONS,
    "Dates and times": time_functions.FUNCTIONS,
}
"""The functions by topic."""

FUNCTIONS: dict[str, Function] = {
    name: function
    for group in GROUPS.values()
    for function in group
    for name in (function.name, *function.aliases)
}
"""The functions by each of their names."""
