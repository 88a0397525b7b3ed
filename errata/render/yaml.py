"""Writing YAML: mappings, sequences and scalars in block style, as people read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_TAKEN = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n"])
"""Words that some version of YAML takes for something else than text, in any case."""


def to_yaml(value: Any) -> str:
    r"""Return plain data (mappings, sequences, texts, numbers, booleans, None) as one document.

    Example:
        >>> print(to_yaml({"on": [1, {"a": "b c", "d": []}], "text": "two\nlines\n"}), end="")
        "on":
          - 1
          - a: "b c"
            d: []
        text: |2
          two
          lines
    """
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a value that begins on a line of its own."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{_scalar(key)}:", each, indented=isinstance(each, Mapping | list))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for each in value:
            first, *more = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" if line else "" for line in more)
    else:
        yield _scalar(value)


def _entry(key: str, value: Any, *, indented: bool) -> Iterator[str]:
    first, *more = _block(value) if _is_block(value) else _lines(value)
    if indented and value:
        yield key
        yield from (f"  {line}" if line else "" for line in (first, *more))
    else:
        yield f"{key} {first}"
        yield from more


def _is_block(value: Any) -> bool:
    if not isinstance(value, str) or "\n" not in value.lstrip("\n"):
        return False
    return all(c.isprintable() or c == "\n" for c in value)


def _block(text: str) -> Iterator[str]:
    """Yield a text of several lines as it is; the 2 is how far in it stands."""
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    yield "|2" + {0: "-", 1: ""}.get(ends, "+")
    yield from (f"  {line}" if line else "" for line in body.split("\n"))
    yield from [""] * (ends - 1)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _TAKEN
        return value if plain else f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, int):
        return str(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
