"""Preparation of a process: the network is checked, and deployed if it is not deployed yet."""

from __future__ import annotations

import logging
import time

from errata.deploy.source_fields import check_order, resolve_deployed
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.network import Network
from errata.processors.plan.deployed import Deployed, deploy, read_plan, require_same, topic_specs
from errata.processors.plan.plan import Plan
from errata.processors.tasks import subjects
from errata.settings.place import Place
from errata.topics.admin import check_topics, create_topics
from errata.topics.cluster import Cluster, MissingTopicError
from errata.topics.refused import RefusedError
from errata.topics.registry import JudgingRegistry
from errata.topics.registry_server import registry
from errata.topics.settings import TopicSpec

AWAIT_S = 1.0

log = logging.getLogger("errata")


def prepare(network: Network, place: Place, cluster: Cluster) -> Plan:
    """Check a network, and deploy it if it is not deployed; otherwise write nothing.

    Raises:
        NetworkError: If it can't work.
        ClusterError: If the cluster, or a user's topic on it, can't be used.
        PlanMismatchError: If another plan is deployed under its name.
        IncompatibleSchemaError: If the registry would refuse its schemas.
    """
    schemas = registry(cluster, place.registry)
    plan = place_plan(compile_network(resolve_deployed(network, schemas, cluster)), cluster)
    found = _settled(cluster, plan.network)
    if found is None:
        found = deploy_first(plan, place, cluster, schemas)
    plan = require_same(plan, found)
    check_order(plan, found, schemas)
    check_topics(place.kafka, _specs(plan, place, cluster))
    return plan


def deploy_first(plan: Plan, place: Place, cluster: Cluster, schemas: JudgingRegistry) -> Deployed:
    """Create a network's topics, register its schemas, and deploy its first plan.

    Raises:
        IncompatibleSchemaError: If the registry would refuse its schemas; nothing is created then.
    """
    subjects.check(plan, schemas)
    make_topics(plan, place, cluster)
    subjects.register(plan, schemas)
    return deploy(cluster, plan)


def make_topics(plan: Plan, place: Place, cluster: Cluster) -> None:
    """Create the topics of a plan that do not exist yet."""
    create_topics(place.kafka, _specs(plan, place, cluster))


def _specs(plan: Plan, place: Place, cluster: Cluster) -> list[TopicSpec]:
    found = [sink.topic for sink in plan.sinks if _partitions(cluster, sink.topic)]
    return topic_specs(plan, compaction_lag_ms=place.compaction_lag_ms, existing=found)


def _settled(cluster: Cluster, network: str) -> Deployed | None:
    """Return what is deployed; wait while it is being switched to a new version."""
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
    """Return a plan with the partition counts that the users' topics have on a cluster.

    If this client may not describe a source's topic, its partition count is taken from the deployed
    plan. (The topic belongs to the user, not to the network.)

    Raises:
        MissingTopicError: If the topic of a source does not exist.
        RefusedError: If it may not be described, and the network is not deployed.
    """
    sinks = {sink.topic: _partitions(cluster, sink.topic) for sink in plan.sinks}
    return plan.placed(
        {name: _source_partitions(cluster, plan, name) for name in plan.sources},
        sink_partitions={topic: count for topic, count in sinks.items() if count},
    )


def _source_partitions(cluster: Cluster, plan: Plan, source: str) -> int:
    try:
        return cluster.partitions(plan.sources[source].topic)
    except RefusedError:
        there = read_plan(cluster, plan.network)
        if there is None or source not in there.plan["sources"]:
            raise
        return int(there.plan["sources"][source]["topic_partitions"])


def _partitions(cluster: Cluster, topic: str) -> int:
    """Return the partition count of a sink's topic; 0 if it does not exist or may not be seen."""
    try:
        return cluster.partitions(topic)
    except (MissingTopicError, RefusedError):
        return 0
