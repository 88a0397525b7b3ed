"""The least rights that each role of a network needs on its cluster.

Only the deployer creates topics and writes schemas and the plan. `errata acls` prints these rights;
each process checks its own when it starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.processors.plan.arc_name import exchange_of
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.task_id import ScopeId
from errata.topics import names
from errata.topics.refused import (
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Right,
)

DEPLOYER, READER, OPERATOR = "deployer", "reader", "operator"
UNDEPLOYER = "undeployer"
SCOPE, SPARK = "scope.", "spark."
"""Prefix of a scope of boxes, here or on Spark; the other roles are named by their `ScopeId`."""


def roles(plan: CompiledPlan) -> dict[str, list[Right]]:
    """Return the rights of every role of a network, by role name."""
    rights = {DEPLOYER: of_deployer(plan)}
    rights |= {
        _role(plan, name): [*of_scope(plan, name), *to_trim(plan, name)]
        for name in plan.topology.all_scopes
    }
    rights |= {
        str(ScopeId.of_sweeper(arc)): of_sweeper(plan, arc) for arc in plan.replayed_points()
    }
    rights |= {READER: of_reader(plan), OPERATOR: of_operator(plan)}
    return rights | {UNDEPLOYER: of_undeployer(plan)}


def _role(plan: CompiledPlan, scope: str) -> str:
    if scope in plan.topology.jobs:
        return f"{SPARK}{scope}"
    return scope if ScopeId.parse(scope).is_ingest else f"{SCOPE}{scope}"


def of_scope(plan: CompiledPlan, scope: str) -> list[Right]:
    """Return what the tasks of a scope need; also for a source's scope and a scope on Spark."""
    name, scope_id = f"{plan.network}.{scope}", ScopeId.parse(scope)
    if scope_id.is_ingest:
        source = plan.topology.sources[scope_id.name]
        arc = source.arc.name
        reads = [source.topic]
        asks, sinks = list[str](), plan.topology.sinks_of(arc) if not source.rekey else []
    else:
        boxes = plan.topology.scopes[scope]
        reads = [plan.deployment.topic(arc) for arc in boxes.inputs]
        asks = plan.replayed_points_of(boxes)
        sinks = [
            sink for arc in (*boxes.boxes, *boxes.outputs) for sink in plan.topology.sinks_of(arc)
        ]
    outputs = [plan.deployment.topic(arc) for arc in _written(plan, scope)]
    bound = [scope_id.name] if scope_id.is_ingest else plan.topology.scopes[scope].inputs
    # A new attempt reads what it has written: its index, its tombstones, and to find lost records.
    reads += outputs
    writes = [*outputs, names.progress_topic(plan.network), names.dead_letters_topic(plan.network)]
    writes += [plan.deployment.requests(arc) for arc in asks] + [sink.topic for sink in sinks]
    if not scope_id.is_ingest:
        reads.append(plan.deployment.replies(plan.topology.scopes[scope]))
        reads += [sink.topic for sink in sinks]  # read back after a long outage, or a loss
    return [
        *_common(plan),
        *(Right(READ, TOPIC, topic) for topic in reads),
        *(Right(WRITE, TOPIC, topic) for topic in writes),
        *_settings(plan, [*reads, *writes]),
        *_upstream(plan, bound),
        Right(WRITE, TRANSACTIONAL_ID, f"{name}.", True),
        Right(READ, GROUP, name),  # for --shared
        Right(READ, GROUP, f"{name}.", True),
    ]


def to_trim(plan: CompiledPlan, scope: str) -> list[Right]:
    """Return what the tasks of a scope need to delete old records; without it the records stay."""
    trimmed = [arc for arc in _written(plan, scope) if arc in plan.trimmed]
    return [Right(DELETE, TOPIC, plan.deployment.topic(arc)) for arc in trimmed]


def _written(plan: CompiledPlan, scope: str) -> list[str]:
    """Return the arcs that a scope writes to topics."""
    scope_id = ScopeId.parse(scope)
    if not scope_id.is_ingest:
        return list(plan.topology.scopes[scope].outputs)
    source = plan.topology.sources[scope_id.name]
    if source.is_bound:
        return []
    return [exchange_of(scope_id.name) if source.rekey else scope_id.name]


def of_sweeper(plan: CompiledPlan, arc: str) -> list[Right]:
    """Return what the sweepers of a connection point need."""
    reads = [plan.deployment.topic(arc), plan.deployment.requests(arc)]
    asking = [
        scope for scope in plan.topology.scopes.values() if arc in plan.replayed_points_of(scope)
    ]
    writes = [plan.deployment.replies(scope) for scope in asking]
    return [
        *_common(plan),
        *(Right(READ, TOPIC, topic) for topic in reads),
        *(Right(WRITE, TOPIC, t) for t in [names.progress_topic(plan.network), *writes]),
        *_settings(plan, [*reads, *writes]),
        *_upstream(plan, [arc]),
    ]


def of_reader(plan: CompiledPlan) -> list[Right]:
    """Return what inspecting a network needs: status, tail, print, read, dead letters."""
    topics = [
        *map(plan.deployment.topic, plan.topology.topics),
        names.dead_letters_topic(plan.network),
    ]
    return [
        *_common(plan),
        *(Right(READ, TOPIC, topic) for topic in topics),
        *_settings(plan, topics),
        *(
            Right(READ, TOPIC, source.topic) for source in plan.topology.own_sources.values()
        ),  # to count
        Right(DESCRIBE, GROUP, names.acknowledging(plan.network)),
    ]


def of_operator(plan: CompiledPlan) -> list[Right]:
    """Return what an operator needs.

    It inspects a network, revises its sources, ends them and puts their watermarks back.
    """
    sources = plan.topology.own_sources
    return [
        *of_reader(plan),
        *(Right(WRITE, TOPIC, source.topic) for source in sources.values()),
        Right(WRITE, TOPIC, names.plan_topic(plan.network)),
        Right(READ, GROUP, names.acknowledging(plan.network)),
        Right(WRITE, TRANSACTIONAL_ID, names.acknowledging(plan.network)),
        *(
            Right(WRITE, TRANSACTIONAL_ID, names.putting_back(plan.network, source))
            for source in sources
        ),
    ]


def of_deployer(plan: CompiledPlan) -> list[Right]:
    """Return what deploying a network needs, and taking over all its tasks when it is switched."""
    prefix, sinks = f"{plan.network}.", [sink.topic for sink in plan.topology.sinks]
    create = (CREATE, WRITE, DESCRIBE_CONFIGS, ALTER_CONFIGS)  # the last for safer settings
    everything = (READ, *create)
    return [
        *(Right(operation, TOPIC, prefix, True) for operation in everything),
        *(Right(operation, TOPIC, names.SCHEMAS_TOPIC) for operation in everything),
        *(Right(READ, TOPIC, source.topic) for source in plan.topology.sources.values()),
        *_upstream(plan, plan.topology.bound),
        *(Right(o, TOPIC, topic) for topic in sinks for o in create),
        Right(WRITE, TRANSACTIONAL_ID, prefix, True),
        Right(READ, GROUP, prefix, True),
    ]


def of_undeployer(plan: CompiledPlan) -> list[Right]:
    """Return what removing a network needs; the right to delete includes the right to describe."""
    prefix = f"{plan.network}."
    return [
        Right(READ, TOPIC, names.plan_topic(plan.network)),
        Right(DELETE, TOPIC, prefix, True),
        Right(DELETE, GROUP, prefix, True),
    ]


def _common(plan: CompiledPlan) -> list[Right]:
    """Return what every role needs: the plan, the reports, and schemas if they are kept in a topic.

    Of networks upstream every role reads the plan, by which bound sources are checked.

    A report is accepted only if the records that it refers to exist; so every role describes all
    arcs.
    """
    net = plan.network
    topics = [names.plan_topic(net), names.progress_topic(net), names.SCHEMAS_TOPIC]
    arcs = [plan.deployment.topic(arc) for arc in plan.topology.topics]
    upstream = plan.topology.upstreams
    return [
        *(Right(READ, TOPIC, topic) for topic in (*topics, *map(names.plan_topic, upstream))),
        *(Right(DESCRIBE, TOPIC, topic) for topic in arcs),
        *_settings(plan, [*topics, *arcs]),
    ]


def _upstream(plan: CompiledPlan, arcs: Iterable[str]) -> list[Right]:
    """Return what reading arcs needs of the networks upstream, if some are bound sources."""
    rights, read = list[Right](), set(arcs)
    for network, sources in plan.topology.upstreams.items():
        if read & {source.arc.name for source in sources}:
            rights.append(Right(READ, TOPIC, names.progress_topic(network)))
            rights.append(Right(DESCRIBE, TOPIC, f"{network}.", True))
    return rights


def _settings(plan: CompiledPlan, topics: Iterable[str]) -> list[Right]:
    """Return the rights to read the configurations of those topics that are not the user's."""
    users = {source.topic for source in plan.topology.sources.values()}
    users |= {sink.topic for sink in plan.topology.sinks}
    wanted = dict.fromkeys(topic for topic in topics if topic not in users)
    return [Right(DESCRIBE_CONFIGS, TOPIC, topic) for topic in wanted]
