"""A network as it is deployed on a cluster, for commands that look at it or tell it something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from errata.loading import load
from errata.settings import read_settings
from processors.deployed import read_plan
from processors.plan import Plan, compile_network
from schemas.errors import ErrataError
from topics.cluster import Cluster, ClusterError
from topics.kafka import KafkaCluster


class NotDeployedError(ErrataError):
    """A network was never started on this cluster."""


@contextmanager
def deployed(net: str) -> Iterator[tuple[Cluster, Plan]]:
    """Open the cluster that a network runs on, and compile its plan.

    Raises:
        NotDeployedError: If it doesn't run there.
    """
    plan = compile_network(load(net))
    cluster = KafkaCluster(read_settings().kafka)
    try:
        plan = plan.placed({name: cluster.partitions(s.topic) for name, s in plan.sources.items()})
        _require(cluster, plan, net)
        yield cluster, plan
    finally:
        cluster.close()


def _require(cluster: Cluster, plan: Plan, net: str) -> None:
    need = f"network {plan.network!r} is not deployed on this cluster; run `errata up {net}`"
    try:
        found = read_plan(cluster, plan.network)
    except ClusterError as error:
        raise NotDeployedError(f"{need} ({error})") from error
    if found is None:
        raise NotDeployedError(need)
