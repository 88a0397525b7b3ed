r"""Text and bytes on columns, and the patterns of LIKE and RLIKE.

Characters are code points, as in Spark. Patterns are translated from Java's syntax to the columnar
engine's: the two differ in classes (``\d`` is ASCII in Java), in ``.`` and ``$`` around line ends,
in flags and in features that need backtracking. RLIKE accepts the part that both have, rewritten so
that it means the same, and refuses the rest.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from operator import contains, itemgetter, methodcaller, mul

import polars as pl

from errata.processors.expressions.columns import Kernel, by_row, filled, where_known

MAX_REPEAT = 10_000
"""The most repetitions of `repeat`, and the greatest length for `lpad` and `rpad`."""

_CLASSES = {"d": "0-9", "w": "a-zA-Z_0-9", "s": " \\t\\n\\x0B\\f\\r"}
_PLAIN = r"\\[!-/:-@\[-`{-~]|\\[tnf]"
_ITEM = rf"(?:{_PLAIN}|\\[dws]|[A-Za-z0-9]-[A-Za-z0-9]|[^\\\[\]&^-])"
_TOKEN = re.compile(
    rf"(?P<plain>{_PLAIN}|[^\\\[\](){{}}.*+?^$|])|(?P<kind>\\[dwsDWS])|(?P<dot>\.)"
    rf"|(?P<one>\[\^?{_ITEM}+\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)|(?P<start>\^)"
    r"|(?P<end>\$)|(?P<many>(?:[*+?]|\{\d{1,3}(?:,(?:\d{1,3})?)?\})\??)",
)
_LINE_END = "(?:\r\n|[\n\r\u0085\u2028\u2029])$"


def upper(values: pl.Series) -> pl.Series:
    """Return the texts in upper case."""
    return values.str.to_uppercase()


def lower(values: pl.Series) -> pl.Series:
    """Return the texts in lower case."""
    return values.str.to_lowercase()


def length(values: pl.Series) -> pl.Series:
    """Return the number of characters of strings, or of octets of bytes."""
    size = values.bin.size() if values.dtype == pl.Binary else values.str.len_chars()
    return size.cast(pl.Int32)


def substring(values: pl.Series, start: pl.Series, count: pl.Series | None = None) -> pl.Series:
    """Return `count` characters from `start` on: 1 and 0 are the first, -1 the last.

    A start before the first character still counts towards the end.

    Example:
        >>> three, start = pl.Series(["abc"]), pl.Series([-5])
        >>> substring(three, start, pl.Series([4])).to_list()
        ['ab']
    """
    columns = [values, start] if count is None else [values, start, count]
    frame = _frame(*columns)
    begin = pl.col("1").cast(pl.Int64)
    size = pl.col("0").str.len_chars().cast(pl.Int64)
    begin = pl.when(begin > 0).then(begin - 1).when(begin < 0).then(begin + size).otherwise(0)
    first = begin.clip(0)
    length_taken = None if count is None else (begin + pl.col("2").cast(pl.Int64) - first).clip(0)
    return where_known(
        frame.select(pl.col("0").str.slice(first, length_taken)).to_series(), *columns
    )


def left(values: pl.Series, count: pl.Series) -> pl.Series:
    """Return the first characters."""
    return substring(values, pl.Series([1]), count)


def right(values: pl.Series, count: pl.Series) -> pl.Series:
    """Return the last characters."""
    frame = _frame(values, count)
    start = -pl.col("1").cast(pl.Int64).clip(0)
    size = pl.col("0").str.len_chars().cast(pl.Int64)
    cut = frame.select(pl.col("0").str.slice((size + start).clip(0))).to_series()
    return where_known(cut, values, count)


def concat(*columns: pl.Series) -> pl.Series:
    """Return the concatenated texts, null if one of them is."""
    return _frame(*columns).select(pl.concat_str(pl.all())).to_series()


def concat_ws(separator: str, *columns: pl.Series) -> pl.Series:
    """Return the texts that are not null with a separator between them."""
    joined = pl.concat_str(pl.all(), separator=separator, ignore_nulls=True)
    return _frame(*columns).select(joined).to_series()


def replace(values: pl.Series, old: str, new: str = "") -> pl.Series:
    """Return the texts with every occurrence replaced; an empty `old` changes nothing."""
    return values.str.replace_all(old, new, literal=True) if old else values


def translate(values: pl.Series, old: str, new: str) -> pl.Series:
    """Replace each character of `old` by the one at its position in `new`, if any."""
    table = {ord(a): new[i] if i < len(new) else None for i, a in reversed([*enumerate(old)])}
    return by_row(methodcaller("translate", table), dtype=pl.String)(values)


def pad(values: pl.Series, count: int, fill: str, *, before: bool) -> pl.Series:
    """Return the texts cut or padded to `count` characters."""
    padding = (fill * count)[: max(count, 0)] if fill else ""
    text = pl.col("0")
    missing = (count - text.str.len_chars().cast(pl.Int64)).clip(0)
    filling = pl.lit(padding).str.slice(0, missing)
    cut = text.str.slice(0, max(count, 0))
    padded = pl.concat_str(filling, cut) if before else pl.concat_str(cut, filling)
    return values.to_frame("0").select(padded).to_series()


def split_part(values: pl.Series, separator: str, number: int) -> pl.Series:
    """Return one part between separators, by number from 1, or from -1 at the end; else empty."""
    if not separator:
        return values if number in (1, -1) else where_known(values.str.slice(0, 0), values)
    parts = values.str.split(separator)
    part = parts.list.get(number - 1 if number > 0 else number, null_on_oob=True)
    return where_known(filled(part, ""), values)


def locate(part: pl.Series, values: pl.Series, start: pl.Series | None = None) -> pl.Series:
    """Return the position of a text in others, from `start` on and counted from 1; 0 if absent.

    An empty text is at 1 whatever the start. A start that is null or below 1 finds nothing.
    """
    first = filled(pl.Series([1]) if start is None else start)
    at = by_row(str.find, dtype=pl.Int32)(values, part, first.clip(1) - 1) + 1
    at = pl.Series([1], dtype=pl.Int32).zip_with(part == "", at)
    nowhere = pl.Series([0], dtype=pl.Int32)
    at = where_known(at.zip_with(first > 0, nowhere), part, values)
    return at if start is None else at.zip_with(start.is_not_null(), nowhere)


reverse = by_row(itemgetter(slice(None, None, -1)), dtype=pl.String)
starts_with = by_row(str.startswith, dtype=pl.Boolean)
ends_with = by_row(str.endswith, dtype=pl.Boolean)
contains_text = by_row(contains, dtype=pl.Boolean)


def repeat(values: pl.Series, count: int) -> pl.Series:
    """Return texts repeated `count` times, empty below 1."""
    return by_row(mul, dtype=pl.String)(values, pl.Series([count]))


def sha2(values: pl.Series, bits: int) -> pl.Series:
    """Return the SHA-2 digest of bytes in hexadecimal digits; 0 bits are 256."""
    return _digest(f"sha{bits or 256}", values)


def md5(values: pl.Series) -> pl.Series:
    """Return the MD5 digest of bytes in hexadecimal digits."""
    return _digest("md5", values)


def hexadecimal(values: pl.Series) -> pl.Series:
    """Return bytes as hexadecimal digits, two per octet."""
    return values.bin.encode("hex").str.to_uppercase()


def _digest(algorithm: str, values: pl.Series) -> pl.Series:
    hashed = map(
        partial(hashlib.new, algorithm, usedforsecurity=False), filled(values, b"").to_list()
    )
    digits = list(map(methodcaller("hexdigest"), hashed))
    return where_known(pl.Series(digits, dtype=pl.String), values)


def _frame(*columns: pl.Series) -> pl.DataFrame:
    """Return columns as ``0``, ``1``..., single values repeated."""
    height = next((len(column) for column in columns if len(column) != 1), 1)
    return pl.DataFrame(
        [
            (column if len(column) == height else column.new_from_index(0, height)).alias(str(i))
            for i, column in enumerate(columns)
        ]
    )


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
        is_misplaced = kind == "many" and before not in ("plain", "kind", "dot", "one", "close")
        if is_misplaced or (kind == "end" and (depth or not last)):
            raise PatternError(f"{token!r} at this place")
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
        is_match = values.str.contains(expression)
        if not ends:
            return is_match
        return is_match | values.str.replace(_LINE_END, "").str.contains(expression)

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
