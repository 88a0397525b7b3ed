"""A compiled source: a user's topic, and how it is ingested."""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.declare import declarations as declared
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Source:
    """A user's topic and how it is ingested.

    Args:
        arc: The arc that ingest writes.
        topic: The user's topic.
        envelope: ``append``, ``upsert``, ``debezium`` or ``native``.
        format: ``avro``, ``json`` or ``csv``.
        lateness_ms: How far the watermark stays behind the newest event time.
        idle_after_ms: Silence after which a partition counts as idle; None: never.
        partitions: Partitions of the arc; None: as many as the topic has.
        event_time: The expression of the arc's hidden event time, over the declared fields; None
            if a declared field is the event time.
        rekey: Whether records are first exchanged by identity.
        start: Where a first run begins: ``earliest``, ``latest`` or a record timestamp in ms.
    """

    arc: Arc
    topic: str
    envelope: str
    format: str
    lateness_ms: int
    idle_after_ms: int | None
    partitions: int | None
    event_time: str | None = None
    rekey: bool = False
    start: str | int = declared.EARLIEST
