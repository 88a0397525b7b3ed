"""Checks at startup whether this client has the rights that it will need.

Otherwise a rarely used right, such as to write dead letters, would be missed only weeks later.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from time import sleep

from confluent_kafka import TopicCollection

from errata.topics.client import Connection
from errata.topics.cluster import MissingTopicError, MovingLeaderError, SilentClusterError
from errata.topics.refused import TOPIC, Right, by_resource

SURE_S = 2.0
"""A topic that is still missing after this time was deleted."""


def require(
    connection: Connection, rights: Iterable[Right], *, limit_s: float | None = None
) -> None:
    """Check that topics exist, and that this client has its rights to them.

    Rights to other resources, and to topics by prefix, are not checked: groups and transactional
    ids are refused on first use.

    Args:
        connection: To the cluster.
        rights: What it needs.
        limit_s: How long the answer may take; by default as long as a cluster may take to answer.

    Raises:
        RefusedError: If it lacks one; names it.
        MissingTopicError: If a topic is not there.
    """
    needed = {
        name: operations
        for (kind, name, is_prefix), operations in by_resource(rights).items()
        if kind == TOPIC and not is_prefix
    }
    if not needed:
        return
    if limit_s is None:
        connection.check()
    answers = connection.admin.describe_topics(
        TopicCollection(sorted(needed)), include_authorized_operations=True
    )
    for name, operations in needed.items():
        first = Right(operations[0], TOPIC, name)
        allowed = connection.ask(f"topic '{name}'", answers[name], right=first, limit_s=limit_s)
        if allowed.authorized_operations is None:
            continue  # this cluster does not report rights
        told = {
            operation.name.title().replace("_", "") for operation in allowed.authorized_operations
        }
        for operation in operations:
            if operation not in told:
                raise connection.refusal(Right(operation, TOPIC, name))


def require_still(connection: Connection, rights: Iterable[Right]) -> None:
    """Check that topics and the rights to them still exist, if any broker answers.

    A client notices it only after minutes, or never: a consumer waits for a topic that was deleted,
    and a transaction that is refused one of its topics does not name it. A broker that has just
    started may not know of a topic yet.

    Raises:
        RefusedError: If it lacks one; names it.
        MissingTopicError: If a topic is not there any more.
    """
    rights = list(rights)
    with suppress(SilentClusterError, MovingLeaderError):
        try:
            require(connection, rights, limit_s=SURE_S)
        except MissingTopicError:
            sleep(SURE_S)
            require(connection, rights, limit_s=SURE_S)
