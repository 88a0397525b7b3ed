"""Creates the topics of a network, and rejects existing ones that would break a law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from errata.topics.client import REACH_S, Connection, Settings, TooFewBrokersError, TopicExistsError
from errata.topics.cluster import ClusterError
from errata.topics.present import described
from errata.topics.refused import CREATE, TOPIC, Right
from errata.topics.settings import TopicSpec

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
    found: str
    remedy: str

    def __str__(self) -> str:
        """Return it as a sentence."""
        return (
            f"topic '{self.topic}' needs {self.what} {self.need}, but has {self.found}; "
            f"{self.remedy}"
        )


class TopicSettingsError(ClusterError):
    """Existing topics would break a law; the message has one line for each fault."""

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
) -> None:
    """Create the missing topics and wait until the cluster has them.

    Existing topics are left unchanged; concurrent callers don't disturb each other.

    Args:
        settings: librdkafka settings of the cluster.
        wanted: The topics.
        replication: Copies of each partition; -1 for the broker's default.
        limit_s: How long to wait for the new ones, and before for brokers that hold their copies.
        reach_s: How long the cluster may take to answer.

    Raises:
        TopicSettingsError: If an existing topic has other partitions or cleanup, or keeps records
            for a shorter time than needed. Nothing is made then.
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings, reach_s=reach_s)
    present = _partitions(connection)
    missing = [spec for spec in wanted if spec.name not in present]
    _refuse(connection, [spec for spec in wanted if spec.name in present], present)
    if not missing:
        return
    deadline = monotonic() + limit_s
    new = [
        NewTopic(spec.name, spec.partitions, replication, config=dict(spec.config))
        for spec in missing
    ]
    while new := _not_made(connection, new, wait=monotonic() < deadline):
        sleep(0.5)
    while not {spec.name for spec in missing} <= (present := _partitions(connection)).keys():
        if monotonic() > deadline:
            names = ", ".join(spec.name for spec in missing if spec.name not in present)
            raise ClusterError(
                f"the cluster has made {names}, but does not list it after {limit_s:g} s; "
                "see the brokers' logs"
            )
        sleep(0.05)
    _refuse(connection, missing, present)


def _not_made(connection: Connection, new: Sequence[NewTopic], *, wait: bool) -> list[NewTopic]:
    """Create topics; return those that need more brokers, which may still be starting."""
    left: list[NewTopic] = []
    answers = connection.admin.create_topics(list(new))
    for topic in new:
        name = topic.topic
        try:
            connection.ask(f"topic '{name}'", answers[name], right=Right(CREATE, TOPIC, name))
        except TopicExistsError:
            pass  # another process was quicker: checked afterwards
        except TooFewBrokersError:
            if not wait:
                raise
            left.append(topic)
    return left


def check_topics(settings: Settings, wanted: Sequence[TopicSpec]) -> None:
    """Check the settings of those topics that exist and that this client may describe.

    Raises:
        TopicSettingsError: If one is not.
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    present = _partitions(connection)
    _refuse(connection, [spec for spec in wanted if spec.name in present], present)


def faults(spec: TopicSpec, *, partitions: int, config: Mapping[str, str]) -> list[TopicFault]:
    """Return how an existing topic differs from its spec; longer retention or lag is fine.

    Example:
        >>> spec = TopicSpec("tape.trades", 4, {"retention.ms": "1000"})
        >>> print(*faults(spec, partitions=2, config={"retention.ms": "-1"}))
        topic 'tape.trades' needs partitions 4, but has 2; give the arc a new name, or 2 partitions
    """
    found: list[TopicFault] = []
    if partitions != spec.partitions:
        remedy = f"give the arc a new name, or {partitions} partitions"
        found.append(
            TopicFault(spec.name, "partitions", str(spec.partitions), str(partitions), remedy)
        )
    for key, need in spec.config.items():
        has = config.get(key, "")
        if key == "cleanup.policy":
            broken = set(need.split(",")) != set(has.split(","))
        elif key in _AT_LEAST:
            broken = _amount(key, has) < _amount(key, need)
        else:
            broken = False  # no law depends on it
        if broken:
            remedy = f"alter it: kafka-configs --alter --topic {spec.name} --add-config {key}="
            remedy += f"[{need}]" if "," in need else need
            found.append(TopicFault(spec.name, key, need, has or "none", remedy))
    return found


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


def _refuse(
    connection: Connection, specs: Sequence[TopicSpec], partitions: Mapping[str, int]
) -> None:
    names, broken = [spec.name for spec in specs], list[TopicFault]()
    found = described(connection, names) if names else {}
    for spec in specs:
        broken += faults(spec, partitions=partitions[spec.name], config=found[spec.name])
    if broken:
        raise TopicSettingsError(broken)
