"""Records of a source in Protobuf, for revisions that are sent by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any

import polars as pl

from errata.processors.envelopes import protobuf_schema
from errata.processors.envelopes.protobuf_schema import (
    BYTES_DECIMAL,
    DATE,
    TEXT_DECIMAL,
    TIMESTAMP,
    WRAPPERS,
)
from errata.processors.plan.topology import Source
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.arc import visible
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.topics.registry import PROTOBUF, NotAvroError, Registry

_PER_SECOND = {"timestamp-millis": 1_000, "timestamp-micros": 1_000_000}
_OPS = {"native": frames.OPS, "debezium": ("c", "d", "u")}


class NoMessageError(ErrataError):
    """The registry's schema has no message for the revisions of a source."""


def values(
    source: Source, revisions: pl.DataFrame, *, envelope: str, registry: Registry, time_ms: int
) -> list[bytes]:
    """Return the values of revisions' records: messages of the topic's latest Protobuf schema.

    A delete has none in the envelope ``upsert``.

    Args:
        source: The source whose topic the records are for.
        revisions: Revisions of its arc.
        envelope: ``upsert``, ``native`` or ``debezium``.
        registry: Has the schema, under ``<topic>-value``; its first message is the record.
        time_ms: The time of a Debezium record.

    Raises:
        NoMessageError: If there is no such schema, or it lacks a field.
    """
    schema_id, message = _latest(source, registry)
    make = import_module("google.protobuf.message_factory").GetMessageClass(message)
    arc, revisions = source.arc, visible(source.arc, revisions)
    kinds = {name: arc.fields[name] for name in arc.visible}
    sides = {
        side: frames.side(revisions, prefix, list(kinds)).rows(named=True)
        for side, prefix in (("before", frames.BEFORE), ("after", frames.AFTER))
    }
    found: list[bytes] = []
    for op, before, after in zip(revisions["op"], sides["before"], sides["after"], strict=True):
        record = make()
        if envelope == "upsert":
            if op == frames.DELETE:
                continue
            _fill(record, after, kinds)
        else:
            _set(record, "op", _OPS[envelope][op], FieldType("string"))
            if "ts_ms" in message.fields_by_name:
                _set(record, "ts_ms", time_ms, FieldType("long"))
            for side, row, absent in (
                ("before", before, frames.INSERT),
                ("after", after, frames.DELETE),
            ):
                if op != absent:
                    getattr(record, side).SetInParent()
                    _fill(getattr(record, side), row, kinds)
        found.append(framing.head(schema_id) + b"\0" + record.SerializeToString())
    return found


def _latest(source: Source, registry: Registry) -> tuple[int, Any]:
    """Return the id of the topic's latest schema, and its first message."""
    subject = f"{source.topic}-value"
    need = (
        f"source {source.arc.name!r}: sending needs a Protobuf schema of subject {subject!r}, found"
    )
    try:
        latest = registry.latest(subject)
    except NotAvroError as error:
        if error.kind == PROTOBUF and error.schema_id is not None:
            return error.schema_id, _first(error.text, tuple(error.imports.items()))
        raise NoMessageError(f"{need} one of kind {error.kind}; register it") from error
    raise NoMessageError(f"{need} {'none' if latest is None else 'one of Avro'}; register it")


@cache
def _first(text: str, imports: tuple[tuple[str, str], ...]) -> Any:
    """Return the first message of a schema; compiling it takes some 50 ms."""
    _, message = next(protobuf_schema.messages(protobuf_schema.compiled(text, dict(imports))))
    return message


def _fill(message: Any, row: dict[str, Any], kinds: dict[str, FieldType]) -> None:
    for name, kind in kinds.items():
        if row[name] is not None:
            _set(message, name, row[name], kind)


def _set(message: Any, name: str, value: Any, kind: FieldType) -> None:
    """Set a field to a value of physical type; see `protobuf_schema` for what stands for what."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise NoMessageError(f"message {message.DESCRIPTOR.full_name} has no field {name!r}")
    target = "" if field.message_type is None else field.message_type.full_name
    part: Any = getattr(message, name) if target else None
    try:
        if target == TIMESTAMP:
            seconds, rest = divmod(value, _PER_SECOND[kind.kind])
            part.seconds, part.nanos = seconds, rest * (1_000_000_000 // _PER_SECOND[kind.kind])
            part.SetInParent()
        elif target == DATE:
            day = _day(value)
            part.year, part.month, part.day = day.year, day.month, day.day
        elif target == BYTES_DECIMAL:
            part.value = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
            part.precision, part.scale = kind.precision, kind.scale
        elif target in WRAPPERS | {TEXT_DECIMAL}:
            inner = part.DESCRIPTOR.fields_by_name["value"]
            part.value = _plain(inner, value, kind)
            part.SetInParent()
        else:
            setattr(message, name, _plain(field, value, kind))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise NoMessageError(
            f"field {name!r} of message {message.DESCRIPTOR.full_name} can't hold a value of type "
            f"{kind.required}: {error}"
        ) from None


def _plain(field: Any, value: Any, kind: FieldType) -> Any:
    if field.type == field.TYPE_ENUM:
        return field.enum_type.values_by_name[value].number
    if field.type != field.TYPE_STRING:
        return value
    if kind.kind == "decimal":
        return format(Decimal(value).scaleb(-kind.scale), "f")
    if kind.kind == "date":
        return _day(value).isoformat()
    if kind.kind in _PER_SECOND:
        micros = value * (1_000_000 // _PER_SECOND[kind.kind])
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
    return value


def _day(days: int) -> date:
    return date(1970, 1, 1) + timedelta(days=days)
