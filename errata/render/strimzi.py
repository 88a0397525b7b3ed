"""Renders the topics of a network for Strimzi, if only its Topic Operator may create topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from errata.render.roles import digest
from errata.topics.settings import TopicSpec


def topic_resources(
    specs: Sequence[TopicSpec], *, cluster: str, copies: int | None
) -> Iterator[dict[str, Any]]:
    """Yield a KafkaTopic for each topic.

    Args:
        specs: The topics.
        cluster: Name of the Kafka resource that they belong to.
        copies: Copies of each partition; None for the broker's default.
    """
    for spec in specs:
        yield {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaTopic",
            "metadata": {"name": _name(spec.name), "labels": {"strimzi.io/cluster": cluster}},
            "spec": {
                "topicName": spec.name,
                "partitions": spec.partitions,
                **({} if copies is None else {"replicas": copies}),
                "config": dict(spec.config),
            },
        }


def _name(topic: str) -> str:
    """Return a topic's name if it is valid for a resource, else a unique name."""
    if re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", topic):
        return topic
    return f"{re.sub('[^a-z0-9]+', '-', topic.lower()).strip('-')[:200]}-{digest(topic)}"
