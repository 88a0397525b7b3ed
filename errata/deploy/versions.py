"""The plan that `errata deploy` would deploy: the first one of a network, or its next version.

The next version may have other numbers of partitions; more optional fields of sources, and of all
arcs that pass them on; more boxes with their arcs, exchanges, sinks and scopes; or other boxes that
are connection points. Everything else must stay as it is deployed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from errata.deploy import bound_sources
from errata.deploy.deployment import place_plan
from errata.deploy.source_fields import before_and_after, check_order, resolve_deployed
from errata.processors.compile.compiler import compile_network
from errata.processors.compile.registry_fields import resolve
from errata.processors.declare.declarations import Source
from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan import deployed
from errata.processors.plan.arc_name import owner_of
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import Change, Deployed, PlanMismatchError
from errata.processors.tasks import rebuild
from errata.schemas.errors import ErrataError
from errata.topics.cluster import Cluster
from errata.topics.registry import Registry


class NotFilledError(ErrataError):
    """Boxes were added that the user did not ask to fill."""


@dataclass(frozen=True)
class NextVersion:
    """What would be deployed.

    Args:
        old: The deployed plan; None if there is none.
        plan: The plan that would be deployed; `old` if nothing changes.
        changes: The differences between them.
    """

    old: CompiledPlan | None
    plan: CompiledPlan
    changes: list[Change]


def plan_next(network: Network, cluster: Cluster, registry: Registry) -> NextVersion:
    """Return what would be deployed, without creating anything.

    Raises:
        NetworkError: If the network can't work.
        ClusterError: If the cluster or the registry can't be used.
        PlanMismatchError: If the deployed plan can't be changed to the declared one.
    """
    network = bound_sources.complete(network, registry, cluster)
    current = deployed.read_plan(cluster, network.name)
    if current is None:
        plan = place_plan(compile_network(resolve(network, registry)), cluster)
        return NextVersion(None, plan, [])
    before, after = before_and_after(network, registry, current)
    new = place_plan(compile_network(after), cluster)
    if before == after:
        old = deployed.as_deployed(new, current)
    else:
        old = _with_fields(before, current, new, cluster)
    check_order(old, current, registry)
    changes = deployed.changes(old, new) + new_fields(old, new)
    return NextVersion(old, next_version(old, new) if changes else old, changes)


def _with_fields(
    before: Network, current: Deployed, new: CompiledPlan, cluster: Cluster
) -> CompiledPlan:
    """Return the deployed plan of a network whose sources have gained fields since."""
    part = deployed_part(before, current)
    try:
        old = deployed.as_deployed(place_plan(compile_network(part), cluster), current)
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


def deployed_part(network: Network, current: Deployed) -> Network:
    """Return a network without the boxes that are not deployed.

    Args:
        network: A network whose deployed parts are all unchanged (`plan.deployed.added`).
        current: What is deployed.
    """
    names = {owner_of(name) for name in current.plan.topology.arcs}
    declarations = {n: box for n, box in network.declarations.items() if n in names}
    sinks = [sink for sink in network.sinks if sink.arc in names]
    return replace(network, declarations=declarations, sinks=sinks)


def with_deployed_points(network: Network, current: Deployed) -> Network:
    """Return a network of which the same boxes are connection points as are deployed."""
    arcs, declarations = current.description["arcs"], dict(network.declarations)
    for name in toggled_points(network, current):
        declarations[name] = replace(declarations[name], keep=arcs[name]["keep_ms"])
    return replace(network, declarations=declarations)


def toggled_points(network: Network, current: Deployed) -> dict[str, bool]:
    """Return the boxes that are connection points either as declared or as deployed, not both.

    Args:
        network: The network as it is declared.
        current: What is deployed.

    Returns:
        By box, whether it is one as declared.
    """
    arcs = current.description["arcs"]
    return {
        name: box.keep is not None
        for name, box in network.declarations.items()
        if not isinstance(box, Source) and name in arcs
        if (box.keep is None) != (arcs[name]["keep_ms"] is None)
    }


def plan_points(
    network: Network, current: Deployed, cluster: Cluster, registry: Registry
) -> NextVersion:
    """Return the version in which other boxes are connection points, as they are declared.

    Args:
        network: The network as it is declared.
        current: What is deployed.
        cluster: The cluster.
        registry: The schema registry.

    Raises:
        NetworkError: If a box would have no legal mode.
        PlanMismatchError: If anything else differs.
        CannotRebuildError: If what a new connection point holds can't be recomputed.
    """
    network = resolve_deployed(network, registry, cluster)
    before = with_deployed_points(network, current)
    old = deployed.as_deployed(place_plan(compile_network(before), cluster), current)
    new = place_plan(compile_network(network), cluster)
    if changes := deployed.changes(old, new):
        raise PlanMismatchError(
            f"network {new.network!r} is deployed with other numbers of partitions "
            f"({', '.join(map(str, changes))}); run `errata deploy` first"
        )
    for name, is_new in toggled_points(network, current).items():
        if is_new:
            rebuild.path_to(old, name, at_rest=True)
    return NextVersion(old, next_version(old, new), [])


def check_requested(
    plan: CompiledPlan, *, requested: Collection[str], added: Collection[str]
) -> None:
    """Check that the added boxes are the requested ones, and those that they need.

    Args:
        plan: The network's plan with all boxes.
        requested: Boxes to fill.
        added: Boxes that are not deployed.

    Raises:
        NotFilledError: If others were added.
    """
    needed = {owner_of(arc) for box in requested for arc in _upstream_of(plan, box)}
    others = [box for box in added if box not in needed]
    if others:
        names = ", ".join(map(repr, others))
        raise NotFilledError(
            f"network {plan.network!r} has other boxes that are not deployed, and that "
            f"{' and '.join(map(repr, requested))} can do without: {names}; fill them too: `errata "
            f"backfill NET {' '.join([*requested, *others])}`, or take them out"
        )


def _upstream_of(plan: CompiledPlan, box: str) -> Iterator[str]:
    """Yield a box and all arcs upstream of it."""
    yield box
    for arc in plan.boxes[box].inputs if box in plan.boxes else ():
        yield from _upstream_of(plan, arc)


def new_arcs(old: CompiledPlan, new: CompiledPlan) -> list[str]:
    """Return the arcs to fill: new arcs that are written to topics."""
    emitted = [arc for scope in new.topology.scopes.values() for arc in new.topology.emitted(scope)]
    return [
        arc
        for arc in emitted
        if arc not in old.topology.arcs and not new.topology.arcs[arc].exchange
    ]


def new_fields(old: CompiledPlan, new: CompiledPlan) -> list[Change]:
    """Return the new fields of sources."""
    return [
        Change("field", f"{name}.{field}", None, str(kind))
        for name, source in new.topology.sources.items()
        for field, kind in source.arc.fields.items()
        if name in old.topology.arcs and field not in old.topology.arcs[name].fields
    ]


def next_version(old: CompiledPlan, new: CompiledPlan) -> CompiledPlan:
    """Return a plan as the version after the deployed one.

    Args:
        old: The deployed plan.
        new: The same network with other numbers of partitions, more optional fields of sources, or
            more boxes.

    Raises:
        PlanMismatchError: If a source can't be moved, or an added box changes where other boxes
            write.
        CannotRebuildError: If a job on Spark can't rebuild its states.
    """
    _check_sources(old, new)
    _check_topics(old, new)
    for scope in new.topology.scopes.values():
        if scope.on_spark:
            rebuild.require_history(
                new, scope, why="a new version makes the states of Spark's jobs anew"
            )
    version = old.deployment.version + 1
    both = [arc for arc in new.topology.topics if arc in old.topology.topics]
    changed = {
        arc
        for arc in both
        if old.placement.partitions[arc] != new.placement.partitions[arc]
        or old.topology.arcs[arc].fields != new.topology.arcs[arc].fields
    }
    changed |= {arc for arc in _toggled(old, new) if arc in new.topology.topics}
    # Only the records of the task that writes an arc count. On Spark a connection point divides a
    # job in two, so that other arcs may get other writers.
    changed |= {arc for arc in both if old.topology.scope_of(arc) != new.topology.scope_of(arc)}
    generations = old.deployment.generations | dict.fromkeys(changed, version)
    return replace(
        new, deployment=replace(old.deployment, version=version, generations=generations)
    )


def _toggled(old: CompiledPlan, new: CompiledPlan) -> set[str]:
    """Return the arcs that are connection points in one of two versions only."""
    before, after = old.topology.arcs, new.topology.arcs
    return {
        arc
        for arc in before.keys() & after.keys()
        if before[arc].is_connection_point != after[arc].is_connection_point
    }


def _check_sources(old: CompiledPlan, new: CompiledPlan) -> None:
    for name, source in new.topology.sources.items():
        old_count, new_count = (plan.placement.topic_partitions[name] for plan in (old, new))
        if old_count != new_count and not source.rekey:
            raise PlanMismatchError(
                f"topic {source.topic!r} of source {name!r} has {new_count} partitions, but was "
                f"deployed with {old_count}: records of one identity may be in another partition "
                "now; give the source rekey=True under another name of the network"
            )
        wanted = f"{new.placement.partitions[name]} partitions"
        moved = old.placement.partitions[name] != new.placement.partitions[name]
        if source.arc.fields != old.topology.arcs[name].fields:
            moved, wanted = True, "a topic with more fields"
        if moved and not source.arc.is_connection_point:
            raise PlanMismatchError(
                f"source {name!r} keeps no history, so nothing of it can be moved to "
                f"{wanted}; give it keep= under another name of the network"
            )


def _check_topics(old: CompiledPlan, new: CompiledPlan) -> None:
    """Check that deployed arcs keep their topics, or stay without one."""
    toggled = _toggled(old, new)
    for arc in (arc for arc in old.topology.arcs if arc not in toggled):
        had_topic, has_topic = arc in old.topology.topics, arc in new.topology.topics
        scope = old.topology.scope_of(arc)
        readers = [box for box in new.boxes if arc in new.boxes[box].inputs]
        more = dict.fromkeys(owner_of(box) for box in readers if box not in old.boxes)
        new_readers = ", ".join(map(repr, more))
        if has_topic and not had_topic:
            raise PlanMismatchError(
                f"arc {arc!r} stays inside scope {scope!r} as it is deployed, and has "
                f"no topic from which {new_readers} could read it; give {new_readers} "
                f"scope={scope!r} (arcs with keep= have topics from the start)"
            )
        if had_topic and not has_topic:
            raise PlanMismatchError(
                f"arc {arc!r} is deployed with a topic, which it would lose with {new_readers} as "
                f"its reader inside scope {scope!r}; give {new_readers} another scope="
            )
