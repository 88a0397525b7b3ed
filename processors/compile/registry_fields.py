"""Completes sources with fields and identities from the schema registry."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from errata.processors.compile import json_schema
from errata.processors.compile.json_schema import NoObjectSchemaError
from errata.processors.declare import declarations as declared
from errata.processors.declare.declarations import NAME
from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.declare.network import Network
from errata.processors.envelopes import protobuf_schema
from errata.processors.envelopes.connect import MEANINGS, NANOS, VARIABLE, ZONED
from errata.processors.envelopes.protobuf_schema import ProtobufSchemaError
from errata.schemas.arc import HIDDEN_PREFIX
from errata.schemas.errors import ErrataError
from errata.schemas.fields import MAX_PRECISION, PHYSICAL, FieldType
from errata.schemas.layout import Leaf, Nested, UnsupportedSchemaError, layout_of
from errata.topics.registry import PROTOBUF, NotAvroError, Registry

_LOG = logging.getLogger("errata.network")
_AFTER = "after"
JSON_SCHEMA = "JSON"
"""How registries name the kind of a JSON Schema."""
_SIDED = ("native", "debezium")
_KINDS = {NANOS: "timestamp-micros", ZONED: "timestamp-micros"}


class _UnresolvedError(ErrataError):
    """A source can't be completed: what it needs, what was found, and the remedy."""

    def __init__(self, need: str, actual: str, remedy: str) -> None:
        self.parts = need, actual, remedy
        super().__init__(need)


def resolve(network: Network, registry: Registry) -> Network:
    """Return a network whose sources all have fields and an identity.

    Fields are those of the latest ``<topic>-value`` schema, or of its record ``after`` if records
    are native or Debezium's; fields that Errata can't hold are skipped, with a warning. The
    identity has the fields of the latest ``<topic>-key`` schema. Schemas are Avro's; of records in
    JSON they are JSON Schemas, of records in Protobuf the first message of a file. Declared fields
    and identities are not looked up.

    Args:
        network: The network as declared.
        registry: Holds the users' schemas.

    Raises:
        NetworkError: If a source can't be completed.
        ClusterError: If the registry gives no answer.
    """
    declarations, faults = dict(network.declarations), []
    for name, box in network.declarations.items():
        if isinstance(box, declared.Source) and (box.fields is None or box.identity is None):
            try:
                declarations[name] = _completed(box, registry)
            except _UnresolvedError as error:
                faults.append(Fault(name, *error.parts, box.place))
    if faults:
        raise NetworkError(network.name, faults)
    return replace(network, declarations=declarations)


def _completed(source: declared.Source, registry: Registry) -> declared.Source:
    fields = source.fields
    if fields is None:
        fields = _fields(source, registry)
    if source.identity is not None:
        identity = tuple(source.identity)
        missing: dict[str, FieldType] = {}
    else:
        subject = f"{source.topic}-key"
        key = _record(registry, subject, source, "identity", 'identity=["..."]')
        identity = tuple(key)
        missing = {name: kind for name, kind in key.items() if name not in fields}
    if source.fields is None:
        named = {name: kind.required for name, kind in fields.items() if name in identity}
        fields = {**missing, **fields, **named}
    return replace(source, fields=fields, identity=identity)


def _fields(source: declared.Source, registry: Registry) -> dict[str, FieldType]:
    remedy = 'fields={"...": "..."}'
    if source.format == "csv":
        raise _UnresolvedError("fields", "none, and format csv has no schema", f"declare {remedy}")
    return _record(registry, f"{source.topic}-value", source, "fields", remedy)


def _record(
    registry: Registry, subject: str, source: declared.Source, what: str, remedy: str
) -> dict[str, FieldType]:
    """Return the fields of the latest schema of a subject, for tuples or for keys."""
    need = f"{what}, declared or by a record schema of subject {subject!r}"
    inside = _AFTER if what == "fields" and source.envelope in _SIDED else ""
    try:
        latest = registry.latest(subject)
        if latest is None:
            actual = "no such subject in the registry"
            raise _UnresolvedError(need, actual, f"register its schema, or declare {remedy}")
        if source.format == "json" or (source.format == "protobuf" and what == "fields"):
            actual = f"a schema of Avro, but format {source.format}"
            raise _UnresolvedError(need, actual, f"declare {remedy}")
        fields = fields_of(latest[1], subject, inside=inside)
    except NotAvroError as error:
        if (source.format, error.kind) == ("json", JSON_SCHEMA):
            fields = _of_json_schema(error.text, subject, inside, need, remedy)
        elif (source.format, error.kind) == ("protobuf", PROTOBUF):
            fields = _of_protobuf(error, subject, inside, need, remedy)
        else:
            raise _UnresolvedError(need, str(error), f"declare {remedy}") from error
    except UnsupportedSchemaError as error:
        raise _UnresolvedError(need, str(error), f"declare {remedy}") from error
    if not fields:
        raise _UnresolvedError(need, "a schema without such fields", f"declare {remedy}")
    return fields


def _of_json_schema(
    text: str, subject: str, inside: str, need: str, remedy: str
) -> dict[str, FieldType]:
    try:
        return json_schema.fields_of(json.loads(text), subject, inside=inside)
    except (NoObjectSchemaError, ValueError, RecursionError) as error:
        raise _UnresolvedError(need, str(error), f"declare {remedy}") from error


def _of_protobuf(
    schema: NotAvroError, subject: str, inside: str, need: str, remedy: str
) -> dict[str, FieldType]:
    """Return the fields of the first message of a Protobuf file."""
    try:
        file = protobuf_schema.compiled(schema.text, schema.imports)
        _, message = next(protobuf_schema.messages(file))
        return fields_of(protobuf_schema.avro_schema(message), subject, inside=inside)
    except (ProtobufSchemaError, StopIteration) as error:
        actual = str(error) or "a Protobuf schema without a message"
        raise _UnresolvedError(need, actual, f"declare {remedy}") from error


def fields_of(schema: Any, subject: str, *, inside: str = "") -> dict[str, FieldType]:
    """Return the fields of an Avro record that a source can have; warns about the others.

    Args:
        schema: The record's schema.
        subject: Its subject, for the warning.
        inside: Name of a nested record whose fields to return; "": the record itself.

    Raises:
        UnsupportedSchemaError: If it is malformed, or no record.

    Example:
        >>> fields = [{"name": "id", "type": "long"}, {"name": "s", "type": ["null", "string"]}]
        >>> found = fields_of({"type": "record", "name": "T", "fields": fields}, "t-value")
        >>> {name: str(kind) for name, kind in found.items()}
        {'id': 'long', 's': 'string?'}
    """
    prefix = f"{inside}." if inside else ""
    fields: dict[str, FieldType] = {}
    for column in _columns(schema, inside):
        name = column.removeprefix(prefix)
        try:
            kind = _kind(_leaf(schema, column))
        except UnsupportedSchemaError as error:
            kind, why = None, str(error)
        else:
            why = "no type of Errata's holds it"
        if kind is None or not NAME.fullmatch(name) or name.startswith(HIDDEN_PREFIX):
            why = why if kind is None else "a field can't have such a name"
            _LOG.warning("subject '%s': field %r is left out: %s", subject, name, why)
        else:
            fields[name] = kind
    return fields


def _columns(schema: Any, inside: str) -> list[str]:
    """Return the names of a record's fields, as columns."""
    # no field has an empty name: all fields are skipped, and skipped fields are listed by name
    layout = layout_of(schema, wanted={f"{inside}."} if inside else ())
    if not inside:
        return [part.name for part in layout]
    nested = (part for part in layout if isinstance(part, Nested) and part.name == inside)
    return [leaf.name for part in nested for leaf in part.leaves]


def _leaf(schema: Any, column: str) -> Leaf | None:
    parts = [
        part
        for outer in layout_of(schema, wanted={column})
        for part in (outer.leaves if isinstance(outer, Nested) else (outer,))
    ]
    return next((part for part in parts if isinstance(part, Leaf) and part.name == column), None)


def _kind(leaf: Leaf | None) -> FieldType | None:
    """Return the type that holds a writer's field; None if there is none."""
    if leaf is None or leaf.kind in ("null", VARIABLE):  # VARIABLE: each value has its own scale
        return None
    optional = leaf.null_at is not None
    if leaf.logical == "decimal":
        return FieldType("decimal", min(leaf.precision, MAX_PRECISION), leaf.scale, optional)
    meaning = MEANINGS.get(leaf.semantic, leaf.logical)
    kind = _KINDS.get(meaning, meaning) or leaf.kind
    kind = "string" if kind == "enum" else kind
    return FieldType(kind, optional=optional) if kind in PHYSICAL else None
