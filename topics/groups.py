"""Consumer groups: this process as a member of one, and those of a cluster seen from outside.

Of a membership only the assignment of partitions is used. Nothing is read and no offset is
committed: positions come from reports, and fencing, not the group, keeps two processes from working
on one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assigned

from errata.topics.client import Connection, Settings
from errata.topics.cluster import TopicPartition
from errata.topics.refused import CODES, DELETE, GROUP, READ, Right
from errata.topics.transactions import TIMEOUT_S

SESSION_MS = 10_000
"""After this long without a heartbeat a member is removed from the group."""

_ASKS_S = 1.0
"""How often a group's coordinator is asked."""

_LAWS = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",  # what stays is not interrupted
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
}


class Membership:
    """One member of a consumer group that shares the partitions of a topic.

    Args:
        connection: The cluster.
        group: Name of the group.
        topic: The topic whose partitions are shared.
        give_up: Called with revoked partitions before other members get them.
        session_ms: After this long without a heartbeat the group removes the member.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        group: str,
        topic: str,
        give_up: Callable[[Collection[int]], None],
        session_ms: int = SESSION_MS,
    ) -> None:
        self.partitions: set[int] = set()
        self.joined = False
        """Whether the group has ever sent this member an assignment, even an empty one."""
        self._connection, self._group, self._give_up = connection, group, give_up
        defaults = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 1_000}
        self._consumer: Any = connection.client(Consumer, defaults, {**_LAWS, "group.id": group})
        self._consumer.subscribe(
            [topic], on_assign=self._take, on_revoke=self._leave, on_lost=self._leave
        )

    def poll(self) -> None:
        """Process assignment changes; call it at least every few minutes.

        Raises:
            ClusterError: If the cluster refuses this client.
        """
        message = self._consumer.poll(0)
        self._connection.check()
        error = message.error() if message is not None else None
        if error is not None and (error.fatal() or error.code() in CODES):
            right = Right(READ, GROUP, self._group)
            raise self._connection.failure("a consumer group", KafkaException(error), right=right)

    def _take(self, consumer: Any, assigned: list[Assigned]) -> None:
        self.joined = True
        consumer.incremental_assign(assigned)
        consumer.pause(assigned)
        self.partitions.update(place.partition for place in assigned)

    def _leave(self, consumer: Any, revoked: list[Assigned]) -> None:
        partitions = {place.partition for place in revoked}
        self._give_up(partitions)
        self.partitions -= partitions
        consumer.incremental_unassign(revoked)

    def close(self) -> None:
        """Leave the group, so that others take over at once; safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def committed_note(connection: Connection, group: str, places: Collection[TopicPartition]) -> str:
    """Return the note of a group's last committed positions of these partitions; "" if none.

    A consumer asks, of its own: a client of requests does not find a coordinator that was away for
    up to a minute, and may abort the process then (librdkafka 2.16). It does not wait for
    transactions that are open: those of the group have ended, but a coordinator that has just
    started may not know it.

    Raises:
        RefusedError: If this client may not read the group.
        ClusterError: If the group's coordinator does not answer.
    """
    laws = {"group.id": group, "isolation.level": "read_uncommitted"}
    consumer: Any = connection.client(Consumer, {}, laws)
    deadline = monotonic() + TIMEOUT_S
    try:
        while True:
            try:
                committed = consumer.committed([Assigned(*place) for place in places], _ASKS_S)
                return next((each.metadata for each in committed if each.metadata), "")
            except KafkaException as error:
                # The call itself never says that a group is refused.
                told = consumer.poll(0)
                refused = told is not None and told.error().code() in CODES
                if refused or monotonic() > deadline:
                    cause = KafkaException(told.error()) if refused else error
                    right = Right(READ, GROUP, group)
                    raise connection.failure(f"group '{group}'", cause, right=right) from None
    finally:
        consumer.close()


def group_members(settings: Settings, *, prefix: str) -> dict[str, int]:
    """Return the number of members of each group whose name begins with `prefix`.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    listed = connection.wait_for("the list of groups", connection.admin.list_consumer_groups())
    if listed.errors:  # errors of single brokers
        raise connection.failure("the list of groups", listed.errors[0])
    ids = sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix))
    answers = connection.admin.describe_consumer_groups(ids) if ids else {}
    return {
        name: len(connection.wait_for(f"group '{name}'", answers[name]).members) for name in ids
    }


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
