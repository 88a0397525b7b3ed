"""The schemas that records refer to by id, kept in a compacted topic or in a registry server."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol

from errata.schemas.compatible import incompatibilities
from errata.schemas.errors import ErrataError
from errata.topics.cluster import (
    Cluster,
    ClusterError,
    MissingTopicError,
    Reader,
    Records,
    TopicPartition,
    catch_up,
)
from errata.topics.names import SCHEMAS_TOPIC

_SOURCE = TopicPartition(SCHEMAS_TOPIC, 0)
_LOG = logging.getLogger("errata.schemas")


class UnknownSchemaError(ErrataError):
    """A record refers to a schema that the registry does not have."""

    def __init__(self, schema_id: int, *, registry: str) -> None:
        self.schema_id = schema_id
        super().__init__(
            f"schema {schema_id} is not in {registry}; the record was written with another "
            "registry, or is not framed: check SCHEMA_REGISTRY_URL"
        )


class RegistryAwayError(ClusterError):
    """The registry does not answer at the moment: try again later."""


PROTOBUF = "PROTOBUF"
"""How registries name the kind of a Protobuf schema."""


class NotAvroError(ErrataError):
    """A schema of the registry is not an Avro schema.

    Attributes:
        kind: Its kind, as the registry names it: ``JSON``, ``PROTOBUF``.
        text: Its text.
        imports: Texts of the schemas that it refers to, also indirectly, by name.
        schema_id: Its id; None if that is not known.
    """

    def __init__(
        self,
        what: str,
        *,
        kind: str,
        text: str = "",
        imports: Mapping[str, str] | None = None,
        schema_id: int | None = None,
    ) -> None:
        self.kind, self.text, self.schema_id = kind, text, schema_id
        self.imports = dict(imports or {})
        super().__init__(
            f"{what} is of kind {kind}, but the declared format reads Avro; write the topic in "
            "Avro, or declare the source as protobuf, json or csv if its records are"
        )


NEW, SAME, COMPATIBLE, INCOMPATIBLE = "new", "same", "compatible", "incompatible"


@dataclass(frozen=True)
class Verdict:
    """What happens if a schema is registered under a subject.

    Args:
        subject: The subject.
        kind: ``new``: the subject has no schema yet. ``same``: the schema is registered.
            ``compatible``: it becomes the latest. ``incompatible``: it is refused.
        level: The compatibility level of a refusal, for example BACKWARD; "" without a refusal.
        reasons: Why it is refused.
    """

    subject: str
    kind: str
    level: str = ""
    reasons: tuple[str, ...] = ()


class Registry(Protocol):
    """Assigns ids to schemas, and returns schemas by id."""

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema; registers it under a subject if it is new there."""

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema.

        Raises:
            UnknownSchemaError: If no schema has this id.
            NotAvroError: If it is of another kind.
            RegistryAwayError: If the registry does not answer at the moment.
        """

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return the id and the schema last registered under a subject; None if there is none.

        Raises:
            NotAvroError: If it is of another kind.
        """


class JudgingRegistry(Registry, Protocol):
    """A `Registry` that checks what registering a schema would do, without registering it."""

    def judge(self, subject: str, schema: dict[str, Any]) -> Verdict:
        """Return what registering a schema under a subject would do.

        Raises:
            ClusterError: If the registry can't be used.
        """


class SchemaRegistry:
    """A `Registry` in the topic `_errata_schemas` (one partition, compacted).

    An id is a hash of the schema's content, so concurrent registrations agree. If two schemas have
    the same id, the first in the log keeps it; the other takes the next free one. A record whose id
    does not follow from its schema is skipped: the topic is compacted, so a foreign record may have
    replaced the one that was there. Whoever needs the replaced schema registers it again.

    Args:
        cluster: Holds the topic, which must exist.
        limit_s: How long reading to the end of the topic may take.

    Attributes:
        skipped: Offset by key of the last records that are skipped; a later record of the key, or
            its deletion, replaces one.
    """

    def __init__(self, cluster: Cluster, *, limit_s: float = 30.0) -> None:
        self._cluster = cluster
        self._limit_s = limit_s
        self._reader: Reader | None = None
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: set[tuple[str, int]] = set()
        self._latest: dict[str, int] = {}
        self.skipped: dict[bytes | None, int] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema; registers it under a subject if it is new there.

        Raises:
            ClusterError: If the topic can't be read or written.
        """
        known = self._known(subject, schema)
        if known is None:
            self._read()
            known = self._known(subject, schema)
        while known is None:
            schema_id = next(i for i in ids(schema) if self._schemas.get(i, schema) == schema)
            value = {"id": schema_id, "subject": subject, "schema": schema}
            self._cluster.send(
                SCHEMAS_TOPIC,
                partition=0,
                key=f"subject/{subject}/{schema_id}".encode(),
                value=json.dumps(value).encode(),
            )
            self._cluster.flush()  # raises if the write is refused
            self._await(subject, schema_id)
            known = self._known(subject, schema)  # None if another schema took the id meanwhile
        return known

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema; the topic is read to its end before the id counts as unknown."""
        if schema_id not in self._schemas:
            self._read()
        if schema_id not in self._schemas:
            raise UnknownSchemaError(schema_id, registry=f"topic '{SCHEMAS_TOPIC}'")
        return self._schemas[schema_id]

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return the id and the schema last registered under a subject; None if there is none."""
        with suppress(MissingTopicError):  # nothing is registered yet
            self._read()
        schema_id = self._latest.get(subject)
        return None if schema_id is None else (schema_id, self._schemas[schema_id])

    def judge(self, subject: str, schema: dict[str, Any]) -> Verdict:
        """Return what registering a schema would do: its readers must be able to read the latest.

        If the topic does not exist yet, every schema is new.
        """
        if not self._topic_exists():
            return Verdict(subject, NEW)
        latest = self.latest(subject)
        if self._known(subject, schema) is not None:
            return Verdict(subject, SAME)
        if latest is None:
            return Verdict(subject, NEW)
        reasons = tuple(incompatibilities(schema, latest[1]))
        if reasons:
            return Verdict(subject, INCOMPATIBLE, "BACKWARD", reasons)
        return Verdict(subject, COMPATIBLE)

    def _topic_exists(self) -> bool:
        try:
            return self._cluster.partitions(SCHEMAS_TOPIC) > 0
        except ClusterError:
            return False

    def close(self) -> None:
        """Close the reader; safe to call twice."""
        if self._reader is not None:
            self._reader.close()

    def _known(self, subject: str, schema: dict[str, Any]) -> int | None:
        for schema_id in ids(schema):
            existing = self._schemas.get(schema_id)
            if existing is None:
                return None
            if existing == schema:
                return schema_id if (subject, schema_id) in self._subjects else None
        return None

    def _await(self, subject: str, schema_id: int) -> None:
        """Read until the record just sent appears: all records before it have been read then."""
        for _attempt in range(100):
            self._read()
            if (subject, schema_id) in self._subjects:
                return
            assert self._reader is not None
            for records in self._reader.poll(timeout_s=self._limit_s / 100):
                self._take(records)
        raise ClusterError(
            f"the schema of subject '{subject}' was sent to topic '{SCHEMAS_TOPIC}', but can't be "
            f"read from it after {self._limit_s:g} s; see the brokers' logs"
        )

    def _read(self) -> None:
        if self._reader is None:
            self._reader = self._cluster.reader({_SOURCE: 0})
        for records in catch_up(self._cluster, self._reader, _SOURCE, limit_s=self._limit_s):
            self._take(records)

    def read(self) -> None:
        """Read the topic to its end, if it exists.

        Raises:
            ClusterError: If it can't be read.
        """
        if self._topic_exists():
            self._read()

    def _take(self, records: Records) -> None:
        skipped = 0
        for key, value, offset in zip(records.keys, records.values, records.offsets, strict=True):
            was_skipped = self.skipped.pop(key, None) is not None
            if was_skipped and value is None:
                continue  # deleted by whoever mended it
            try:
                entry = json.loads(value or b"")
                schema_id, subject, schema = entry["id"], entry["subject"], entry["schema"]
                is_entry = type(schema_id) is int and type(subject) is str and type(schema) is dict
                is_entry = is_entry and schema_id in islice(ids(schema), MOST_IDS)
            except (ValueError, TypeError, KeyError, RecursionError):
                is_entry = False
            if is_entry:
                self._schemas.setdefault(schema_id, schema)
                self._subjects.add((subject, schema_id))
                self._latest[subject] = schema_id
            else:
                skipped += 1
                self.skipped[key] = offset
        if skipped:
            _LOG.warning(
                "%d records in topic '%s' that are malformed, or of which the id does not follow "
                "from the schema, are skipped; the last is at offset %d",
                skipped,
                SCHEMAS_TOPIC,
                max(self.skipped.values()),
            )


MOST_IDS = 8
"""Ids that a schema may have: more than eight schemas never have one hash."""


def ids(schema: dict[str, Any]) -> Iterator[int]:
    """Yield the ids that a schema may have; the first is its own unless another schema has it.

    The first is the leading 31 bits of the SHA-256 of its canonical JSON; never 0.

    Example:
        >>> next(ids({"type": "string"})) == next(ids({"type": "string"}))
        True
    """
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    first = int.from_bytes(hashlib.sha256(canonical.encode()).digest()[:4]) >> 1
    return ((first + i) % 0x7FFFFFFF or 0x7FFFFFFF for i in count())
