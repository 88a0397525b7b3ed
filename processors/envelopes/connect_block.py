"""The schema block that Kafka Connect's JSON converter puts in front of a payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from errata.processors.envelopes.meanings import DECIMAL, MEANINGS


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
    found = schema.get(name) if isinstance(schema, dict) else None
    return [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []


def _scale(parameters: Any) -> int:
    text = parameters.get("scale") if isinstance(parameters, dict) else None
    try:
        return int(str(text)[:9])
    except ValueError:
        return 0
