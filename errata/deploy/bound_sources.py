"""Sources that are bound to arcs of other networks: completed and checked by what runs there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from errata.processors.arcs.bound import upstream_plan
from errata.processors.declare.declarations import BOUND, Source
from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.plan import NoSuchArcError, Plan
from errata.processors.plan.topology import Source as Compiled
from errata.schemas.arc import Arc, usual_shift_ms
from errata.topics import names
from errata.topics.cluster import Cluster
from errata.topics.registry import Registry


def complete(network: Network, registry: Registry, cluster: Cluster) -> Network:
    """Return a network whose bound sources have what they don't declare: that of their arcs.

    That is their fields, their identity, their event time and the fields that they are partitioned
    by.

    Raises:
        NetworkError: If an arc does not exist.
        NotDeployedError: If its network is not deployed.
        ForeignSchemaError: If its schema is in another registry.
    """
    declarations, faults = dict(network.declarations), []
    for name, box in network.declarations.items():
        if not isinstance(box, Source) or box.envelope != BOUND:
            continue
        named = names.parse_arc_topic(box.topic)
        if named is None:
            continue  # the compiler says so
        plan, arc = upstream_plan(cluster, named[0], source=name), named[1]
        try:
            written, _ = plan.written(arc, registry)
        except NoSuchArcError as error:
            need, remedy = "the topic of an arc that can be read", "name one of these"
            faults.append(Fault(name, need, f"{box.topic!r}: {error}", remedy, box.place))
            continue
        fields, event_time = box.fields, box.event_time
        if fields is None:
            fields = {field: written.fields[field] for field in written.visible}
        if event_time is None:  # it may be hidden
            event_time = written.event_time
            fields = {**fields, event_time: written.fields[event_time]}
        declarations[name] = replace(
            box,
            fields=fields,
            event_time=event_time,
            identity=written.identity if box.identity is None else box.identity,
            partition_by=written.partition_by if box.partition_by is None else box.partition_by,
        )
    if faults:
        raise NetworkError(network.name, faults)
    return replace(network, declarations=declarations)


def check(plan: CompiledPlan, cluster: Cluster) -> None:
    """Check the bound sources of a plan against the arcs that they are bound to.

    Raises:
        NetworkError: If one can't be read as it is declared.
        NotDeployedError: If a network upstream is not deployed.
    """
    faults = list[Fault]()
    for network, sources in plan.topology.upstreams.items():
        upstream = upstream_plan(cluster, network, source=sources[0].arc.name)
        for source in sources:
            faults += [Fault(source.arc.name, *why) for why in _faults(plan, source, upstream)]
    if faults:
        raise NetworkError(plan.network, faults)


def _faults(plan: CompiledPlan, source: Compiled, upstream: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield what was needed, what was found, and what to do."""
    arc, name = source.arc, source.bound_to[1]
    above = upstream.readable(name)
    topic, where = upstream.deployment.topic(name), source.where
    if source.topic != topic:
        yield f"the topic of {where}", repr(source.topic), f"declare topic={topic!r}"
    for field, kind in arc.fields.items():
        if above.fields.get(field) != kind:
            there = above.fields.get(field)
            found = f"{kind} here, {'no such field' if there is None else there} there"
            yield f"field {field!r} as {where} has it", found, "declare it as it is there"
    hidden = {upstream.topology.sources[s].event_time for s in upstream.topology.sources_of[name]}
    for what, own, theirs in (
        ("identity", set(arc.identity), set(above.identity)),
        ("partition_by", list(arc.partition_by), list(above.partition_by)),
        ("event_time", _time(arc), _time(above)),
        ("event_time", source.event_time, next(iter(hidden)) if source.event_time else None),
    ):
        if own != theirs:
            yield f"the {what} of {where}, {theirs}", str(own), f"declare the same {what}"
    if above.keep_ms is None:
        need, remedy = f"keep= of {where}", "declare it there: what it has held must still be there"
        yield need, "none", remedy
        return
    kept = [upstream.topology.arcs[s].keep_ms for s in upstream.topology.sources_of[name]]
    if arc.keep_ms is None:
        return
    revised_ms = max((ms for ms in kept if ms is not None), default=0)
    if None in kept or name in upstream.topology.moved:
        yield (
            f"no keep=, since tuples of {where} may be revised at any age",
            f"{arc.keep_ms} ms",
            "leave keep= out, or bind an arc of sources that have keep=",
        )
    elif arc.keep_ms < revised_ms:
        yield (
            f"a keep= of {revised_ms} ms at least: for so long {where} may be revised",
            f"{arc.keep_ms} ms",
            "declare a longer keep=",
        )
    reach_ms = plan.reach_ms.get(arc.name)
    if reach_ms is None or reach_ms > above.keep_ms:
        needed = "any age" if reach_ms is None else f"{reach_ms} ms"
        yield (
            f"{where} to keep tuples of {needed}, which windows here need to be rebuilt",
            f"{above.keep_ms} ms",
            "declare a longer keep= of that arc: a filter of all tuples may have one of its own",
        )


def _time(arc: Arc) -> str:
    """Return an arc's event time, as text."""
    shift = arc.event_time_shift_ms
    return (
        f"{arc.event_time} {shift:+} ms"
        if shift != usual_shift_ms(arc.event_time)
        else arc.event_time
    )
