"""Plain values as lines of JSON: a decimal is a number with its digits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

_JSON = msgspec.json.Encoder(decimal_format="number")


def json_line(row: dict[str, Any]) -> bytes:
    """Return one JSON object; decimals are numbers with all their digits."""
    return _JSON.encode(row)


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """Return JSON lines."""
    return b"".join(json_line(row) + b"\n" for row in rows)
