"""Encodes a revision as records of a user's topic, in its source's envelope and format."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import polars as pl

from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.source import Source
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields
from errata.topics.registry import Registry

Record = tuple[bytes, bytes | None]


class NoSuchRecordError(ErrataError):
    """A source's envelope has no record for the revision."""


def declared(source: Source) -> Fields:
    """Return the declared fields of a source, which its records have."""
    return {name: source.arc.fields[name] for name in source.arc.visible}


def source_records(
    source: Source, revision: pl.DataFrame, *, registry: Registry, time_ms: int
) -> list[Record]:
    """Return keys and values of the records for which a source's ingest emits a revision.

    The key is the identity. There is one record; after a delete of Debezium there is a tombstone,
    too. Avro schemas are registered under the topic's subjects, as producers do.

    Args:
        source: The source whose topic the records are for.
        revision: One revision of the source's arc.
        registry: The registry for Avro schemas.
        time_ms: The time of a Debezium record.

    Raises:
        NoSuchRecordError: If the revision is a delete, and the envelope is ``append``.
    """
    envelope, form = source.envelope, source.format
    if envelope == "append":
        if revision["op"][0] == frames.DELETE:
            raise NoSuchRecordError(
                f"source {source.arc.name!r} has the envelope 'append', which has no records that "
                "delete; give the tuple other values with a replace, or declare another envelope"
            )
        envelope = "upsert"
    if form == "csv":
        records = source_records(
            replace(source, format="json"), revision, registry=registry, time_ms=time_ms
        )
        return [(key, value and _csv_line(json.loads(value, **_DIGITS))) for key, value in records]
    outgoing = Outgoing(source.arc, source.topic, envelope, form, registry)
    keys, values = outgoing.encode(revision, epoch=0, time_ms=time_ms)
    return list(zip(keys, values, strict=True))


class _Digits(str):
    """A number with its digits as JSON has them."""


_DIGITS: dict[str, Any] = {"parse_int": _Digits, "parse_float": _Digits}


def _csv_line(content: dict[str, Any]) -> bytes:
    return ",".join(map(_cell, content.values())).encode()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return json.dumps(value)
