"""A network as it is deployed on a cluster, for commands that look at it or tell it something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from errata.loading import load
from errata.settings import read_settings
from errata.worker import place_plan
from processors.arc_topic import ArcCodec
from processors.deployed import as_deployed, require_plan
from processors.plan import Plan, compile_network
from processors.resolve import resolve
from schemas.errors import ErrataError
from topics.cluster import Cluster
from topics.kafka import KafkaCluster
from topics.registry import Registry
from topics.registry_server import registry


class UnknownNameError(ErrataError):
    """A source, arc or topic was named that the network does not have."""


@dataclass(frozen=True)
class Deployment:
    """A network on a cluster.

    Args:
        cluster: Where it runs.
        plan: What runs.
        registry: Where the schemas of its records are.
    """

    cluster: Cluster
    plan: Plan
    registry: Registry

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc's topic."""
        return ArcCodec(self.plan.arcs[arc], self.plan.topic(arc), self.registry)

    def written(self, arc: str) -> str:
        """Return an arc's name if it is one that has a topic.

        Raises:
            UnknownNameError: If there is no such arc, or it stays inside its process.
        """
        plan = self.plan
        if arc in plan.topics:
            return arc
        if arc in plan.arcs:
            raise UnknownNameError(
                f"arc {arc!r} stays inside the processes of scope {plan.scope_of(arc)!r} and has "
                f"no topic; give it keep=, or ask for one of {', '.join(plan.topics)}"
            )
        raise UnknownNameError(
            f"network {plan.network!r} has no arc {arc!r}: it has {', '.join(plan.topics)}"
        )

    def known(self, what: str, name: str, known: Iterable[str]) -> str:
        """Return a name if it is among those that are known.

        Raises:
            UnknownNameError: If it is not; those that are there are told.
        """
        if name not in known:
            there = ", ".join(known) or "none"
            raise UnknownNameError(f"network {self.plan.network!r} has no {what} {name!r}: {there}")
        return name


@contextmanager
def deployed(net: str) -> Iterator[Deployment]:
    """Open the cluster that a network runs on, and compile its plan.

    Raises:
        NotDeployedError: If it doesn't run there.
        PlanMismatchError: If what runs there is another network of that name.
    """
    found = open_deployment(net)
    try:
        there = require_plan(found.cluster, found.plan.network, remedy=f"run `errata up {net}`")
        yield replace(found, plan=as_deployed(found.plan, there))
    finally:
        found.cluster.close()


def open_deployment(net: str) -> Deployment:
    """Return a network on the cluster that the settings name, whether it runs there or not."""
    network, place = load(net), read_settings()
    cluster = KafkaCluster(place.kafka)
    try:
        schemas = registry(cluster, url=place.registry_url)
        plan = place_plan(compile_network(resolve(network, schemas)), cluster)
    except BaseException:
        cluster.close()
        raise
    return Deployment(cluster, plan, schemas)
