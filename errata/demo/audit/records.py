"""Reads the committed records of topics as a plain consumer, and decodes them.

A record is committed if its transaction is, and if the report of its task covers it. Schemas come
from a topic or from a schema registry.
"""

from __future__ import annotations

import io
import json
import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import fastavro
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

SCHEMAS = "_errata_schemas"
"""The topic with the schemas if no registry is used."""
ENDED = 2**62
"""The watermark of a source that has ended."""
_TIMEOUT_S = 10.0
_LOGGER = logging.getLogger("errata.kafka")  # the logger of all clients, which is quiet
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False


class AuditError(Exception):
    """The audit can't be made: a topic is missing, or results are not complete yet."""


@dataclass(frozen=True)
class Entry:
    """One committed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


Logs = dict[str, list[Entry]]
Kafka = Mapping[str, str | int]
"""librdkafka settings."""


def read(kafka: Kafka, topics: Sequence[str], *, limit_s: float = 30.0) -> Logs:
    """Return all committed records of some topics, each partition in log order.

    Args:
        kafka: librdkafka settings.
        topics: The topics.
        limit_s: How long reading to the ends may take.

    Raises:
        AuditError: If a topic is missing, or a log's end is not reached in time.
    """
    consumer = Consumer(
        {
            **kafka,
            "group.id": "audit",  # required by the client, never used
            "logger": _LOGGER,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        unread = {(t, p) for t in topics for p in _partitions(consumer, t)}
        places = sorted(unread)
        deadline, last_error = monotonic() + limit_s, ""
        ends = {place: _end(consumer, place, deadline) for place in places}
        consumer.assign([TopicPartition(*place, 0) for place in places])
        logs: Logs = {topic: [] for topic in topics}
        while unread:
            for message in consumer.consume(10_000, 0.1):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    entry = Entry(place[1], message.offset(), message.key(), message.value())
                    logs[place[0]].append(entry)
                elif error.code() != KafkaError._PARTITION_EOF:
                    last_error = f" ({error.str()})"  # most errors are temporary
                elif message.offset() >= ends[place]:
                    unread.discard(place)
            if monotonic() > deadline:
                left = ", ".join(f"{topic} {partition}" for topic, partition in sorted(unread))
                raise AuditError(f"not read to the end within {limit_s:g} s{last_error}: {left}")
        return logs
    except KafkaException as error:
        servers = kafka["bootstrap.servers"]
        raise AuditError(f"{servers} can't be read: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise AuditError(f"topic {topic!r} is needed: {metadata.error.str()}")
    return list(metadata.partitions)


def _end(consumer: Consumer, place: tuple[str, int], deadline: float) -> int:
    """Return the last stable offset; a newly created topic may need a moment."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(*place), timeout=5.0)[1])
        except KafkaException:
            if monotonic() > deadline:
                raise


class Schemas:
    """Decodes framed Avro.

    Args:
        find: Returns the schema of an id, None if there is none; called once for each.
    """

    def __init__(self, find: Callable[[int], Any]) -> None:
        self._find = find
        self._parsed: dict[int, Any] = {}

    def decode(self, value: bytes) -> Any:
        """Return the content of a value, decoded with its writer's schema.

        Raises:
            ValueError: If it is not framed, its schema is unknown, or it can't be decoded.
        """
        if len(value) < 5 or value[0] != 0:
            raise ValueError("not framed")
        schema = self._schema(int.from_bytes(value[1:5], "big"))
        try:
            return fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        except (EOFError, IndexError, TypeError, StopIteration, OverflowError, struct.error) as e:
            raise ValueError(f"not of its schema: {e}") from e

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self._parsed:
            schema = self._find(schema_id)
            self._parsed[schema_id] = None if schema is None else fastavro.parse_schema(schema)
        if self._parsed[schema_id] is None:
            raise ValueError(f"schema {schema_id} is not in the registry")
        return self._parsed[schema_id]


def schemas_of_topic(entries: Iterable[Entry]) -> Schemas:
    """Return the schemas in a topic's records; of two with the same id the first counts."""
    schemas: dict[int, Any] = {}
    for entry in entries:
        record = json.loads(entry.value or b"{}")
        if record:
            schemas.setdefault(record["id"], record["schema"])
    return Schemas(schemas.get)


def schemas_of_registry(url: str) -> Schemas:
    """Return the schemas of a registry with Confluent's API.

    Their `decode` raises `AuditError` if the registry does not respond.
    """

    def find(schema_id: int) -> Any:
        try:
            with urlopen(f"{url}/schemas/ids/{schema_id}", timeout=_TIMEOUT_S) as response:
                return json.loads(json.load(response)["schema"])
        except HTTPError as error:
            if error.code == 404:
                return None
            raise AuditError(f"schema {schema_id} can't be read from {url}: {error}") from None
        except OSError as error:
            raise AuditError(f"no schema registry responds at {url}: {error}") from None

    return Schemas(find)


class Reports:
    """The newest report of each task.

    Args:
        entries: The records of the progress topic.
        schemas: The schemas that decode them.
    """

    def __init__(self, entries: Iterable[Entry], schemas: Schemas) -> None:
        self.newest: dict[str, dict[str, Any]] = {}
        for entry in entries:
            if entry.value is None:
                continue
            report = schemas.decode(entry.value)
            known = self.newest.get(report["task"])
            if known is None or _age(report) >= _age(known):
                self.newest[report["task"]] = report

    def covers(self, record: dict[str, Any]) -> bool:
        """Return whether the (attempt, epoch) of a record was committed by its task."""
        report = self.newest.get(record["task"], {"committed": []})
        last = {c["attempt"]: c["epoch"] for c in report["committed"]}
        return bool(record["epoch"] <= last.get(record["attempt"], -1))

    def committed(
        self, entries: Iterable[Entry], schemas: Schemas
    ) -> Iterator[tuple[Entry, dict[str, Any]]]:
        """Yield the committed records, decoded; exact copies count once."""
        seen = set()
        for entry in entries:
            if entry.value is None:
                continue  # a tombstone: a delete comes before it
            record = schemas.decode(entry.value)
            copy = (entry.partition, entry.key, entry.value)
            if self.covers(record) and (entry.key is None or copy not in seen):
                seen.add(copy)
                yield entry, record

    def require_end(self, tasks: Iterable[str]) -> None:
        """Check that these tasks have seen the end of the source.

        Raises:
            AuditError: If one has not: the results are not complete yet.
        """
        unfinished = [
            t for t in tasks if self.newest.get(t, {"watermark": -1})["watermark"] < ENDED
        ]
        if unfinished:
            raise AuditError(
                f"the end of the source has not been processed by {', '.join(unfinished)}; declare "
                "it with `errata end`, and wait"
            )


def _age(report: dict[str, Any]) -> tuple[int, int]:
    return report["attempt"], report["done"]
