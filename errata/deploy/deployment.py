"""A network as it is deployed on a cluster, for commands that inspect it or write to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from errata.deploy.preparation import place_plan
from errata.deploy.source_fields import check_order, resolve_deployed
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.network import Network
from errata.processors.plan.deployed import Deployed, as_deployed, require_plan
from errata.processors.plan.plan import Plan
from errata.schemas.errors import ErrataError
from errata.settings.place import Place
from errata.spark_jobs.reading import log_settings
from errata.topics.client import Settings
from errata.topics.cluster import Cluster
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import Registry
from errata.topics.registry_server import registry


class UnknownNameError(ErrataError):
    """A source, arc or topic was named that the network does not have."""


@dataclass(frozen=True)
class Deployment:
    """A network on a cluster.

    Args:
        cluster: The cluster that it runs on.
        plan: The plan that it runs.
        registry: The registry with the schemas of its records.
        kafka: librdkafka settings for the cluster.
        there: What the plan topic holds for it; None if that has not been read.
    """

    cluster: Cluster
    plan: Plan
    registry: Registry
    kafka: Settings
    there: Deployed | None = None

    def require_order(self, arcs: Iterable[str] | None = None) -> None:
        """Check that arcs are written with this plan's field order, before they are read with it.

        Raises:
            PlanMismatchError: If the arcs are deployed with another order of fields.
            ForeignSchemaError: If the registry does not have their schemas.
        """
        if self.there is not None:
            check_order(self.plan, self.there, self.registry, arcs)

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc's topic; raises the errors of `require_order`."""
        self.require_order([arc])
        return ArcCodec(self.plan.arcs[arc], self.plan.topic(arc), self.registry)

    def written(self, arc: str) -> str:
        """Return an arc's name if the arc has a topic.

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

    def kept(self, arc: str) -> tuple[bool, int]:
        """Return whether an arc's topic is compacted, and for how many ms its records are safe."""
        return log_settings(self.kafka, self.plan.topic(arc))

    def known(self, what: str, name: str, known: Iterable[str]) -> str:
        """Return a name if it is among the known ones.

        Raises:
            UnknownNameError: If it is not; the message lists the known ones.
        """
        if name not in known:
            there = ", ".join(known) or "none"
            raise UnknownNameError(f"network {self.plan.network!r} has no {what} {name!r}: {there}")
        return name


def open_network(network: Network, place: Place) -> Deployment:
    """Return a network on a cluster, whether or not it runs there."""
    cluster = KafkaCluster(place.kafka)
    try:
        schemas = registry(cluster, place.registry)
        plan = place_plan(compile_network(resolve_deployed(network, schemas, cluster)), cluster)
    except BaseException:
        cluster.close()
        raise
    return Deployment(cluster, plan, schemas, place.kafka)


@contextmanager
def as_it_runs(found: Deployment, *, start: str = "errata up") -> Iterator[Deployment]:
    """Yield a network with the plan that is deployed, and close its cluster afterwards.

    Args:
        found: The network as it is declared.
        start: The command that starts it, for the error message.

    Raises:
        NotDeployedError: If it doesn't run there.
        PlanMismatchError: If another network of that name runs there.
    """
    try:
        there = require_plan(found.cluster, found.plan.network, remedy=f"run `{start}`")
        yield replace(found, plan=as_deployed(found.plan, there), there=there)
    finally:
        found.cluster.close()
