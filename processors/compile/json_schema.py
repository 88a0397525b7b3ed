"""The fields of a JSON Schema that a source can have: of records in JSON, by a registry."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from errata.processors.declare.declarations import NAME
from errata.schemas.arc import HIDDEN_PREFIX
from errata.schemas.errors import ErrataError
from errata.schemas.fields import MAX_PRECISION, FieldType

_LOG = logging.getLogger("errata.network")
_PLAIN = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}
_FORMATS = {"date-time": "timestamp-millis", "date": "date", "uuid": "uuid"}
_CONNECT = {
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.Date": "date",
    "io.debezium.data.Uuid": "uuid",
}
"""Kafka Connect names the meaning of a number in the schema's title."""
_SMALL = {"int8", "int16", "int32"}


class NoObjectSchemaError(ErrataError):
    """A JSON Schema is malformed, or of something else than an object."""


def fields_of(schema: Any, subject: str, *, inside: str = "") -> dict[str, FieldType]:
    """Return the fields of a JSON Schema that a source can have; warns about the others.

    A field is optional if it may be null, or is not required.

    Args:
        schema: The schema of an object.
        subject: Its subject, for the warning.
        inside: Name of a property whose object has the fields; "": the object itself.

    Raises:
        NoObjectSchemaError: If it is malformed, or of no object.

    Example:
        >>> at = {"type": "string", "format": "date-time"}
        >>> schema = {"properties": {"id": {"type": "integer"}, "at": at}, "required": ["id"]}
        >>> {name: str(kind) for name, kind in fields_of(schema, "t-value").items()}
        {'id': 'long', 'at': 'timestamp-millis?'}
    """
    if inside:
        schema = _properties(schema).get(inside)
        schema, _ = _without_null(schema)
    required = schema.get("required") if isinstance(schema, Mapping) else None
    fields: dict[str, FieldType] = {}
    for name, each in _properties(schema).items():
        plain, may_be_null = _without_null(each)
        kind = _kind(plain)
        if kind is None or not NAME.fullmatch(name) or name.startswith(HIDDEN_PREFIX):
            why = "no type of Errata's holds it"
            why = why if kind is None else "a field can't have such a name"
            _LOG.warning("subject '%s': field %r is left out: %s", subject, name, why)
            continue
        is_required = isinstance(required, list) and name in required
        fields[name] = kind.nullable if may_be_null or not is_required else kind
    return fields


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        raise NoObjectSchemaError("a JSON Schema that is not of an object with properties")
    return {str(name): each for name, each in properties.items()}


def _without_null(schema: Any) -> tuple[Any, bool]:
    """Return the schema of a value that is not null, and whether it may be null."""
    if not isinstance(schema, Mapping):
        return None, False
    for word in ("oneOf", "anyOf"):
        if isinstance(schema.get(word), list):
            choices = [each for each in schema[word] if each != {"type": "null"}]
            has_null = len(choices) < len(schema[word])
            return (choices[0] if len(choices) == 1 else None), has_null
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        plain = {**schema, "type": others[0]} if len(others) == 1 else None
        return plain, "null" in kinds
    return schema, False


def _kind(schema: Any) -> FieldType | None:
    """Return the type that holds a value; None if there is none."""
    if not isinstance(schema, Mapping):
        return None
    title, kind = str(schema.get("title")), schema.get("type")
    if title == "org.apache.kafka.connect.data.Decimal":
        return _decimal(schema)
    if title in _CONNECT:
        return FieldType(_CONNECT[title])
    if kind == "string":
        return FieldType(_FORMATS.get(str(schema.get("format")), "string"))
    if kind == "integer" and schema.get("connect.type") in _SMALL:
        return FieldType("int")
    return FieldType(_PLAIN[kind]) if kind in _PLAIN else None


def _decimal(schema: Mapping[str, Any]) -> FieldType | None:
    given = schema.get("connect.parameters")
    parameters = given if isinstance(given, Mapping) else {}
    try:
        scale = int(parameters.get("scale", 0))
        precision = int(parameters.get("connect.decimal.precision", MAX_PRECISION))
    except (TypeError, ValueError):
        return None
    fits = 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision
    return FieldType("decimal", precision, scale) if fits else None
