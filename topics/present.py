"""The topics that a cluster has, and their settings."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from topics.client import REACH_S, Connection, Settings


def present_topics(settings: Settings) -> dict[str, int]:
    """Return the number of partitions by topic.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    try:
        listed = connection.admin.list_topics(timeout=REACH_S)
    except KafkaException as error:
        raise connection.failure("the list of topics", error) from None
    return {
        name: len(topic.partitions) for name, topic in listed.topics.items() if topic.partitions
    }


def topic_settings(settings: Settings, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of some topics, all of which have to be there.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
    answers = connection.admin.describe_configs([*resources.values()]) if resources else {}
    found = {}
    for name, resource in resources.items():
        entries = connection.ask(f"topic '{name}'", answers[resource])
        found[name] = {key: entry.value for key, entry in entries.items()}
    return found
