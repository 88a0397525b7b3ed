r"""Translates LIKE and RLIKE patterns from Java's syntax to the columnar engine's.

The two engines' regular expressions differ in classes (``\d`` is ASCII in Java), in ``.`` and
``$`` around line ends, in flags and in features that need backtracking. RLIKE accepts the part that
both have, rewritten so that it means the same, and refuses the rest.
"""

from __future__ import annotations

import re

import polars as pl

from errata.processors.expressions.columns import Kernel

_CLASSES = {"d": "0-9", "w": "a-zA-Z_0-9", "s": " \\t\\n\\x0B\\f\\r"}
_PLAIN = r"\\[!-/:-@\[-`{-~]|\\[tnf]"
_ITEM = rf"(?:{_PLAIN}|\\[dws]|[A-Za-z0-9]-[A-Za-z0-9]|[^\\\[\]&^-])"
_TOKEN = re.compile(
    rf"(?P<plain>{_PLAIN}|[^\\\[\](){{}}.*+?^$|])|(?P<kind>\\[dwsDWS])|(?P<dot>\.)"
    rf"|(?P<one>\[\^?{_ITEM}+\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)|(?P<start>\^)"
    r"|(?P<end>\$)|(?P<many>(?:[*+?]|\{\d{1,3}(?:,(?:\d{1,3})?)?\})\??)",
)
_LINE_END = "(?:\r\n|[\n\r\u0085\u2028\u2029])$"


class PatternError(ValueError):
    """A pattern that can't be used."""


def like(pattern: str, *, escape: str = "\\") -> str:
    r"""Return a LIKE pattern as a regular expression: ``%`` any text, ``_`` any character.

    Raises:
        PatternError: If an escape precedes anything but ``%``, ``_`` or itself, as in Spark.

    Example:
        >>> like(r"50\%_")
        '(?s)^50%.$'
    """
    parts, rest = [], iter(pattern)
    for character in rest:
        if character == escape:
            following = next(rest, "")
            if following not in ("%", "_", escape):
                raise PatternError(f"{escape}{following}")
            parts.append(_literally(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or _literally(character))
    return "(?s)^" + "".join(parts) + "$"


def rlike(pattern: str) -> tuple[str, bool]:
    """Translate a regular expression from Java's syntax, and return whether it contains ``$``.

    Raises:
        PatternError: For syntax that the two engines don't share, with its position.
    """
    parts, at, depth, before, ends = [], 0, 0, "", False
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise PatternError(f"{pattern[at : at + 8]!r}")
        kind, token = str(match.lastgroup), match[0]
        at = match.end()
        last = at == len(pattern) or pattern[at] == "|"
        stray = kind == "many" and before not in ("plain", "kind", "dot", "one", "close")
        if stray or (kind == "end" and (depth or not last)):
            raise PatternError(f"{token!r} there")
        depth += (kind == "open") - (kind == "close")
        ends |= kind == "end"
        parts.append(_translated(kind, token))
        before = kind
    return "".join(parts), ends


def matches(expression: str, *, ends: bool = False) -> Kernel:
    """Return the function that checks whether a text has a match.

    Args:
        expression: A regular expression in the engine's syntax.
        ends: Whether it has a ``$``: Java's also matches before a line end that ends the text.
    """

    def run(values: pl.Series) -> pl.Series:
        found = values.str.contains(expression)
        if not ends:
            return found
        return found | values.str.replace(_LINE_END, "").str.contains(expression)

    return run


def _translated(kind: str, token: str) -> str:
    if kind == "kind":
        letter = token[1]
        return f"[{'^' * letter.isupper()}{_CLASSES[letter.lower()]}]"
    if kind == "dot":
        return "[^\n\r\u0085\u2028\u2029]"
    if kind == "one":
        negated = token.startswith("[^")
        items = re.findall(_ITEM, token[1 + negated : -1])
        return f"[{'^' * negated}{''.join(map(_in_class, items))}]"
    return _plain(token) if kind == "plain" else token


def _in_class(item: str) -> str:
    if item[1:] in _CLASSES and item[0] == "\\":
        return _CLASSES[item[1]]
    return item if len(item) == 3 else _plain(item)


def _plain(token: str) -> str:
    return token if token in ("\\t", "\\n", "\\f") else _literally(token[-1])


def _literally(character: str) -> str:
    return "\\" + character if character in r"\.+*?()|[]{}^$#&-~" else character
