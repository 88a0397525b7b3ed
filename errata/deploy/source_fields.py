"""The fields of a deployed network's sources: those it was deployed with, and new ones.

Only `errata deploy` changes them. A source that declares no fields keeps those that it was deployed
with, whatever its producers register later. If it declares more, it has them once they are
deployed. New fields are optional, since existing tuples have no value for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from errata.deploy import bound_sources
from errata.processors.compile.registry_fields import resolve
from errata.processors.declare.declarations import BOUND, Source
from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan.deployed import Deployed, PlanMismatchError, read_plan
from errata.processors.plan.plan import Plan
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields, FieldType
from errata.topics.cluster import Cluster
from errata.topics.registry import Registry, SchemaRegistry


def resolve_deployed(network: Network, registry: Registry, cluster: Cluster) -> Network:
    """Return a network whose sources all have fields and an identity.

    What a source does not declare comes from its deployed plan, or, if it is not deployed, from the
    registry's latest schemas (`registry_fields.resolve`); of a bound one, from the arc.

    Raises:
        NetworkError: If a source can't be completed, or its records can't be read without a
            registry server.
        ClusterError: If the registry gives no answer.
    """
    _require_server(network, registry)
    network = bound_sources.complete(network, registry, cluster)
    if all(box.is_complete for box in _sources(network)):
        return network
    deployed = read_plan(cluster, network.name)
    return resolve(_completed(network, registry, deployed) if deployed else network, registry)


def before_and_after(
    network: Network, registry: Registry, deployed: Deployed
) -> tuple[Network, Network]:
    """Return a network with its sources' deployed fields, and with all their fields.

    Args:
        network: The network as it is declared.
        registry: The registry with the schemas of users and of arcs.
        deployed: What is deployed.

    Raises:
        PlanMismatchError: If a source declares a new field that is not optional.
    """
    plan, after = deployed.plan, resolve(network, registry)
    old, new = dict(after.declarations), dict(after.declarations)
    for box in _sources(after):
        if box.name not in plan.topology.sources or box.envelope == BOUND:
            continue
        current, declared = _written(plan, box.name, registry), _typed(box)
        more = {name: kind for name, kind in declared.items() if name not in current}
        declaration = network.declarations[box.name]
        assert isinstance(declaration, Source)
        if declaration.fields is None:
            more = {name: replace(kind, optional=True) for name, kind in more.items()}
            old[box.name], new[box.name] = (
                replace(box, fields=f) for f in (current, current | more)
            )
        elif more:
            _check_optional(box, more)
            kept = {name: declared[name] for name in current if name in declared}
            old[box.name] = replace(box, fields=kept)
    return replace(after, declarations=old), replace(after, declarations=new)


def check_order(
    plan: Plan, deployed: Deployed, registry: Registry, arcs: Iterable[str] | None = None
) -> None:
    """Check that a plan's arcs have their fields in the order in which they are written.

    The plan's description does not hold that order, but the schemas do. Records with another schema
    are not read.

    Args:
        plan: The plan.
        deployed: What is deployed.
        registry: The schema registry.
        arcs: Arcs with a topic; None for all.

    Raises:
        PlanMismatchError: If an arc has another order.
        ForeignSchemaError: If the registry does not have the arcs' schemas.
    """
    current = deployed.plan
    for arc in current.topology.topics if arcs is None else arcs:
        if not current.topology.arcs[arc].exchange:
            written = list(current.written(arc, registry)[0].fields)
            if written != list(plan.topology.arcs[arc].fields):
                raise PlanMismatchError(
                    f"arc {arc!r} of network {plan.network!r} is deployed with its fields in "
                    f"another order, {', '.join(written)}; declare them in that order again"
                )


def _completed(network: Network, registry: Registry, deployed: Deployed) -> Network:
    plan, declarations = deployed.plan, dict(network.declarations)
    for box in _sources(network):
        if box.name in plan.topology.sources and box.envelope != BOUND:
            fields = _written(plan, box.name, registry) if box.fields is None else box.fields
            identity = (
                plan.topology.arcs[box.name].identity if box.identity is None else box.identity
            )
            declarations[box.name] = replace(box, fields=fields, identity=identity)
    return replace(network, declarations=declarations)


def _require_server(network: Network, registry: Registry) -> None:
    """Check that a registry has the schemas of sources in Protobuf: the topic has Avro's alone."""
    if isinstance(registry, SchemaRegistry):
        need, remedy = "a schema registry, for format='protobuf'", "set SCHEMA_REGISTRY_URL"
        faults = [
            Fault(box.name, need, "none that is configured", remedy, box.place)
            for box in _sources(network)
            if box.format == "protobuf"
        ]
        if faults:
            raise NetworkError(network.name, faults)


def _written(plan: Plan, source: str, registry: Registry) -> dict[str, FieldType]:
    """Return the fields of a source in the order of its arc's records."""
    arc, _ = plan.written(source, registry)
    return {name: arc.fields[name] for name in arc.visible}


def _typed(box: Source) -> Fields:
    """Return a source's fields; none if they can't be parsed, which the planner reports."""
    try:
        return {name: FieldType.parse(kind) for name, kind in (box.fields or {}).items()}
    except ErrataError:
        return {}


def _check_optional(box: Source, more: Mapping[str, FieldType]) -> None:
    for name, kind in more.items():
        if not kind.optional:
            raise PlanMismatchError(
                f"source {box.name!r} is deployed without field {name!r}, for which existing "
                f"tuples have no value; declare it as '{kind}?', or give the network another name"
            )


def _sources(network: Network) -> Iterator[Source]:
    return (box for box in network.declarations.values() if isinstance(box, Source))
