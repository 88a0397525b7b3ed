"""Sources and records for the envelopes' tests: a registry in a dict, fastavro as the writer."""

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import fastavro

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.processors.envelopes.batch import Batch, Decoded
from errata.processors.envelopes.make import make
from errata.schemas import framing
from errata.schemas.fields import FieldType
from errata.topics.registry import UnknownSchemaError

FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "price": "decimal(9,2)",
    "size": "double?",
    "note": "string?",
}


class Registry:
    """Schemas by id, and ids by subject."""

    def __init__(self, schemas: Mapping[int, Any] | None = None) -> None:
        self.schemas = dict(schemas or {})
        self.subjects: dict[str, int] = {}

    def register(self, subject: str, schema: Any) -> int:
        schema_id = next((i for i, s in self.schemas.items() if s == schema), 0)
        schema_id = schema_id or max(self.schemas, default=0) + 1
        self.schemas[schema_id] = schema
        self.subjects[subject] = schema_id
        return schema_id

    def schema(self, schema_id: int) -> Any:
        if schema_id not in self.schemas:
            raise UnknownSchemaError(schema_id, registry="the registry")
        return self.schemas[schema_id]

    def latest(self, subject: str) -> tuple[int, Any] | None:
        schema_id = self.subjects.get(subject)
        return None if schema_id is None else (schema_id, self.schemas[schema_id])


def source(envelope: str, format: str, fields=None, identity=("key",), event_time="at"):
    return _source(envelope, format, tuple((fields or FIELDS).items()), identity, event_time)


@cache
def _source(envelope, format, fields, identity, event_time):
    net = Network("t")
    net.source(
        "s",
        envelope=envelope,
        format=format,
        fields=dict(fields),
        identity=list(identity),
        event_time=event_time,
        keep="1d",
    )
    return compile_network(net).topology.sources["s"]


def decode(
    envelope: str,
    format: str,
    records: Sequence[bytes | tuple[bytes | None, bytes | None] | None],
    *,
    registry: Registry | None = None,
    **of: Any,
) -> Decoded:
    """Decode values, or pairs of key and value."""
    pairs = [r if isinstance(r, tuple) else (None, r) for r in records]
    batch = Batch([value for _, value in pairs], [key for key, _ in pairs])
    return make(source(envelope, format, **of), registry or Registry()).decode(batch)


def rows(found: Decoded) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return ops, befores and afters, without nulls, in physical types."""
    told = []
    for row in found.frame.iter_rows(named=True):
        sides = (
            {n.removeprefix(p): v for n, v in row.items() if n.startswith(p) and v is not None}
            for p in ("before.", "after.")
        )
        op = row["op"]
        told.append(("?" if op is None else "idr"[op], *sides))
    return told


def why(found: Decoded) -> list[tuple[int, str]]:
    return sorted((refusal.row, refusal.detail) for refusal in found.refused)


def avro(schema: Any, record: Any, schema_id: int = 1) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return framing.frame([out.getvalue()], schema_id)[0]


def record(fields: Mapping[str, Any], name: str = "T", **more: Any) -> dict[str, Any]:
    members = [{"name": n, "type": of} for n, of in fields.items()]
    return {"type": "record", "name": name, "fields": members, **more}


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def kinds(fields: Mapping[str, str]) -> dict[str, FieldType]:
    return {name: FieldType.parse(kind) for name, kind in fields.items()}
