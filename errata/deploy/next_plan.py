"""What `errata deploy` would deploy: the first plan of a network, or its next version."""

from __future__ import annotations

from dataclasses import dataclass

from errata.deploy.preparation import place_plan
from errata.deploy.source_fields import before_and_after, check_order
from errata.deploy.versions import deployed_part, new_fields, next_version
from errata.processors.compile.compiler import compile_network
from errata.processors.compile.registry_fields import resolve
from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan import deployed
from errata.processors.plan.deployed import Change, Deployed, PlanMismatchError
from errata.processors.plan.plan import Plan
from errata.topics.cluster import Cluster
from errata.topics.registry import Registry


@dataclass(frozen=True)
class Coming:
    """What would be deployed.

    Args:
        old: The deployed plan; None if there is none.
        plan: The plan that would be deployed; `old` if nothing changes.
        changes: The differences between them.
    """

    old: Plan | None
    plan: Plan
    changes: list[Change]


def coming(network: Network, cluster: Cluster, registry: Registry) -> Coming:
    """Return what would be deployed, without creating anything.

    Raises:
        NetworkError: If the network can't work.
        ClusterError: If the cluster or the registry can't be used.
        PlanMismatchError: If the deployed plan can't be changed to the declared one.
    """
    there = deployed.read_plan(cluster, network.name)
    if there is None:
        plan = place_plan(compile_network(resolve(network, registry)), cluster)
        return Coming(None, plan, [])
    before, after = before_and_after(network, registry, there)
    new = place_plan(compile_network(after), cluster)
    if before == after:
        old = deployed.as_deployed(new, there)
    else:
        old = _with_fields(before, there, new, cluster)
    check_order(old, there, registry)
    changes = deployed.changes(old, new) + new_fields(old, new)
    return Coming(old, next_version(old, new) if changes else old, changes)


def _with_fields(before: Network, there: Deployed, new: Plan, cluster: Cluster) -> Plan:
    """Return the deployed plan of a network whose sources have gained fields since."""
    part = deployed_part(before, there)
    try:
        old = deployed.as_deployed(place_plan(compile_network(part), cluster), there)
    except NetworkError as error:
        raise PlanMismatchError(
            f"network {new.network!r} has new fields, and boxes that can't do without them: "
            f"{error}\ndeploy the fields first, without what uses them; `errata backfill` adds "
            "new boxes then"
        ) from error
    more = [name for name in new.boxes if name not in old.boxes]
    if more:
        raise PlanMismatchError(
            f"network {new.network!r} has new fields and new boxes ({', '.join(more)}); take "
            "the boxes out and deploy the fields; `errata backfill` adds the boxes then"
        )
    return old
