"""Deploys a network when one of its processes starts, and opens a deployed one for commands.

Every process calls `prepare`: it checks the network, and deploys it if it is not deployed yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from errata.deploy import bound_sources
from errata.deploy.source_fields import check_order, resolve_deployed
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.network import Network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import (
    Deployed,
    as_deployed,
    deploy,
    read_plan,
    require_plan,
    require_same,
    topic_specs,
)
from errata.processors.tasks import subjects
from errata.schemas.errors import ErrataError
from errata.settings.place import Place
from errata.spark_jobs.reading import log_settings
from errata.topics.admin import check_topics, create_topics
from errata.topics.client import Settings
from errata.topics.cluster import Cluster, MissingTopicError
from errata.topics.kafka import KafkaCluster
from errata.topics.loss_risks import known_risks, make_durable
from errata.topics.refused import RefusedError
from errata.topics.registry import JudgingRegistry, Registry
from errata.topics.registry_server import registry
from errata.topics.settings import TopicSpec

AWAIT_S = 1.0

log = logging.getLogger("errata")


class UnknownNameError(ErrataError):
    """A source, arc or topic was named that the network does not have."""


def prepare(network: Network, place: Place, cluster: Cluster) -> CompiledPlan:
    """Check a network, and deploy it if it is not deployed; otherwise write nothing.

    Raises:
        NetworkError: If it can't work.
        ClusterError: If the cluster, or a user's topic on it, can't be used.
        PlanMismatchError: If another plan is deployed under its name.
        IncompatibleSchemaError: If the registry would refuse its schemas.
    """
    schemas = registry(cluster, place.registry)
    plan = place_plan(compile_network(resolve_deployed(network, schemas, cluster)), cluster)
    deployed = _read_settled(cluster, plan.network)
    if deployed is None:
        deployed = deploy_first(plan, place, cluster, schemas)
    plan = require_same(plan, deployed)
    check_order(plan, deployed, schemas)
    check_topics(place.kafka, _specs(plan, place, cluster))
    return plan


def deploy_first(
    plan: CompiledPlan, place: Place, cluster: Cluster, schemas: JudgingRegistry
) -> Deployed:
    """Create a network's topics, register its schemas, and deploy its first plan.

    Raises:
        IncompatibleSchemaError: If the registry would refuse its schemas; nothing is created then.
    """
    subjects.check(plan, schemas)
    make_topics(plan, place, cluster)
    subjects.register(plan, schemas)
    return deploy(cluster, plan)


def make_topics(plan: CompiledPlan, place: Place, cluster: Cluster) -> None:
    """Create the topics of a plan that do not exist yet; log how records in them may be lost."""
    specs = _specs(plan, place, cluster)
    make_durable(place.kafka, create_topics(place.kafka, specs))
    for risk in known_risks(place.kafka, [spec.name for spec in specs]):
        log.warning("records may be lost: %s", risk)


def _specs(plan: CompiledPlan, place: Place, cluster: Cluster) -> list[TopicSpec]:
    existing = [sink.topic for sink in plan.topology.sinks if _partitions(cluster, sink.topic)]
    return topic_specs(plan, compaction_lag_ms=place.compaction_lag_ms, existing=existing)


def _read_settled(cluster: Cluster, network: str) -> Deployed | None:
    """Return what is deployed; wait while it is being switched to a new version."""
    deployed, is_logged = read_plan(cluster, network), False
    while deployed is not None and deployed.switching_to is not None:
        if not is_logged:
            log.warning(
                "network %r is being moved to version %d: waiting for that; if `errata deploy` was "
                "interrupted, run it again", network, deployed.switching_to,
            )  # fmt: skip
        is_logged = True
        time.sleep(AWAIT_S)
        deployed = read_plan(cluster, network)
    return deployed


def place_plan(plan: CompiledPlan, cluster: Cluster) -> CompiledPlan:
    """Return a plan with the partition counts that the users' topics have on a cluster.

    If this client may not describe a source's topic, its partition count is taken from the deployed
    plan. (The topic belongs to the user, not to the network.)

    Raises:
        MissingTopicError: If the topic of a source does not exist.
        RefusedError: If it may not be described, and the network is not deployed.
        NetworkError: If an arc of another network can't be read as it is declared.
    """
    sinks = {sink.topic: _partitions(cluster, sink.topic) for sink in plan.topology.sinks}
    placed = plan.placed(
        {name: _source_partitions(cluster, plan, name) for name in plan.topology.sources},
        sink_partitions={topic: count for topic, count in sinks.items() if count},
    )
    bound_sources.check(placed, cluster)
    return placed


def _source_partitions(cluster: Cluster, plan: CompiledPlan, source: str) -> int:
    try:
        return cluster.partitions(plan.topology.sources[source].topic)
    except RefusedError:
        deployed = read_plan(cluster, plan.network)
        if deployed is None or source not in deployed.plan.topology.sources:
            raise
        return deployed.plan.placement.topic_partitions[source]


def _partitions(cluster: Cluster, topic: str) -> int:
    """Return the partition count of a sink's topic; 0 if it does not exist or may not be seen."""
    try:
        return cluster.partitions(topic)
    except (MissingTopicError, RefusedError):
        return 0


@dataclass(frozen=True)
class DeployedNetwork:
    """A network on a cluster, with the plan and the registry of its records.

    Args:
        cluster: The cluster that it runs on.
        plan: The plan that it runs.
        registry: The registry with the schemas of its records.
        kafka: librdkafka settings for the cluster.
        deployed: What the plan topic holds for it; None if that has not been read.
    """

    cluster: Cluster
    plan: CompiledPlan
    registry: Registry
    kafka: Settings
    deployed: Deployed | None = None

    def require_order(self, arcs: Iterable[str] | None = None) -> None:
        """Check that arcs are written with this plan's field order, before they are read with it.

        Raises:
            PlanMismatchError: If the arcs are deployed with another order of fields.
            ForeignSchemaError: If the registry does not have their schemas.
        """
        if self.deployed is not None:
            check_order(self.plan, self.deployed, self.registry, arcs)

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc's topic; raises the errors of `require_order`."""
        self.require_order([arc])
        plan = self.plan
        return ArcCodec(plan.topology.arcs[arc], plan.deployment.topic(arc), self.registry)

    def require_topic(self, arc: str) -> str:
        """Return an arc's name if the arc has a topic.

        Raises:
            UnknownNameError: If there is no such arc, or it stays inside its process.
        """
        topology = self.plan.topology
        known = ", ".join(topology.topics)
        if arc in topology.topics:
            return arc
        if arc in topology.bound:
            raise UnknownNameError(f"source {arc!r} is {topology.sources[arc].where}: ask there")
        if arc in topology.arcs:
            raise UnknownNameError(
                f"arc {arc!r} stays inside the processes of scope {topology.scope_of(arc)!r} and "
                f"has no topic; give it keep=, or ask for one of {known}"
            )
        raise UnknownNameError(f"network {topology.network!r} has no arc {arc!r}; it has: {known}")

    def retention(self, arc: str) -> tuple[bool, int]:
        """Return whether an arc's topic is compacted, and for how many ms its records are safe."""
        return log_settings(self.kafka, self.plan.deployment.topic(arc))

    def require_own_source(self, source: str) -> str:
        """Return a source's name if it is one of this network alone.

        Raises:
            UnknownNameError: If there is none, or it is the arc of another network.
        """
        sources = self.plan.topology.sources
        if sources[self.require_known("source", source, sources)].is_bound:
            raise UnknownNameError(
                f"source {source!r} is {sources[source].where}: do that there, with the sources "
                "that the arc comes from"
            )
        return source

    def require_known(self, what: str, name: str, known: Iterable[str]) -> str:
        """Return a name if it is among the known ones.

        Raises:
            UnknownNameError: If it is not; the message lists the known ones.
        """
        if name not in known:
            names = ", ".join(known) or "none"
            raise UnknownNameError(
                f"network {self.plan.network!r} has no {what} {name!r}; it has: {names}"
            )
        return name


def open_network(network: Network, place: Place) -> DeployedNetwork:
    """Return a network on a cluster, whether or not it runs there."""
    cluster = KafkaCluster(place.kafka)
    try:
        schemas = registry(cluster, place.registry)
        plan = place_plan(compile_network(resolve_deployed(network, schemas, cluster)), cluster)
    except BaseException:
        cluster.close()
        raise
    return DeployedNetwork(cluster, plan, schemas, place.kafka)


@contextmanager
def as_it_runs(network: DeployedNetwork, *, start: str = "errata up") -> Iterator[DeployedNetwork]:
    """Yield a network with the plan that is deployed, and close its cluster afterwards.

    Args:
        network: The network as it is declared.
        start: The command that starts it, for the error message.

    Raises:
        NotDeployedError: If it doesn't run there.
        PlanMismatchError: If another network of that name runs there.
    """
    try:
        deployed = require_plan(network.cluster, network.plan.network, remedy=f"run `{start}`")
        yield replace(network, plan=as_deployed(network.plan, deployed), deployed=deployed)
    finally:
        network.cluster.close()
