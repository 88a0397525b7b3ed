"""Converts frames and records to plain values for people and programs.

Without hidden fields: a decimal is a `decimal.Decimal` with its scale, a timestamp int ms or us
UTC, a date a `datetime.date`, a uuid its text; in JSON a decimal is a number, a date ISO-8601,
bytes are base64.
"""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import polars as pl

from errata.processors.wire import report as reports
from errata.processors.wire.replay import BlockError, unpack
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible
from errata.schemas.decode import Decoder
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.schemas.layout import Leaf, Nested
from errata.topics.cluster import Records
from errata.topics.registry import Registry

_EXACT = decimal.Context(prec=60)
_FRAMES = {"ranges", "tuples"}
"""Fields of requests and replies that hold a packed frame (`processors.wire.replay.pack`)."""


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
    plain = column.to_list()
    if kind.kind != "decimal":
        return plain
    return [None if v is None else _EXACT.scaleb(decimal.Decimal(v), -kind.scale) for v in plain]


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
    lines = []
    for op, before, after, epoch in sides:
        line: dict[str, Any] = {"op": frames.OPS[op]}
        if op != frames.INSERT:
            line["before"] = before
        if op != frames.DELETE:
            line["after"] = after
        lines.append(line | {"epoch": epoch})
    return lines


def fold(arc: Arc, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the tuples that result from revisions, by epoch; in an epoch deletes come first."""
    left = frames.fold(frame, arc.identity, list(arc.fields))
    return left.sort(list(arc.identity), nulls_last=True)


def is_epoch_mark(line: bytes) -> bool:
    """Return whether a JSON line closes an epoch: ``{"epoch": true}``.

    Example:
        >>> is_epoch_mark(b'{"epoch": true}'), is_epoch_mark(b'{"op": "insert"}')
        (True, False)
    """
    try:
        content = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("epoch") is True and "op" not in content


class PlainDecoder:
    """Decodes keys and values: framed Avro by its schema, a report, JSON, text, or else base64.

    Args:
        registry: The registry with their schemas.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._decoders: dict[int, Decoder | str] = {}

    def records(self, records: Records) -> list[dict[str, Any]]:
        """Return partition, offset, time, key and value of each record."""
        return [
            {
                "partition": records.source.partition,
                "offset": offset,
                "time_ms": time_ms,
                "key": key,
                "value": value,
            }
            for offset, time_ms, key, value in zip(
                records.offsets,
                records.times_ms,
                self.decode(records.keys),
                self.decode(records.values),
                strict=True,
            )
        ]

    def decode(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return each value as plain data; ``{"base64": ...}`` if it has none of the forms."""
        present = [(place, value) for place, value in enumerate(values) if value is not None]
        plain_values: list[Any] = [None] * len(values)
        unframed = framing.unframe([value for _, value in present])
        by_schema: dict[int, list[int]] = {}
        for row, schema_id in enumerate(unframed.schema_ids.tolist()):
            by_schema.setdefault(schema_id, []).append(row)
        for schema_id, rows in by_schema.items():
            plain = self._of_schema(schema_id, [unframed.bodies[row] for row in rows])
            for row, content in zip(rows, plain, strict=True):
                place, value = present[row]
                plain_values[place] = content if content is not None else _unframed(value)
        return plain_values

    def _of_schema(self, schema_id: int, bodies: list[bytes]) -> list[Any]:
        """Return the decoded records of one schema; None for each that can't be decoded."""
        decoder = None if schema_id == framing.UNFRAMED else self._decoder(schema_id)
        if decoder is None:
            return [_report(body) for body in bodies]
        decoded = decoder.decode_each(bodies)
        plain_rows: list[Any] = [None] * len(bodies)
        for row, plain in zip(decoded.good.tolist(), rows_of(decoder, decoded.frame), strict=True):
            plain_rows[row] = plain
        return plain_rows

    def _decoder(self, schema_id: int) -> Decoder | None:
        if schema_id not in self._decoders:
            try:
                self._decoders[schema_id] = Decoder(self.registry.schema(schema_id))
            except ErrataError as error:  # the schema is unknown, or nested like that of reports
                self._decoders[schema_id] = str(error)
        decoder = self._decoders[schema_id]
        return decoder if isinstance(decoder, Decoder) else None


def rows_of(decoder: Decoder, frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield decoded rows as nested plain values."""
    columns: dict[str, list[Any]] = {}
    inside: dict[str, list[Leaf]] = {}
    is_present: dict[str, list[bool]] = {}
    for field in decoder.layout:
        if isinstance(field, Nested):
            inside[field.name] = [leaf for leaf in field.leaves if isinstance(leaf, Leaf)]
            is_present[field.name] = [True] * frame.height
            if field.null_at is not None:
                is_present[field.name] = frame[field.name].to_list()
        leaves = inside.get(field.name, [field] if isinstance(field, Leaf) else [])
        columns |= {leaf.name: _values(leaf, frame[leaf.name]) for leaf in leaves}
    for row in range(frame.height):
        plain: dict[str, Any] = {}
        for field in decoder.layout:
            if isinstance(field, Leaf):
                plain[field.name] = columns[field.name][row]
            elif isinstance(field, Nested):
                side = {leaf.name: columns[leaf.name][row] for leaf in inside[field.name]}
                short = {name.removeprefix(f"{field.name}."): side[name] for name in side}
                plain[field.name] = short if is_present[field.name][row] else None
        yield plain


def _values(leaf: Leaf, column: pl.Series) -> list[Any]:
    content = column.to_list()
    if leaf.symbols:
        return [None if value is None else leaf.symbols[value] for value in content]
    if leaf.logical == "decimal":
        return [
            None if value is None else _EXACT.scaleb(decimal.Decimal(value), -leaf.scale)
            for value in content
        ]
    if leaf.kind == "bytes":
        is_frame = leaf.name in _FRAMES
        return [None if value is None else _plain_bytes(value, is_frame) for value in content]
    return content


def _plain_bytes(value: bytes, is_frame: bool) -> Any:
    if is_frame and value:
        try:
            return unpack(value).to_dicts()
        except BlockError:
            pass
    return as_text(value)


def _report(body: bytes) -> dict[str, Any] | None:
    try:
        report = reports.decode(body)
    except reports.ReportError:
        return None
    return {
        **vars(report),
        "committed": {str(attempt): epoch for attempt, epoch in report.committed.items()},
        "ends": [[*place, *end] for place, end in report.ends.items()],
        "resume": [[*place, offset] for place, offset in report.resume.items()],
        "floors": [floor._asdict() for floor in report.floors],
    }


def _unframed(value: bytes) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return as_text(value)


def as_text(value: bytes) -> str | dict[str, str]:
    r"""Return bytes as text, or as base64 if they are not text.

    Example:
        >>> as_text(b"IBM"), as_text(b"\xff")
        ('IBM', {'base64': '/w=='})
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
