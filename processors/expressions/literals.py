"""Literals: the values of numbers, strings, bytes, times and uuids in the text."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import polars as pl
from sqlglot import exp

from errata.processors.expressions import rules, times
from errata.schemas.fields import MAX_PRECISION, FieldType

_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ESCAPE = re.compile(
    r"(?s)\\(?:(?P<octal>[01][0-7]{2})|u(?P<u16>[0-9a-fA-F]{4})|U(?P<u32>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|.)"
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"} | {
    "%": "\\%",  # for LIKE to see
    "_": "\\_",
}


def number(digits: str) -> tuple[int | float, FieldType] | None:
    """Return the value and type of a written number, a decimal unscaled; None if too large.

    Whole numbers are ``int`` if 32 bits hold them, else ``long``, else decimal. A number with an
    exponent is a double; one with a point is a decimal of exactly the written digits.

    Example:
        >>> value, kind = number("12.50")
        >>> value, str(kind)
        (1250, 'decimal(4,2)')
    """
    if "e" in digits.lower():
        value = float(digits)
        return (value, rules.DOUBLE) if math.isfinite(value) else None
    exact = Decimal(digits)
    sign, figures, exponent = exact.as_tuple()
    unscaled = int("".join(map(str, figures))) * (-1 if sign else 1)
    scale = -int(exponent)
    if scale == 0 and "." not in digits:
        if -(2**31) <= unscaled < 2**31:
            return unscaled, rules.INT
        if -(2**63) <= unscaled < 2**63:
            return unscaled, rules.LONG
    precision = max(len(str(abs(unscaled))), scale)
    if precision > MAX_PRECISION:
        return None
    return unscaled, FieldType("decimal", precision, scale)


def long_digits(node: exp.Expr, text: str) -> str | None:
    """Return the digits of a number written as ``5L``; None if the node is not one.

    The parser turns it into a cast; the suffix in the text tells it from a written cast.
    """
    literal = node.this if isinstance(node, exp.TryCast) else None
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    end = literal.meta.get("end", len(text))
    return literal.name if text[end : end + 1] in ("L", "l") else None


def read(text: str, kind: FieldType) -> tuple[int | str, FieldType] | None:
    """Return the value and type of the date, timestamp or uuid in a text, None if it is none.

    A timestamp counts milliseconds, or microseconds if more than three digits of the second are
    written and not zero.

    Example:
        >>> value, kind = read("1970-01-01 00:00:01.000_5".replace("_", ""), rules.TIMESTAMP)
        >>> value, str(kind)
        (1000500, 'timestamp-micros')
        >>> read("1970-01-32", rules.DATE)
    """
    if kind == rules.UUID:
        return (text.lower(), kind) if _UUID.fullmatch(text) else None
    texts = pl.Series([text])
    if kind == rules.DATE:
        day = times.dates(texts).item()
        return None if day is None else (day, kind)
    micros = times.micros(texts).item()
    if micros is None:
        return None
    return (micros, rules.MICROS) if micros % 1000 else (micros // 1000, rules.TIMESTAMP)


def octets(digits: str) -> bytes | None:
    r"""Return the bytes of ``X'..'``, None if its digits are not hexadecimal.

    Example:
        >>> octets("f41")
        b'\x0fA'
    """
    if not re.fullmatch("[0-9a-fA-F]*", digits):
        return None
    return bytes.fromhex("0" * (len(digits) % 2) + digits)


def unquoted(written: str) -> str:
    r"""Return the text of a quoted literal, by Spark's escapes.

    Example:
        >>> unquoted(r"'it\'s\n'"), unquoted(r"'50\%'")
        ("it's\n", '50\\%')
    """
    text = _ESCAPE.sub(_unescaped, written[1:-1])
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # pairs of \\u


def _unescaped(match: re.Match[str]) -> str:
    code = match["octal"], match["u16"], match["u32"]
    for digits, base in zip(code, (8, 16, 16), strict=True):
        if digits:
            return chr(int(digits, base))
    return _ESCAPED.get(match[0][1], match[0][1])
