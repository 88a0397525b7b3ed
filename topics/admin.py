"""Administrative requests to the brokers of a cluster, about topics and rights.

Lists the topics and their settings, creates those of a network, and rejects existing ones that
would break a law. Checks at startup whether this client has the rights that it will need: otherwise
a rarely used right, such as to write dead letters, would be missed only weeks later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType
from tenacity import (
    retry,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

from errata.topics.client import REACH_S, Connection, Settings, TooFewBrokersError, TopicExistsError
from errata.topics.cluster import (
    ClusterError,
    MissingTopicError,
    MovingLeaderError,
    SilentClusterError,
)
from errata.topics.refused import (
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    Right,
    by_resource,
)
from errata.topics.settings import TopicSpec

NEW_TOPIC_S = 10.0
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
        RefusedError: If one may exist, but this client has no right to describe it.
        ClusterError: If the cluster can't be reached.
    """
    if not topics:
        return
    connection = Connection(settings)
    answers = connection.admin.describe_topics(TopicCollection([*topics]))
    for name, answer in answers.items():
        with suppress(MissingTopicError):
            connection.wait_for(f"topic '{name}'", answer, right=Right(DESCRIBE, TOPIC, name))


def topic_settings(settings: Settings, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of some topics, all of which must exist.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    return describe_configs(Connection(settings), topics) if topics else {}


@retry(
    retry=retry_if_exception_type(MissingTopicError),
    stop=stop_after_delay(NEW_TOPIC_S),
    wait=wait_fixed(0.1),
    reraise=True,
)
def describe_configs(connection: Connection, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of one or more topics that a broker has listed.

    Any broker may answer, and it may not have learned of a new topic yet.

    Raises:
        MissingTopicError: If one does not exist after `NEW_TOPIC_S` seconds.
        ClusterError: If the cluster can't be reached, or refuses.
    """
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
    answers = connection.admin.describe_configs([*resources.values()])
    configs = {}
    for name, resource in resources.items():
        right = Right(DESCRIBE_CONFIGS, TOPIC, name)
        entries = connection.wait_for(f"topic '{name}'", answers[resource], right=right)
        configs[name] = {key: entry.value for key, entry in entries.items()}
    return configs


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
            connection.wait_for(f"topic '{name}'", answer, right=right, limit_s=limit_s)
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
        say: Called once, with a message, if no broker answers at first.

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
        say(f"no broker answers at {servers} yet; waiting for at most {limit_s:g} s")
        Connection(settings, reach_s=limit_s)


_AT_LEAST = (
    "min.compaction.lag.ms",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "max.message.bytes",
)
_UNLIMITED = {"retention.ms", "retention.bytes"}  # where -1 is the largest


@dataclass(frozen=True)
class TopicFault:
    """One way in which an existing topic differs from what a network needs."""

    topic: str
    what: str
    need: str
    actual: str
    remedy: str

    def __str__(self) -> str:
        """Return it as a sentence."""
        return (
            f"topic '{self.topic}' needs {self.what} {self.need}, but has {self.actual}; "
            f"{self.remedy}"
        )


class TopicSettingsError(ClusterError):
    """Existing topics would break a law; the message has one line for each fault."""

    restart_helps = False

    def __init__(self, faults: Sequence[TopicFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, faults)))


def create_topics(
    settings: Settings,
    wanted: Sequence[TopicSpec],
    *,
    replication: int = -1,
    limit_s: float = 30.0,
    reach_s: float = REACH_S,
) -> list[str]:
    """Create the missing topics, wait until the cluster has them, and return their names.

    Existing topics are left unchanged; concurrent callers don't disturb each other.

    Args:
        settings: librdkafka settings of the cluster.
        wanted: The topics.
        replication: Copies of each partition; -1 for the broker's default.
        limit_s: How long to wait for brokers that hold the copies, and for the new topics.
        reach_s: How long the cluster may take to answer.

    Raises:
        TopicSettingsError: If an existing topic has other partitions or cleanup, or keeps records
            for a shorter time than needed. Nothing is created then.
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings, reach_s=reach_s)
    present = _partitions(connection)
    missing = [spec for spec in wanted if spec.name not in present]
    _check_settings(connection, [spec for spec in wanted if spec.name in present], present)
    if not missing:
        return []
    deadline = monotonic() + limit_s
    new = [
        NewTopic(spec.name, spec.partitions, replication, config=dict(spec.config))
        for spec in missing
    ]
    while new := _create(connection, new, wait=monotonic() < deadline):
        sleep(0.5)
    while not {spec.name for spec in missing} <= (present := _partitions(connection)).keys():
        if monotonic() > deadline:
            names = ", ".join(spec.name for spec in missing if spec.name not in present)
            raise ClusterError(
                f"the cluster created {names}, but does not list them after {limit_s:g} s; "
                "see the brokers' logs"
            )
        sleep(0.05)
    _check_settings(connection, missing, present)
    return [spec.name for spec in missing]


def _create(connection: Connection, new: Sequence[NewTopic], *, wait: bool) -> list[NewTopic]:
    """Create topics; return those that need more brokers, which may still be starting."""
    postponed: list[NewTopic] = []
    answers = connection.admin.create_topics(list(new))
    for topic in new:
        name = topic.topic
        try:
            connection.wait_for(f"topic '{name}'", answers[name], right=Right(CREATE, TOPIC, name))
        except TopicExistsError:
            pass  # another process created it: checked afterwards
        except TooFewBrokersError:
            if not wait:
                raise
            postponed.append(topic)
    return postponed


def check_topics(settings: Settings, wanted: Sequence[TopicSpec]) -> None:
    """Check the settings of those topics that exist and that this client may describe.

    Raises:
        TopicSettingsError: If the settings of one would break a law.
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    present = _partitions(connection)
    _check_settings(connection, [spec for spec in wanted if spec.name in present], present)


def faults(spec: TopicSpec, *, partitions: int, config: Mapping[str, str]) -> list[TopicFault]:
    """Return how an existing topic differs from its spec; longer retention or lag is fine.

    Example:
        >>> spec = TopicSpec("tape.trades", 4, {"retention.ms": "1000"})
        >>> print(*faults(spec, partitions=2, config={"retention.ms": "-1"}))
        topic 'tape.trades' needs partitions 4, but has 2; give the arc a new name, or 2 partitions
    """
    differences: list[TopicFault] = []
    if partitions != spec.partitions:
        remedy = f"give the arc a new name, or {partitions} partitions"
        differences.append(
            TopicFault(spec.name, "partitions", str(spec.partitions), str(partitions), remedy)
        )
    for key, need in spec.config.items():
        actual = config.get(key, "")
        if key == "cleanup.policy":
            broken = set(need.split(",")) != set(actual.split(","))
        elif key in _AT_LEAST:
            need = spec.least.get(key, need)
            broken = _amount(key, actual) < _amount(key, need)
        else:
            broken = False  # no law depends on it
        if broken:
            remedy = f"alter it: kafka-configs --alter --topic {spec.name} --add-config {key}="
            remedy += f"[{need}]" if "," in need else need
            differences.append(TopicFault(spec.name, key, need, actual or "none", remedy))
    return differences


def _amount(key: str, text: str) -> float:
    amount = int(text or 0)
    return float("inf") if amount == -1 and key in _UNLIMITED else amount


def _partitions(connection: Connection) -> dict[str, int]:
    try:
        listed = connection.admin.list_topics(timeout=REACH_S)
    except KafkaException as error:
        raise connection.failure("the list of topics", error) from None
    return {
        name: len(topic.partitions)
        for name, topic in listed.topics.items()
        if topic.partitions and all(part.leader >= 0 for part in topic.partitions.values())
    }


def _check_settings(
    connection: Connection, specs: Sequence[TopicSpec], partitions: Mapping[str, int]
) -> None:
    names, broken = [spec.name for spec in specs], list[TopicFault]()
    configs = describe_configs(connection, names) if names else {}
    for spec in specs:
        broken += faults(spec, partitions=partitions[spec.name], config=configs[spec.name])
    if broken:
        raise TopicSettingsError(broken)


MISSING_AFTER_S = 2.0
"""A topic that is not there is looked for again after this time: a broker that has just started, or
that has not heard of a new topic yet, does not know it."""


@retry(
    retry=retry_if_exception_type(MissingTopicError),
    stop=stop_after_attempt(2),
    wait=wait_fixed(MISSING_AFTER_S),
    reraise=True,
)
def require(
    connection: Connection, rights: Collection[Right], *, limit_s: float | None = None
) -> None:
    """Check that topics exist, and that this client has its rights to them.

    Rights to other resources, and to topics by prefix, are not checked: groups and transactional
    ids are refused on first use.

    Args:
        connection: To the cluster.
        rights: The rights that are needed.
        limit_s: How long an answer may take; by default as long as a cluster may take to answer.

    Raises:
        RefusedError: If it lacks one; names it.
        MissingTopicError: If a topic does not exist.
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
        allowed = connection.wait_for(
            f"topic '{name}'", answers[name], right=first, limit_s=limit_s
        )
        if allowed.authorized_operations is None:
            continue  # this cluster does not report rights
        granted = {
            operation.name.title().replace("_", "") for operation in allowed.authorized_operations
        }
        for operation in operations:
            if operation not in granted:
                raise connection.refusal(Right(operation, TOPIC, name))


def require_still(connection: Connection, rights: Collection[Right]) -> None:
    """Check that topics and the rights to them still exist, if any broker answers.

    A client notices it only after minutes, or never: a consumer waits for a topic that was deleted,
    and a transaction that is refused one of its topics does not name it.

    Raises:
        RefusedError: If it lacks one; names it.
        MissingTopicError: If a topic no longer exists.
    """
    with suppress(SilentClusterError, MovingLeaderError):
        require(connection, rights, limit_s=MISSING_AFTER_S)
