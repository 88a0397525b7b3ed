"""Settings of topics with which brokers may lose records that they have acknowledged.

Errata notices lost records and writes them again (``docs/protocol.md#11-faults``), but only where
an arc keeps its history. Better is that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException

from errata.topics.admin import describe_configs
from errata.topics.client import REACH_S, Connection, Settings
from errata.topics.cluster import ClusterError

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


def loss_risks(settings: Settings, topics: Collection[str]) -> list[str]:
    """Return what makes a loss of records in existing topics possible, a sentence each.

    A cluster of one broker is for trying things out: there it returns nothing.

    Raises:
        ClusterError: If the cluster can't be reached, or refuses.
    """
    connection = Connection(settings)
    try:
        listed = connection.admin.list_topics(timeout=REACH_S)
    except KafkaException as error:
        raise connection.failure("the list of topics", error) from None
    known = {name: listed.topics[name].partitions for name in topics if name in listed.topics}
    if len(listed.brokers) < 2 or not known:
        return []
    configs = describe_configs(connection, known)
    found = {
        name: Durability(
            min((len(each.replicas) for each in partitions.values()), default=0),
            int(configs[name].get("min.insync.replicas") or 1),
            configs[name].get("unclean.leader.election.enable") == "true",
        )
        for name, partitions in known.items()
    }
    return [*sentences(found)]


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
            "set it with kafka-configs --alter --add-config min.insync.replicas=2"
        )
    if unclean:
        yield (
            f"{_named(unclean)}: a replica that lacks records may become the leader; forbid it "
            "with kafka-configs --alter --add-config unclean.leader.election.enable=false"
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
