"""What one process does: deploys its network if nobody has, then advances its tasks or sweepers.

The tasks of a process are generators that one thread advances in turn. A commit of which the
outcome is not known ends a task's life and starts its next one; being fenced ends the process,
since another one has taken the work over.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from processors.deployed import deploy, topic_specs
from processors.desk import Desk, TopicDesk
from processors.ingest_task import IngestTask
from processors.network import Network
from processors.plan import Plan, compile_network
from processors.scope_task import ScopeTask
from processors.task import Shared, Task
from processors.view import View
from schemas.errors import ErrataError
from sweepers.beside import Beside
from sweepers.service import Service
from sweepers.sweeper import Sweeper
from topics.cluster import Cluster, DoubtfulCommitError, FencedError
from topics.create import create_topics
from topics.kafka import KafkaCluster
from topics.registry_server import registry

log = logging.getLogger("errata")

DAY_MS = 86_400_000
IDLE_S = 0.004
"""Sleep of a process that has nothing to do."""


class NoSuchPartError(ErrataError):
    """A scope, arc or partition was named that the network does not have."""


class Actor(Protocol):
    """Something with a life that is advanced step by step."""

    def life(self) -> Generator[bool, None, None]:
        """Start a life; yields whether there was something to do."""


@dataclass(frozen=True)
class Place:
    """Where a process works.

    Args:
        kafka: librdkafka settings.
        state: Folder of local state: indexes and sweepers' copies.
        compaction_lag_ms: How long superseded records stay in connection points.
        registry_url: A schema registry; None: schemas are kept in a topic.
    """

    kafka: Mapping[str, str | int]
    state: Path
    compaction_lag_ms: int = DAY_MS
    registry_url: str | None = None


def prepare(network: Network, place: Place, cluster: Cluster) -> Plan:
    """Judge a network, make its topics and deploy its plan, unless that has been done.

    Raises:
        NetworkError: If it can't work.
        ClusterError: If the cluster, or a user's topic on it, can't be used.
        PlanMismatchError: If another plan is deployed under its name.
    """
    plan = compile_network(network)
    plan = plan.placed({name: cluster.partitions(s.topic) for name, s in plan.sources.items()})
    create_topics(place.kafka, topic_specs(plan, compaction_lag_ms=place.compaction_lag_ms))
    return replace(plan, deployment=deploy(cluster, plan))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Worker:
    """One process's share of a network.

    Args:
        network: The network.
        place: Where it works.
    """

    def __init__(self, network: Network, place: Place) -> None:
        self.place = place
        self.cluster = KafkaCluster(place.kafka)
        self.plan = prepare(network, place, self.cluster)
        self.shared = Shared(
            self.cluster,
            self.plan,
            registry(self.cluster, url=place.registry_url),
            View(self.cluster, plan=self.plan),
            place.compaction_lag_ms,
        )
        self.actors: list[Actor] = []
        self.state = place.state / self.plan.network / self.plan.deployment

    def add_scope(
        self, name: str, *, partitions: Sequence[int] | None = None, sweep_beside: bool = False
    ) -> None:
        """Take on the tasks of a scope.

        Args:
            name: A scope, or ``ingest.<source>``.
            partitions: Which of its partitions; None: all.
            sweep_beside: Whether the tasks ask sweepers in this process instead of over topics.

        Raises:
            NoSuchPartError: If there is no such scope or partition.
        """
        known = [f"ingest.{source}" for source in self.plan.sources] + list(self.plan.scopes)
        if name not in known:
            raise NoSuchPartError(f"no scope {name!r} in the network: it has {', '.join(known)}")
        count = len(self.shared.view.tasks(name))
        wanted = range(count) if partitions is None else partitions
        for partition in wanted:
            if not 0 <= partition < count:
                raise NoSuchPartError(f"scope {name!r} has partitions 0 to {count - 1}")
            if name.startswith("ingest."):
                self.actors.append(self._ingest(name, partition))
            else:
                self.actors.append(self._scope_task(name, partition, sweep_beside))

    def _ingest(self, name: str, partition: int) -> IngestTask:
        source = self.plan.sources[name.removeprefix("ingest.")]
        folder = self.state / f"{name}.{partition}"
        return IngestTask(self.shared, source, partition=partition, folder=folder, clock_ms=_now_ms)

    def _scope_task(self, name: str, partition: int, sweep_beside: bool) -> ScopeTask:
        scope = self.plan.scopes[name]
        desk: Desk
        if sweep_beside:
            asked = {self.plan.paths[b].anchor.name for b in scope.boxes if b in self.plan.paths}
            results = (self.plan.choices[b].results for b in scope.boxes if b in self.plan.choices)
            asked |= {arc for arc in results if arc is not None}
            folder = f"beside.{name}"
            sweepers = {arc: self._sweeper(arc, partition, folder) for arc in sorted(asked)}
            self.actors += sweepers.values()
            desk = Beside(sweepers)
        else:
            desk = TopicDesk(self.shared, scope=name, partition=partition)
        return ScopeTask(self.shared, scope, partition=partition, desk=desk)

    def _sweeper(self, arc: str, partition: int, folder: str) -> Sweeper:
        state = self.state / folder / f"{arc}.{partition}"
        return Sweeper(self.shared, arc, partition=partition, folder=state, clock_ms=_now_ms)

    def add_sweepers(self, arcs: Sequence[str] | None = None) -> None:
        """Take on the sweepers of some connection points, all partitions; None: all that are asked.

        Raises:
            NoSuchPartError: If an arc is not a connection point that some box asks.
        """
        asked = self.plan.asked()
        for arc in asked if arcs is None else arcs:
            if arc not in asked:
                raise NoSuchPartError(
                    f"no box asks a sweeper of {arc!r}: sweepers are needed for {', '.join(asked)}"
                )
            for partition in range(self.plan.partition_count(arc)):
                sweeper = self._sweeper(arc, partition, "sweep")
                self.actors.append(Service(self.shared, sweeper))

    def _replaced(self, actor: Actor) -> bool:
        """Whether another process has taken a task over; a time-out fences in the same way."""
        if not isinstance(actor, Task):
            return True
        end = self.cluster.end(self.shared.view.source)
        while not self.shared.view.has_read_to(end):
            self.shared.view.poll()
            time.sleep(IDLE_S)
        return self.shared.view.of(actor.name).attempt > actor.report.attempt

    def run(self, stop: Callable[[], bool]) -> None:
        """Advance everybody in turn until told to stop.

        Raises:
            FencedError: If another process has taken over a task.
            ErrataError: If something needs an operator.
        """
        gc.set_threshold(200_000, 20, 100)  # batches of many objects come and go by the millisecond
        lives = [actor.life() for actor in self.actors]
        try:
            while not stop():
                busy = False
                for number, actor in enumerate(self.actors):
                    try:
                        busy |= next(lives[number])
                    except (DoubtfulCommitError, FencedError) as error:
                        if isinstance(error, FencedError) and self._replaced(actor):
                            raise
                        log.warning("%s; starting a new attempt", error)
                        lives[number] = actor.life()
                if not busy:
                    time.sleep(IDLE_S)
        finally:
            for life in lives:
                life.close()
            self.cluster.close()
