"""Faults of one of three brokers; which one, an arc's leader decides."""

from collections.abc import Callable
from random import Random
from threading import Thread
from time import monotonic

from errata.topics import names
from errata.topics.loss_risks import MIN_INSYNC, UNCLEAN
from tests.faults.clusters import Cluster
from tests.faults.process_faults import losable
from tests.faults.running import Running

Fault = Callable[[Running, Cluster, Random], str | None]

AWAY_S, ALONE_S, LIMIT_S = (0.0, 4.0, 15.0), 30.0, 120.0
RISKY, SAFE = {MIN_INSYNC: "1", UNCLEAN: "true"}, {MIN_INSYNC: "2", UNCLEAN: "false"}
OF_COMMITS = "__transaction_state", "__consumer_offsets"
"""Topics that every commit of a task writes, beside those of its network."""


def _arc(on: Running, chance: Random) -> str:
    return on.plan.deployment.topic(chance.choice(on.plan.replayed_points()))


def leader_kill(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Kill the leader of an arc's partition, and start it again after a while."""
    assert cluster.three is not None
    topic, seconds = _arc(on, chance), chance.choice(AWAY_S)
    node = cluster.three.leader(topic)
    cluster.three.kill(node)
    on.pause(seconds)
    cluster.three.start(node)
    return f"broker {node}, which led {topic}, was away for {seconds:g} s"


def leader_stop(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Stop the leader of an arc's partition for a while: at times the others go on without it."""
    assert cluster.three is not None
    topic, seconds = _arc(on, chance), chance.choice((1.0, 6.0, 17.0))
    node = cluster.three.leader(topic)
    stop = Thread(target=cluster.three.stop_continue, args=(node, seconds))
    stop.start()
    on.until(lambda: not stop.is_alive(), limit_s=LIMIT_S, what="continue a broker")
    return f"broker {node}, which led {topic}, stood still for {seconds:g} s"


def leader_cut(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Cut the leader of an arc's partition off from clients and from the others."""
    assert cluster.three is not None
    topic, seconds = _arc(on, chance), chance.choice((1.0, 6.0, 17.0))
    node = cluster.three.leader(topic)
    with cluster.three.partition(node):
        on.pause(seconds)
    return f"broker {node}, which led {topic}, was cut off for {seconds:g} s"


def unclean_election(on: Running, cluster: Cluster, chance: Random) -> str | None:
    """Let the leader of an arc's partition be alone in sync, kill it, and let another lead.

    What only the killed one had is lost. The settings of the topic allow that, as those of a topic
    do that somebody else has made. It may also lead topics that every commit writes: these can be
    written meanwhile, but no other broker leads them without its copies.
    """
    assert cluster.three is not None
    three, arc = cluster.three, losable(on, chance)
    topic = on.plan.deployment.topic(arc)
    partition = chance.randrange(on.plan.placement.partitions[arc])
    node, deadline = three.leader(topic, partition), monotonic() + ALONE_S
    of_commits = [names.progress_topic(on.plan.network), *OF_COMMITS]
    three.alter([topic], RISKY)
    three.alter(of_commits, {MIN_INSYNC: "1"})
    try:
        with three.without_copies(node):
            while three.in_sync(topic, partition) != {node}:
                if monotonic() > deadline:
                    return None
                on.pause(0.5)
            on.pause(chance.choice((0.5, 3.0)))
            end = three.end(topic, partition)
            three.kill(node)
        on.until(
            lambda: three.leader(topic, partition) != node, limit_s=LIMIT_S, what="elect a leader"
        )
        lost = end - three.end(topic, partition)
        three.start(node)
        # brokers forget who may lead a partition if its settings change meanwhile (KIP-966)
        three.await_in_sync([topic, *of_commits])
    finally:
        three.alter([topic], SAFE)
        three.alter(of_commits, {MIN_INSYNC: "2"})
    on.lost.add(arc)
    return f"{topic}, partition {partition}, has lost {lost} records or more" if lost > 0 else None


THREE_FAULTS: dict[str, Fault] = {
    "leader-kill": leader_kill,
    "leader-stop": leader_stop,
    "leader-cut": leader_cut,
    "unclean-election": unclean_election,
}
