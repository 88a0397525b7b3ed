"""Writes YAML in block style, for people."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_RESERVED = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n"])
"""Words that some version of YAML does not read as text, in any case."""


def to_yaml(value: Any) -> str:
    r"""Return plain data (mappings, sequences, texts, numbers, booleans, None) as one document.

    Example:
        >>> print(to_yaml({"on": [1, {"a": "b c", "d": []}], "text": "two\nlines\n"}), end="")
        "on":
          - 1
          - a: "b c"
            d: []
        text: |
          two
          lines
    """
    return yaml.dump(
        value, Dumper=_Readable, sort_keys=False, allow_unicode=True, width=float("inf")
    )


class _Readable(yaml.SafeDumper):
    """Indents sequences, writes multi-line texts as blocks, and makes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)

    def analyze_scalar(self, scalar: str) -> Any:
        analysis = super().analyze_scalar(scalar)
        # The library quotes texts with a space before a line break, but blocks can hold them.
        analysis.allow_block = all(c.isprintable() or c == "\n" for c in scalar)
        return analysis


def _text(dumper: _Readable, text: str) -> yaml.ScalarNode:
    """Quote more than the library does: ``1e3`` and ``0o7`` are numbers in YAML 1.2."""
    style = "|" if "\n" in text.lstrip("\n") else '"'
    if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED:
        style = ""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)
