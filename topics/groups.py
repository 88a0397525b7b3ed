"""Consumer groups of a cluster, seen from outside."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException

from errata.topics.client import Connection, Settings
from errata.topics.refused import DELETE, GROUP, Right


def group_members(settings: Settings, *, prefix: str) -> dict[str, int]:
    """Return the number of members of each group whose name begins with `prefix`.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    listed = connection.ask("the list of groups", connection.admin.list_consumer_groups())
    if listed.errors:  # errors of single brokers
        raise connection.failure("the list of groups", listed.errors[0])
    ids = sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix))
    answers = connection.admin.describe_consumer_groups(ids) if ids else {}
    return {name: len(connection.ask(f"group '{name}'", answers[name]).members) for name in ids}


def delete_groups(settings: Settings, names: Collection[str]) -> None:
    """Delete groups; a group that no longer exists is not an error.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses, as it does for one with members.
    """
    connection = Connection(settings)
    answers = connection.admin.delete_consumer_groups([*names]) if names else {}
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                right = Right(DELETE, GROUP, name)
                raise connection.failure(f"group '{name}'", error, right=right) from None
