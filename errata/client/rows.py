"""Converts frames to plain values for people and programs, without hidden fields.

A decimal is a `decimal.Decimal` with its scale, a timestamp int ms or us UTC, a date a
`datetime.date`, a uuid its text; in JSON a decimal is a number, a date ISO-8601, bytes are base64.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import Any

import msgspec
import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible
from errata.schemas.fields import FieldType

_EXACT = decimal.Context(prec=60)
_JSON = msgspec.json.Encoder(decimal_format="number")


def values(column: pl.Series, kind: FieldType) -> list[Any]:
    """Return a column of a physical type as plain values.

    Example:
        >>> values(pl.Series([0.1], dtype=pl.Float32), FieldType("float"))
        [0.1]
        >>> values(pl.Series([0, None], dtype=pl.Int32), FieldType("date"))
        [datetime.date(1970, 1, 1), None]
    """
    if kind.kind == "date":
        return column.cast(pl.Date).to_list()
    if kind.kind == "float":  # the shortest number that is this float, not its digits as a double
        return column.cast(pl.String).cast(pl.Float64).to_list()
    found = column.to_list()
    if kind.kind != "decimal":
        return found
    return [None if v is None else _EXACT.scaleb(decimal.Decimal(v), -kind.scale) for v in found]


def tuples(arc: Arc, frame: pl.DataFrame, *, prefix: str = "") -> list[dict[str, Any]]:
    """Return tuples as dicts of the visible fields."""
    names = arc.visible
    columns = [values(frame[prefix + name], arc.fields[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def revisions(arc: Arc, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return revisions as ``{"op", "before", "after", "epoch"}``, without absent sides."""
    shown = visible(arc, frame)
    sides = zip(
        shown["op"].to_list(),
        tuples(arc, shown, prefix=frames.BEFORE),
        tuples(arc, shown, prefix=frames.AFTER),
        shown["epoch"].to_list(),
        strict=True,
    )
    found = []
    for op, before, after, epoch in sides:
        line: dict[str, Any] = {"op": frames.OPS[op]}
        if op != frames.INSERT:
            line["before"] = before
        if op != frames.DELETE:
            line["after"] = after
        found.append(line | {"epoch": epoch})
    return found


def fold(arc: Arc, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the tuples that result from revisions, by epoch; in an epoch deletes come first."""
    left = frames.fold(frame, arc.identity, list(arc.fields))
    return left.sort(list(arc.identity), nulls_last=True)


def json_line(row: dict[str, Any]) -> bytes:
    """Return one JSON object; decimals are numbers with all their digits."""
    return _JSON.encode(row)


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """Return JSON lines."""
    return b"".join(json_line(row) + b"\n" for row in rows)


def is_epoch_mark(line: bytes) -> bool:
    """Return whether a JSON line closes an epoch: ``{"epoch": true}``.

    Example:
        >>> is_epoch_mark(b'{"epoch": true}'), is_epoch_mark(b'{"op": "insert"}')
        (True, False)
    """
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("epoch") is True and "op" not in found
