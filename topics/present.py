"""Lists the topics of a cluster and their settings, and waits for its brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from time import monotonic, sleep

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from errata.topics.client import REACH_S, Connection, Settings
from errata.topics.cluster import ClusterError, MissingTopicError, SilentClusterError
from errata.topics.refused import DELETE, DESCRIBE, DESCRIBE_CONFIGS, TOPIC, Right

HEARD_S = 10.0
"""How long the brokers of a cluster may take to learn of a new topic."""


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


def require_absent(settings: Settings, topics: Collection[str]) -> None:
    """Check that unlisted topics do not exist, rather than being hidden from this client.

    Raises:
        RefusedError: If one may be there, but this client has no right to it.
        ClusterError: If the cluster can't be reached.
    """
    if not topics:
        return
    connection = Connection(settings)
    answers = connection.admin.describe_topics(TopicCollection([*topics]))
    for name, answer in answers.items():
        with suppress(MissingTopicError):
            connection.ask(f"topic '{name}'", answer, right=Right(DESCRIBE, TOPIC, name))


def topic_settings(settings: Settings, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of some topics, all of which must exist.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    return described(Connection(settings), topics) if topics else {}


@retry(
    retry=retry_if_exception_type(MissingTopicError),
    stop=stop_after_delay(HEARD_S),
    wait=wait_fixed(0.1),
    reraise=True,
)
def described(connection: Connection, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of one or more topics that a broker has listed.

    Any broker may answer, and it may not have learned of a new topic yet.

    Raises:
        MissingTopicError: If one is not there for `HEARD_S` seconds.
        ClusterError: If the cluster can't be reached, or refuses.
    """
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
    answers = connection.admin.describe_configs([*resources.values()])
    found = {}
    for name, resource in resources.items():
        right = Right(DESCRIBE_CONFIGS, TOPIC, name)
        entries = connection.ask(f"topic '{name}'", answers[resource], right=right)
        found[name] = {key: entry.value for key, entry in entries.items()}
    return found


def delete_topics(settings: Settings, topics: Sequence[str], *, limit_s: float = 30.0) -> None:
    """Delete topics and wait until none is listed; a topic that no longer exists is not an error.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    answers = connection.admin.delete_topics([*topics], request_timeout=limit_s) if topics else {}
    for name, answer in answers.items():
        with suppress(MissingTopicError):
            right = Right(DELETE, TOPIC, name)
            connection.ask(f"topic '{name}'", answer, right=right, limit_s=limit_s)
    deadline = monotonic() + limit_s
    while left := set(topics) & present_topics(settings).keys():
        if monotonic() > deadline:
            raise ClusterError(
                f"topics {', '.join(sorted(left))} were deleted, but are listed after {limit_s:g} "
                "s; see the brokers' logs"
            )
        sleep(0.1)


AT_ONCE_S = 2.0
"""If brokers answer within this time, no message is logged."""


def await_brokers(settings: Settings, *, limit_s: float, say: Callable[[str], None]) -> None:
    """Wait until a broker answers.

    Args:
        settings: librdkafka settings of the cluster.
        limit_s: How long to wait.
        say: Told once if there is something to wait for.

    Raises:
        SilentClusterError: If none answers in time.
        RefusedError: If the cluster refuses this client.
    """
    try:
        Connection(settings, reach_s=min(AT_ONCE_S, limit_s))
    except SilentClusterError:
        if limit_s <= AT_ONCE_S:
            raise
        servers = settings["bootstrap.servers"]
        say(f"no broker answers at {servers} yet; waits for one, {limit_s:g} s at most")
        Connection(settings, reach_s=limit_s)
