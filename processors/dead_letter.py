"""What was refused at ingest: the bytes verbatim, where they lay, and why."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import fastavro

UNDECODABLE = "undecodable"
UNKNOWN_IDENTITY = "unknown identity"
BAD_EVENT_TIME = "event time"
TOO_OLD = "older than keep"
TOO_LARGE = "too large"
TRUNCATE = "truncate"

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "DeadLetter",
    "namespace": "errata",
    "fields": [
        {"name": "task", "type": "string"},
        {"name": "attempt", "type": "long"},
        {"name": "epoch", "type": "long"},
        {"name": "reason", "type": "string"},
        {"name": "detail", "type": "string"},
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "time_ms", "type": "long"},
        {"name": "key", "type": ["null", "bytes"]},
        {"name": "value", "type": ["null", "bytes"]},
    ],
}
_PARSED = fastavro.parse_schema(SCHEMA)


@dataclass(frozen=True)
class DeadLetter:
    """One refused record.

    Args:
        task: The ingest task that refused it.
        attempt: Its life.
        epoch: The epoch in which it was refused.
        reason: One of a few kinds, for counting.
        detail: What was needed and what was found.
        topic: Where the record lies.
        partition: Where the record lies.
        offset: Where the record lies.
        time_ms: Its record timestamp.
        key: Its key, verbatim.
        value: Its value, verbatim.
    """

    task: str
    attempt: int
    epoch: int
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


def encode(letter: DeadLetter) -> bytes:
    """Return the Avro body of a dead letter."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, vars(letter))
    return out.getvalue()


def decode(body: bytes) -> DeadLetter:
    """Read the Avro body of a dead letter."""
    plain: Any = fastavro.schemaless_reader(io.BytesIO(body), _PARSED, None)
    return DeadLetter(**plain)
