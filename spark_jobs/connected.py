"""The connections of a process: Python workers on executors outlive a task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from errata.topics.kafka import KafkaCluster


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
    return KafkaCluster(dict(kafka))
