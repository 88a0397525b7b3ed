"""What a process on an executor works with: its connection to a cluster, and ids of schemas.

Python workers outlive a task, and so does the connection. The driver has looked up the schemas'
ids: executors make no registry requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.plan import Plan
from errata.topics.cluster import Cluster
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import Registry, UnknownSchemaError
from errata.topics.registry_server import registry

_SMALL: dict[str, str | int] = {
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
    "queue.buffering.max.messages": 50_000,
    "queue.buffering.max.kbytes": 65_536,
}
"""What a client holds: an executor has several processes, each with its own clients."""


def connected(kafka: Mapping[str, str | int]) -> KafkaCluster:
    """Return this process's connection to a cluster.

    Args:
        kafka: librdkafka settings.

    Raises:
        ClusterError: If the cluster can't be used.
    """
    return _connected(frozenset(kafka.items()))


@cache
def _connected(kafka: frozenset[tuple[str, str | int]]) -> KafkaCluster:
    return KafkaCluster({**_SMALL, **dict(kafka)})


@dataclass
class Recorder:
    """A `Registry` that records the requests made to it.

    Args:
        registry: The registry that answers the requests.
    """

    registry: Registry
    ids: dict[str, int] = field(default_factory=dict)

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema; registers it under a subject if it is new there."""
        self.ids[subject] = self.registry.register(subject, schema)
        return self.ids[subject]

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema."""
        return self.registry.schema(schema_id)

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return the id and the schema last registered under a subject; None if there is none."""
        return self.registry.latest(subject)

    def look_up(self, plan: Plan, arcs: Iterable[str]) -> None:
        """Look up the schemas of some arcs of a plan."""
        for arc in arcs:
            ArcCodec(plan.topology.arcs[arc], plan.deployment.topic(arc), self)


@dataclass(frozen=True)
class Registered:
    """A `Registry` of the recorded ids.

    Args:
        ids: By subject.
    """

    ids: Mapping[str, int]

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema that was registered under a subject."""
        return self.ids[subject]

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Raise: only ids are known here."""
        raise UnknownSchemaError(schema_id, registry="what the driver looked up")

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return None: only ids are known here."""
        return None


@dataclass(frozen=True)
class ReadingRegistry(Registered):
    """A `Registry` of the recorded ids that looks the schemas of others' records up.

    Args:
        ids: By subject.
        schemas: Where it looks them up.
    """

    schemas: Registry

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema."""
        return self.schemas.schema(schema_id)


_SCHEMAS = WeakKeyDictionary[Cluster, Registry]()


def schemas(cluster: Cluster, settings: Mapping[str, str | int] | None) -> Registry:
    """Return this process's registry, which remembers what it has looked up.

    Args:
        cluster: The cluster.
        settings: Of a registry server; None: the schemas are in a topic of the cluster.
    """
    if cluster not in _SCHEMAS:
        _SCHEMAS[cluster] = registry(cluster, settings)
    return _SCHEMAS[cluster]
