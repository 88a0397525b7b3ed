"""Records of any topic of Errata as plain values."""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from errata.processors.wire import report as reports
from errata.processors.wire.replay import BlockError, unpack
from errata.schemas import framing
from errata.schemas.decode import Decoder
from errata.schemas.errors import ErrataError
from errata.schemas.layout import Leaf, Nested
from errata.topics.cluster import Records
from errata.topics.registry import Registry

_EXACT = decimal.Context(prec=60)
_FRAMES = {"ranges", "tuples"}
"""Fields of requests and replies that hold a packed frame (`processors.wire.replay.pack`)."""


class PlainDecoder:
    """Decodes keys and values: framed Avro by its schema, a report, JSON, text, or else base64.

    Args:
        registry: The registry with their schemas.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._decoders: dict[int, Decoder | str] = {}

    def records(self, found: Records) -> list[dict[str, Any]]:
        """Return partition, offset, time, key and value of each record."""
        return [
            {
                "partition": found.source.partition,
                "offset": offset,
                "time_ms": time_ms,
                "key": key,
                "value": value,
            }
            for offset, time_ms, key, value in zip(
                found.offsets,
                found.times_ms,
                self.decode(found.keys),
                self.decode(found.values),
                strict=True,
            )
        ]

    def decode(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return each value as plain data; ``{"base64": ...}`` if it has none of the forms."""
        there = [(place, value) for place, value in enumerate(values) if value is not None]
        found: list[Any] = [None] * len(values)
        taken = framing.unframe([value for _, value in there])
        by_schema: dict[int, list[int]] = {}
        for row, schema_id in enumerate(taken.schema_ids.tolist()):
            by_schema.setdefault(schema_id, []).append(row)
        for schema_id, rows in by_schema.items():
            plain = self._of_schema(schema_id, [taken.bodies[row] for row in rows])
            for row, content in zip(rows, plain, strict=True):
                place, value = there[row]
                found[place] = content if content is not None else _unframed(value)
        return found

    def _of_schema(self, schema_id: int, bodies: list[bytes]) -> list[Any]:
        """Return the decoded records of one schema; None for each that can't be decoded."""
        decoder = None if schema_id == framing.UNFRAMED else self._decoder(schema_id)
        if decoder is None:
            return [_report(body) for body in bodies]
        decoded = decoder.decode_each(bodies)
        found: list[Any] = [None] * len(bodies)
        for row, plain in zip(decoded.good.tolist(), rows_of(decoder, decoded.frame), strict=True):
            found[row] = plain
        return found

    def _decoder(self, schema_id: int) -> Decoder | None:
        if schema_id not in self._decoders:
            try:
                self._decoders[schema_id] = Decoder(self.registry.schema(schema_id))
            except ErrataError as error:  # the schema is unknown, or nested like that of reports
                self._decoders[schema_id] = str(error)
        found = self._decoders[schema_id]
        return found if isinstance(found, Decoder) else None


def rows_of(decoder: Decoder, frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield decoded rows as nested plain values."""
    columns: dict[str, list[Any]] = {}
    inside: dict[str, list[Leaf]] = {}
    there: dict[str, list[bool]] = {}
    for field in decoder.layout:
        if isinstance(field, Nested):
            inside[field.name] = [leaf for leaf in field.leaves if isinstance(leaf, Leaf)]
            there[field.name] = [True] * frame.height
            if field.null_at is not None:
                there[field.name] = frame[field.name].to_list()
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
                plain[field.name] = short if there[field.name][row] else None
        yield plain


def _values(leaf: Leaf, column: pl.Series) -> list[Any]:
    found = column.to_list()
    if leaf.symbols:
        return [None if value is None else leaf.symbols[value] for value in found]
    if leaf.logical == "decimal":
        return [
            None if value is None else _EXACT.scaleb(decimal.Decimal(value), -leaf.scale)
            for value in found
        ]
    if leaf.kind == "bytes":
        packed = leaf.name in _FRAMES
        return [None if value is None else _packed(value, packed) for value in found]
    return found


def _packed(value: bytes, is_frame: bool) -> Any:
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
