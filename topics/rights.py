"""Whether this client may do what it will have to, asked before it begins.

Else a right that is seldom needed, as that to write dead letters, would be missed weeks later.
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
"""A topic that is still not there after this time was deleted."""


def require(
    connection: Connection, rights: Iterable[Right], *, limit_s: float | None = None
) -> None:
    """See that topics are there, and that this client has its rights to them.

    Rights to other things than topics, and to topics by prefix, are not looked at: groups and
    transactional ids are refused as soon as they are used.

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
            continue  # this cluster does not tell
        told = {
            operation.name.title().replace("_", "") for operation in allowed.authorized_operations
        }
        for operation in operations:
            if operation not in told:
                raise connection.refusal(Right(operation, TOPIC, name))


def require_still(connection: Connection, rights: Iterable[Right]) -> None:
    """See that topics are still there, and rights to them, if any broker answers.

    A client does not tell it for minutes, or never: one that reads waits for a topic that is gone,
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
