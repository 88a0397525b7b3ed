"""What one process does: deploys its network if nobody has, then advances its tasks or sweepers.

The tasks of a process are generators that one thread advances in turn. A commit of which the
outcome is not known ends a task's life and starts its next one; being fenced ends the process,
since another one has taken the work over.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from errata.drain import drain
from errata.logs import about
from errata.look import Look
from errata.parts import Actor, Life, Parts
from errata.pulse import Pulse
from errata.share import Share
from errata.source_fields import check_order, resolve_deployed
from processors import subjects
from processors.deployed import (
    Deployed,
    NewVersionError,
    deploy,
    plan_spec,
    read_plan,
    require_same,
    topic_specs,
)
from processors.meter import scope_of
from processors.network import Network
from processors.plan import Plan, compile_network
from processors.task import DEAD_LETTER, Shared, Task
from processors.view import View
from topics import names
from topics.cluster import Cluster, ClusterError, DoubtfulCommitError, FencedError
from topics.create import create_topics
from topics.kafka import KafkaCluster
from topics.registry_server import registry

log = logging.getLogger("errata")

DAY_MS = 86_400_000
AWAIT_S = 1.0
IDLE_S = 0.004
"""Sleep of a process that has nothing to do."""


def collect_seldom() -> None:
    """Tune Python's collector for a process that does nothing but `Worker.run`.

    What there is by now stays; batches of many objects come and go by the millisecond.
    """
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)


@dataclass(frozen=True)
class Place:
    """Where a process works.

    Args:
        kafka: librdkafka settings.
        state: Folder of local state: indexes and sweepers' copies.
        compaction_lag_ms: How long superseded records stay in connection points.
        registry_url: A schema registry; None: schemas are kept in a topic.
        on_error: What becomes of tuples that boxes refuse: ``dead-letter``, or ``stop``.
        listen: Host and port of health and metrics; None: nowhere.
    """

    kafka: Mapping[str, str | int]
    state: Path
    compaction_lag_ms: int = DAY_MS
    registry_url: str | None = None
    on_error: str = DEAD_LETTER
    listen: tuple[str, int] | None = None


def prepare(network: Network, place: Place, cluster: Cluster) -> Plan:
    """Judge a network, make its topics and deploy its plan, unless that has been done.

    Raises:
        NetworkError: If it can't work.
        ClusterError: If the cluster, or a user's topic on it, can't be used.
        PlanMismatchError: If another plan is deployed under its name.
        IncompatibleSchemaError: If the registry would refuse its schemas.
    """
    schemas = registry(cluster, url=place.registry_url)
    plan = place_plan(compile_network(resolve_deployed(network, schemas, cluster)), cluster)
    there = has_plan_topic(plan.network, place, cluster)
    found = _settled(cluster, plan.network) if there else None
    if found is None:
        subjects.check(plan, schemas)  # nothing is made if the registry would refuse
        make_topics(plan, place, cluster)
        subjects.register(plan, schemas)
        found = deploy(cluster, plan)
    plan = require_same(plan, found)
    check_order(plan, found, schemas)
    make_topics(plan, place, cluster)
    return plan


def has_plan_topic(network: str, place: Place, cluster: Cluster) -> bool:
    """Return whether the topic of a network's plan is there; it can be read then."""
    there = _partitions(cluster, names.plan_topic(network)) > 0
    if there:
        create_topics(place.kafka, [plan_spec(network)])  # it may just have been made
    return there


def make_topics(plan: Plan, place: Place, cluster: Cluster) -> None:
    """Make the topics of a plan that are not there."""
    found = [sink.topic for sink in plan.sinks if _partitions(cluster, sink.topic)]
    lag = place.compaction_lag_ms
    create_topics(place.kafka, topic_specs(plan, compaction_lag_ms=lag, existing=found))


def _settled(cluster: Cluster, network: str) -> Deployed | None:
    """Return what is deployed; while it is being switched to a new version, wait."""
    found, waits = read_plan(cluster, network), False
    while found is not None and found.under_way is not None:
        if not waits:
            log.warning(
                "network %r is being moved to version %d: waits for that; if `errata deploy` was "
                "cut off, run it again", network, found.under_way,
            )  # fmt: skip
        waits = True
        time.sleep(AWAIT_S)
        found = read_plan(cluster, network)
    return found


def place_plan(plan: Plan, cluster: Cluster) -> Plan:
    """Return a plan with the users' topics as they are found on a cluster.

    Raises:
        ClusterError: If the topic of a source is not there.
    """
    sinks = {sink.topic: _partitions(cluster, sink.topic) for sink in plan.sinks}
    return plan.placed(
        {name: cluster.partitions(source.topic) for name, source in plan.sources.items()},
        sink_partitions={topic: count for topic, count in sinks.items() if count},
    )


def _partitions(cluster: Cluster, topic: str) -> int:
    """Return how many partitions a topic has; 0 if it is not there."""
    try:
        return cluster.partitions(topic)
    except ClusterError:
        return 0


class Worker:
    """One process's share of a network.

    Args:
        network: The network.
        place: Where it works.
        pulse: Tells those who watch the process.
    """

    def __init__(self, network: Network, place: Place, pulse: Pulse | None = None) -> None:
        self.place, self.pulse = place, pulse or Pulse()
        about["network"] = network.name
        self.cluster = KafkaCluster(place.kafka)
        self.plan = prepare(network, place, self.cluster)
        self.shared = Shared(
            self.cluster,
            self.plan,
            registry(self.cluster, url=place.registry_url),
            View(self.cluster, plan=self.plan),
            place.compaction_lag_ms,
            place.on_error,
        )
        state = place.state / self.plan.network / self.plan.deployment
        self.parts = Parts(self.shared, state)
        self.shares: list[Share] = []
        self.lives: dict[Actor, Life] = {}

    def add_scope(
        self,
        name: str,
        *,
        partitions: Sequence[int] | None = None,
        shared: bool = False,
        sweep_beside: bool = False,
    ) -> None:
        """Take on the tasks of a scope.

        Args:
            name: A scope, or ``ingest.<source>``.
            partitions: Which of its partitions; None: all.
            shared: Take on whichever partitions a consumer group of all such processes gives to
                this one, and give them up as others come.
            sweep_beside: Whether the tasks ask sweepers in this process instead of over topics.

        Raises:
            NoSuchPartError: If there is no such scope or partition.
        """
        self.parts.check(name, partitions or ())
        self.parts.beside |= {name} if sweep_beside else set()
        if shared:
            group, topic = f"{self.plan.network}.{name}", self.plan.shared_by(name)
            share = Share(
                name,
                join=partial(self.cluster.membership, group, topic),
                start=lambda partition: self._start(self.parts.tasks(name, partition)),
                stop=self._stop,
            )
            self.shares.append(share)
            return
        count = len(self.plan.tasks(name))
        for partition in range(count) if partitions is None else partitions:
            self._start(self.parts.tasks(name, partition))

    def add_sweepers(self, arcs: Sequence[str] | None = None) -> None:
        """Take on the sweepers of some connection points, all partitions; None: all that are asked.

        Raises:
            NoSuchPartError: If an arc is not a connection point that some box asks.
        """
        self._start(self.parts.services(arcs))

    def _start(self, actors: list[Actor]) -> list[Actor]:
        self.lives |= {actor: actor.life() for actor in actors}
        return actors

    def _stop(self, actors: list[Actor]) -> None:
        for actor in actors:
            self.lives.pop(actor).close()
            actor.close()

    def _replaced(self, actor: Actor) -> bool:
        """Whether another process has taken a task over; a time-out fences in the same way."""
        if not isinstance(actor, Task):
            return True
        for _ in actor.read_reports():
            time.sleep(IDLE_S)
        return actor.is_superseded

    def _advance(self, actor: Actor) -> bool:
        """Take one step of an actor; a doubtful commit starts its next life."""
        self.pulse.doing = about["task"] = actor.name
        try:
            return next(self.lives[actor])
        except (DoubtfulCommitError, FencedError) as error:
            if isinstance(error, FencedError) and self._replaced(actor):
                if any(share.lost(actor) for share in self.shares):
                    return True
                raise
            log.warning("%s; starting a new attempt", error)
            self.shared.meter.doubtful[scope_of(actor.name)] += 1
            self.lives[actor] = actor.life()
            return True

    def run(self, stop: Callable[[], bool]) -> None:
        """Advance everybody in turn until told to stop.

        Raises:
            FencedError: If another process has taken over a task that is not shared.
            NewVersionError: If a new version of the plan is deployed, or about to be.
            ErrataError: If something needs an operator.
        """
        try:
            look = Look(self.shared, self.shares)
            while not stop():
                if self.pulse.turn():
                    self.pulse.tell(*look(self.lives))
                if self.shared.view.version > self.plan.version:
                    raise NewVersionError(
                        f"network {self.plan.network!r} moves to version "
                        f"{self.shared.view.version} of its plan; version {self.plan.version} ends"
                    )
                for share in self.shares:
                    share.follow()
                busy = False
                for actor in list(self.lives):
                    busy |= actor in self.lives and self._advance(actor)
                about.pop("task", None)
                if not busy:
                    time.sleep(IDLE_S)
            self.pulse.stopping()
            drain(self.lives, self._advance)
        finally:
            for share in self.shares:
                share.close()
            self._stop(list(self.lives))
            self.cluster.close()
