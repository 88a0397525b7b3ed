"""The Avro schemas that Errata writes: an arc's tuples, its keys and its revisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from errata.schemas.fields import Fields
from errata.schemas.revisions import OPS

_NAMESPACE = "errata"


def namespace(arc_name: str) -> str:
    """Return the namespace of an arc's schemas; arc names may have hyphens, Avro's may not.

    Example:
        >>> namespace("sums-sink.exchange")
        'errata.sums_sink.exchange'
    """
    return f"{_NAMESPACE}.{arc_name.replace('-', '_')}"


def tuple_schema(name: str, fields: Fields) -> dict[str, Any]:
    """Return the schema of a flat record of these fields, in their order.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> tuple_schema("Tuple", {"n": FieldType.parse("long?")})["fields"]
        [{'name': 'n', 'type': ['null', 'long'], 'default': None}]
    """
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": kind.avro} | ({"default": None} if kind.optional else {})
            for field, kind in fields.items()
        ],
    }


def key_schema(arc_name: str, fields: Fields, identity: Sequence[str]) -> dict[str, Any]:
    """Return the schema of an arc's record keys: the identity fields, in the order of identity."""
    named = {name: fields[name] for name in identity}
    return tuple_schema("Key", named) | {"namespace": namespace(arc_name)}


def revision_schema(arc_name: str, fields: Fields) -> dict[str, Any]:
    """Return the schema of an arc's revisions; the tuple type is named once.

    A null side differs from a side whose fields are all null. Enum symbols are in the order of
    `schemas.revisions.OPS`, so that an op is its index. See ``docs/protocol.md#2-revisions``.
    """
    return {
        "type": "record",
        "name": "Revision",
        "namespace": namespace(arc_name),
        "fields": [
            {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": list(OPS)}},
            {"name": "before", "type": ["null", tuple_schema("Tuple", fields)], "default": None},
            {"name": "after", "type": ["null", "Tuple"], "default": None},
            {"name": "task", "type": "string"},
            {"name": "attempt", "type": "long"},
            {"name": "epoch", "type": "long"},
        ],
    }
