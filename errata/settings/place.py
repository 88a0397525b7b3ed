"""Where a process works: its cluster, its registry, its state folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from errata.processors.tasks.shared import DEAD_LETTER
from errata.topics.admin import await_brokers
from errata.topics.kafka import KafkaCluster
from errata.topics.secrets import Hiding

DAY_MS = 86_400_000
WAIT_MS = 60_000

log = logging.getLogger("errata")


@dataclass(frozen=True)
class Place:
    """Where a process works.

    Args:
        kafka: librdkafka settings.
        state: Folder of local state: indexes and sweepers' copies.
        compaction_lag_ms: How long superseded records stay in connection points.
        registry: Settings of a schema registry's client; if empty, schemas are kept in a topic.
        on_error: What happens to tuples that boxes refuse: ``dead-letter``, or ``stop``.
        wait_ms: How long to wait at start for brokers that don't answer.
        listen: Host and port of health and metrics; None: no port.
    """

    kafka: Mapping[str, str | int]
    state: Path
    compaction_lag_ms: int = DAY_MS
    registry: Mapping[str, str | int] = field(default_factory=Hiding)
    on_error: str = DEAD_LETTER
    wait_ms: int = WAIT_MS
    listen: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        """Hide secrets when the settings are printed."""
        object.__setattr__(self, "kafka", Hiding(self.kafka))
        object.__setattr__(self, "registry", Hiding(self.registry))


def connect(place: Place) -> KafkaCluster:
    """Return the cluster, once a broker answers."""
    await_brokers(place.kafka, limit_s=place.wait_ms / 1000, say=log.warning)
    return KafkaCluster(place.kafka)
