"""Reads topics as a plain consumer: only committed records."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_REACH_S = 10.0
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
        missing = {(t, p) for t in topics for p in _partitions(consumer, t)}
        places = sorted(missing)
        deadline, trouble = monotonic() + limit_s, ""
        ends = {place: _end(consumer, place, deadline) for place in places}
        consumer.assign([TopicPartition(*place, 0) for place in places])
        logs: Logs = {topic: [] for topic in topics}
        while missing:
            for message in consumer.consume(10_000, 0.1):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    entry = Entry(place[1], message.offset(), message.key(), message.value())
                    logs[place[0]].append(entry)
                elif error.code() != KafkaError._PARTITION_EOF:
                    trouble = f" ({error.str()})"  # most errors are temporary
                elif message.offset() >= ends[place]:
                    missing.discard(place)
            if monotonic() > deadline:
                left = ", ".join(f"{topic} {partition}" for topic, partition in sorted(missing))
                raise AuditError(f"not read to the end within {limit_s:g} s{trouble}: {left}")
        return logs
    except KafkaException as error:
        servers = kafka["bootstrap.servers"]
        raise AuditError(f"{servers} can't be read: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_REACH_S).topics[topic]
    if found.error is not None:
        raise AuditError(f"topic {topic!r} is needed: {found.error.str()}")
    return list(found.partitions)


def _end(consumer: Consumer, place: tuple[str, int], deadline: float) -> int:
    """Return the last stable offset; a newly created topic may need a moment."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(*place), timeout=5.0)[1])
        except KafkaException:
            if monotonic() > deadline:
                raise
