"""The meanings of Kafka Connect's and Debezium's type names.

A value is sent as a plain integer or text. Its schema holds the type name: in Avro as
``connect.name`` or a logical type, in JSON in the schema block that Connect's converter puts in
front of the payload (`Block`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl

from errata.schemas.fields import FieldType
from errata.schemas.layout import CONNECT_DECIMAL, VARIABLE_DECIMAL

_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."

DECIMAL, VARIABLE, ZONED, NANOS = "decimal", "variable-decimal", "zoned", "timestamp-nanos"

LOOSE = "Protobuf"
"""Semantic of the texts and whole numbers of a schema language that has no types for decimals,
times and identifiers: they are read as those of JSON are."""

MEANINGS = {
    CONNECT_DECIMAL: DECIMAL,
    VARIABLE_DECIMAL: VARIABLE,
    _CONNECT + "Date": "date",
    _CONNECT + "Timestamp": "timestamp-millis",
    _DEBEZIUM + "time.Date": "date",
    _DEBEZIUM + "time.Timestamp": "timestamp-millis",
    _DEBEZIUM + "time.MicroTimestamp": "timestamp-micros",
    _DEBEZIUM + "time.NanoTimestamp": NANOS,
    _DEBEZIUM + "time.ZonedTimestamp": ZONED,
    _DEBEZIUM + "data.Uuid": "uuid",
}
"""Other names are ignored: such a value has its plain type."""

_NANOS_PER = {"timestamp-millis": 1_000_000, "timestamp-micros": 1_000, NANOS: 1}
_MOST_MS = 253_402_300_799_999


def is_instant(meaning: str) -> bool:
    """Whether integers of this meaning are instants."""
    return meaning in _NANOS_PER


def convert_instants(values: pl.Series, meaning: str, kind: FieldType) -> pl.Series:
    """Convert instants to the unit of a type, truncating; null beyond the year 9999.

    Args:
        values: Int64.
        meaning: Their unit.
        kind: A timestamp type.

    Example:
        >>> kind = FieldType("timestamp-millis")
        >>> convert_instants(pl.Series([1_999]), "timestamp-micros", kind).to_list()
        [1]
    """
    source_nanos, target_nanos = _NANOS_PER[meaning], _NANOS_PER[kind.kind]
    if source_nanos <= target_nanos:
        return values // (target_nanos // source_nanos) if source_nanos < target_nanos else values
    fits = values.is_between(-_MOST_MS, _MOST_MS)
    return values.zip_with(fits.fill_null(False), values.clear(1)) * (source_nanos // target_nanos)


@dataclass(frozen=True)
class Block:
    """A schema block's description of the fields of a struct.

    Args:
        meanings: Meaning of the values by field, for fields with a known type name.
        scales: Digits after the point, by decimal field.
        structs: Fields that are structs themselves.
    """

    meanings: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[str, int] = field(default_factory=dict)
    structs: Mapping[str, Block] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: bytes) -> Block:
        """Read a schema block; parts that are no schema are ignored.

        Example:
            >>> Block.of(b'{"type": "struct", "fields": [{"field": "at", "type": "int64",'
            ...     b' "name": "io.debezium.time.MicroTimestamp"}]}').meanings
            {'at': 'timestamp-micros'}
        """
        return _block(msgspec.json.decode(schema))


def _block(schema: Any, depth: int = 0) -> Block:
    meanings: dict[str, str] = {}
    scales: dict[str, int] = {}
    structs: dict[str, Block] = {}
    for part in _list(schema, "fields"):
        name, meaning = part.get("field"), MEANINGS.get(str(part.get("name")))
        if not isinstance(name, str):
            continue
        if meaning is not None:
            meanings[name] = meaning
        if meaning == DECIMAL:
            scales[name] = _scale(part.get("parameters"))
        if part.get("type") == "struct" and depth == 0:
            structs[name] = _block(part, 1)
    return Block(meanings, scales, structs)


def _list(schema: Any, name: str) -> list[dict[str, Any]]:
    parts = schema.get(name) if isinstance(schema, dict) else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _scale(parameters: Any) -> int:
    text = parameters.get("scale") if isinstance(parameters, dict) else None
    try:
        return int(str(text)[:9])
    except ValueError:
        return 0
