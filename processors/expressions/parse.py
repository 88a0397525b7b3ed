"""Parses text into a tree that holds only forms of the vocabulary."""

from __future__ import annotations

import difflib
from typing import ClassVar

from sqlglot import Dialect, ErrorLevel, TokenType, exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.vocabulary import ALLOWED, FUNCTIONS, SPELLED

MAX_LENGTH = 4_000
"""The most characters of an expression."""
MAX_NESTING = 20
"""The most open brackets, CASEs and prefixes (NOT, -): the parser needs 23 frames for each."""
MAX_DEPTH = 120
"""The most levels of the tree: a chain such as ``a + b + c`` has one for each operator."""

_SPARK = Dialect.get_or_raise("spark")
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}

_ERRATA_FUNCTIONS = {name.upper() for name in FUNCTIONS} | {
    "PERCENTILE"
}  # whose third one would be dropped


class _Grammar(SparkParser):
    """Spark's grammar, except that a call of an Errata function stays a name with arguments.

    The parser would turn it into a node with a different form for each function.
    """

    FUNCTIONS: ClassVar = {
        n: f for n, f in SparkParser.FUNCTIONS.items() if n not in _ERRATA_FUNCTIONS
    }
    FUNCTION_PARSERS: ClassVar = {
        n: f for n, f in SparkParser.FUNCTION_PARSERS.items() if n not in _ERRATA_FUNCTIONS
    }


_COMPARES = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_MATCHES = (exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
_PREDICATES = (*_COMPARES, exp.Is, exp.In, exp.Between, *_MATCHES)


def parse(text: str) -> exp.Expr:
    """Return the checked tree of one expression in Spark's dialect.

    Raises:
        ExpressionError: If it is not one expression, is too long or deep, or has something in it
            that is not in the vocabulary.
    """
    tree = read(text).transform(_unqualified)
    check(text, tree)
    return tree


def read(text: str) -> exp.Expr:
    """Return the unchecked tree of a text, after checks of its length and nesting.

    Raises:
        ExpressionError: If it is not one expression, or is too long or deep.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            text, MAX_LENGTH, need=f"at most {MAX_LENGTH} characters", found=str(len(text))
        )
    try:
        _refuse_nesting(text)
        grammar = _Grammar(dialect=_SPARK, error_level=ErrorLevel.RAISE)
        trees = grammar.parse_into(exp.Condition, _SPARK.tokenize(text), text)
    except TokenError as error:
        raise ExpressionError(
            text, 0, need="text that parses as SQL", found=str(error).split("\n")[0]
        ) from error
    except ParseError as error:
        raise _unparsed(text, error) from error
    except RecursionError as error:
        raise ExpressionError(text, 0, need="a simpler expression", found="deep nesting") from error
    statements = [tree for tree in trees if tree is not None]
    if len(statements) != 1 or len(trees) != 1 or ";" in _after(text, statements[0]):
        actual = f"{len(statements)} statements" if statements else "nothing"
        raise ExpressionError(text, 0, need="one expression", found=actual)
    _refuse_depth(text, statements[0])
    return statements[0]


def _unqualified(node: exp.Expr) -> exp.Expr:
    """Return a qualified name as the name of one field, ``n.x``: a field of a join's side."""
    if not isinstance(node, exp.Column) or not node.table or node.db:
        return node
    field = exp.to_identifier(f"{node.table}.{node.name}", quoted=True)
    field.meta.update(node.args["table"].meta)
    return exp.Column(this=field)


def position(node: exp.Expr) -> int:
    """Return the index in the text at which a node, or the nearest node around it, starts."""
    nearest: exp.Expr | None = node
    while nearest is not None:
        starts = [part.meta["start"] for part in nearest.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        nearest = nearest.parent
    return 0


def _after(text: str, tree: exp.Expr) -> str:
    last = max((part.meta["end"] for part in tree.walk() if "end" in part.meta), default=0)
    return text[last + 1 :]


def _refuse_nesting(text: str) -> None:
    opened = run = 0
    for token in _SPARK.tokenize(text):
        kind = token.token_type
        opened += (kind in _OPEN) - (kind in _CLOSE)
        run = run + 1 if kind in _PREFIX else 0
        if opened + run > MAX_NESTING:
            raise ExpressionError(
                text,
                token.start,
                need=f"at most {MAX_NESTING} brackets, CASEs and prefixes inside each other",
                found="more",
                hint="split it into several fields",
            )


def _unparsed(text: str, error: ParseError) -> ExpressionError:
    first = error.errors[0] if error.errors else {}
    highlight = str(first.get("highlight") or "")
    lines = text.split("\n")[: int(first.get("line") or 1) - 1]
    column = int(first.get("col") or 1) - max(len(highlight), 1)
    at = min(max(sum(len(line) + 1 for line in lines) + column, 0), max(len(text) - 1, 0))
    description = str(first.get("description") or "something else")
    where = "near"
    if description.startswith("Required keyword"):
        description, where = "no operand", "after"
    elif description.startswith("Expecting "):
        description, where = f"no {description.removeprefix('Expecting ')}", "after"
    actual = f"{description} {where} {highlight!r}" if highlight else description
    return ExpressionError(text, at, need="an SQL expression", found=actual)


def _refuse_depth(text: str, tree: exp.Expr) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ExpressionError(
                text,
                position(level[0]),
                need=f"at most {MAX_DEPTH} operators in a chain or inside each other",
                found="more",
                hint="split it into several fields, or use IN for a list of values",
            )
        level = [child for node in level for child in node.iter_expressions()]


def check(text: str, tree: exp.Expr) -> None:
    """Refuse every node, and every argument of a node, that is not in the vocabulary.

    Raises:
        ExpressionError: For the first such node, from the top.
    """
    for node in tree.bfs():
        _check_node(text, node)


def _check_node(text: str, node: exp.Expr) -> None:
    def refuse(need: str, found: str, hint: str = "") -> ExpressionError:
        return ExpressionError(text, position(node), need=need, found=found, hint=hint)

    allowed = ALLOWED.get(type(node))
    if isinstance(node, exp.AggFunc):
        name = written_name(text, node)
        raise refuse("a value of each tuple", f"the aggregate {name}", "use it in .aggregate(...)")
    if isinstance(node, exp.Concat):
        raise refuse(
            "one literal", "several side by side", "write \\' for a quote in a text, or ||"
        )
    if allowed is None or (isinstance(node, exp.Anonymous) and not _is_known(node)):
        name = written_name(text, node)
        matches = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1)
        raise refuse(
            "a form that expressions support",
            f"{name}, which is not supported",
            f"did you mean {matches[0]}?" if matches else "",
        )
    used = {name for name, value in node.args.items() if value not in (None, False, [], "")}
    if isinstance(node, exp.Literal):
        used = {"this"}
    if unsupported := sorted(used - allowed):
        form = SPELLED.get(type(node), node.key)
        raise refuse(f"{form} with {', '.join(sorted(allowed))} only", ", ".join(unsupported))
    if isinstance(node, exp.DPipe) and isinstance(node.expression, (exp.Add, exp.Sub)):
        # The parser gives + precedence, Spark the left operator.
        raise refuse("parentheses around a sum after ||", "none", "write a || (b + c)")
    if isinstance(node, _PREDICATES):
        for child in node.iter_expressions():
            escaped = isinstance(node, exp.Escape) and isinstance(child, (exp.Like, exp.ILike))
            if isinstance(child, (*_PREDICATES, exp.Not, exp.And, exp.Or)) and not escaped:
                # Spark and the parser disagree on which one of a = b < c comes first.
                raise refuse(
                    "parentheses around a comparison inside a comparison",
                    "none",
                    "write (a = b) = c or a = (b = c)",
                )


def _is_known(call: exp.Anonymous) -> bool:
    return isinstance(call.this, str) and call.this.lower() in FUNCTIONS


def written_name(text: str, node: exp.Expr) -> str:
    """Return the written name of a call, or the parser's word for another node."""
    if isinstance(node, exp.Anonymous):
        return node.name
    if isinstance(node, exp.Func) and "end" in node.meta:
        return text[node.meta["start"] : node.meta["end"] + 1]
    return node.key
