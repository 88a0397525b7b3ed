"""Settings of topics with which brokers may lose records that they have acknowledged.

Errata notices lost records and writes them again (``docs/protocol.md#11-faults``), but only where
an arc keeps its history. Better is that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from errata.topics.admin import describe_configs
from errata.topics.client import REACH_S, Connection, Settings
from errata.topics.cluster import ClusterError
from errata.topics.refused import ALTER_CONFIGS, TOPIC, Right

MIN_INSYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_NAMED = 3


@dataclass(frozen=True)
class Durability:
    """How safe a topic's records are.

    Args:
        replicas: Copies of the partition that has the fewest.
        needed: How many of them must have a record before it is acknowledged.
        is_unclean: Whether a replica that lacks records may become the leader.
    """

    replicas: int
    needed: int
    is_unclean: bool

    def safer(self) -> dict[str, str]:
        """Return the settings that take away what risk they can, and still let one broker be lost.

        Example:
            >>> Durability(replicas=3, needed=1, is_unclean=True).safer()
            {'min.insync.replicas': '2', 'unclean.leader.election.enable': 'false'}
            >>> Durability(replicas=2, needed=1, is_unclean=False).safer()
            {}
        """
        settings = {}
        if self.replicas > 2 and self.needed < 2:
            settings[MIN_INSYNC] = "2"
        if self.replicas > 1 and self.is_unclean:
            settings[UNCLEAN] = "false"
        return settings


def loss_risks(settings: Settings, topics: Collection[str]) -> list[str]:
    """Return what makes a loss of records in existing topics possible, a sentence each.

    A cluster of one broker is for trying things out: there it returns nothing.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    return [*sentences(_durabilities(Connection(settings), topics))]


def make_durable(settings: Settings, topics: Collection[str]) -> None:
    """Set what new topics need, so that no acknowledged record is lost with one broker.

    A cluster that refuses is no error: then `loss_risks` names what is left.
    """
    if not topics:
        return
    with suppress(ClusterError):
        connection = Connection(settings)
        changes = {
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in safer.items()
                ],
            )
            for name, each in _durabilities(connection, topics).items()
            if (safer := each.safer())
        }
        answers = connection.admin.incremental_alter_configs([*changes]) if changes else {}
        for resource, answer in answers.items():
            right = Right(ALTER_CONFIGS, TOPIC, resource.name)
            with suppress(ClusterError):
                connection.wait_for(f"topic '{resource.name}'", answer, right=right)


def _durabilities(connection: Connection, topics: Collection[str]) -> dict[str, Durability]:
    """Return how safe those of the topics are that exist on a cluster of several brokers."""
    try:
        listed = connection.admin.list_topics(timeout=REACH_S)
    except KafkaException as error:
        raise connection.failure("the list of topics", error) from None
    known = {name: listed.topics[name].partitions for name in topics if name in listed.topics}
    if len(listed.brokers) < 2 or not known:
        return {}
    configs = describe_configs(connection, known)
    return {
        name: Durability(
            min((len(each.replicas) for each in partitions.values()), default=0),
            int(configs[name].get(MIN_INSYNC) or 1),
            configs[name].get(UNCLEAN) == "true",
        )
        for name, partitions in known.items()
    }


def sentences(topics: Mapping[str, Durability]) -> Iterator[str]:
    """Yield a sentence for each kind of risk, with the topics that have it and a remedy.

    Example:
        >>> for risk in sentences({"tape.trades": Durability(3, 1, False)}):
        ...     print(risk)
        tape.trades: one replica may acknowledge a record alone, and be lost with it; set it with \
kafka-configs --alter --add-config min.insync.replicas=2
    """
    single = [name for name, each in topics.items() if each.replicas == 1]
    alone = [name for name, each in topics.items() if each.replicas > 1 and each.needed < 2]
    unclean = [name for name, each in topics.items() if each.replicas > 1 and each.is_unclean]
    if single:
        yield (
            f"{_named(single)}: one replica each, so a lost disk loses records; raise "
            "default.replication.factor of the brokers before the first deploy, or add replicas "
            "with kafka-reassign-partitions"
        )
    if alone:
        yield (
            f"{_named(alone)}: one replica may acknowledge a record alone, and be lost with it; "
            f"set it with kafka-configs --alter --add-config {MIN_INSYNC}=2"
        )
    if unclean:
        yield (
            f"{_named(unclean)}: a replica that lacks records may become the leader; forbid it "
            f"with kafka-configs --alter --add-config {UNCLEAN}=false"
        )


def known_risks(settings: Settings, topics: Collection[str]) -> list[str]:
    """Return `loss_risks`; nothing if this client may not know, or no broker answers."""
    try:
        return loss_risks(settings, topics)
    except ClusterError:
        return []


def _named(topics: list[str]) -> str:
    more = len(topics) - _NAMED
    shown = ", ".join(topics[:_NAMED])
    return f"{shown} and {more} more topics" if more > 0 else shown
