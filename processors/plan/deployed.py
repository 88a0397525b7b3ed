"""Reads and writes the plan topic: the deployed plan, switches, declared ends of sources."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

from errata.processors.plan.arc_name import owner_of
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployment import Deployment
from errata.processors.plan.placement import Placement
from errata.processors.plan.plan import Plan, load, without_counts
from errata.processors.wire import plan_records
from errata.processors.wire.plan_records import (
    AnyPlanRecord,
    EndRecord,
    PlanRecord,
    SwitchRecord,
)
from errata.schemas.errors import ErrataError
from errata.topics import names, settings
from errata.topics.cluster import Cluster, MissingTopicError, TopicPartition, catch_up
from errata.topics.settings import TopicSpec


class NotDeployedError(ErrataError):
    """A network was never started on this cluster."""


class PlanMismatchError(ErrataError):
    """The network differs from the one deployed under its name."""


class NewVersionError(ErrataError):
    """A process runs a version of the plan that is no longer deployed."""


def declare_end(cluster: Cluster, plan: Plan, source: str) -> dict[int, int]:
    """Declare that a source ends at the current end of its topic; returns offsets by partition."""
    topic = plan.topology.sources[source].topic
    ends = {p: cluster.end(TopicPartition(topic, p)) for p in range(cluster.partitions(topic))}
    _write(cluster, plan, EndRecord(source, ends))
    return ends


@dataclass(frozen=True)
class Deployed:
    """The deployed plan of a network, from the plan topic.

    Args:
        deployment: Its version and topics.
        description: The plan's description.
        under_way: The version that a running switch leads to; None: no switch is running.
    """

    deployment: Deployment
    description: Mapping[str, Any]
    under_way: int | None = None

    @cached_property
    def plan(self) -> Plan:
        """The plan, for readers without the user's code."""
        return load(self.description, self.deployment)


@dataclass(frozen=True)
class Change:
    """A number of partitions that differs, or a field that is new.

    Args:
        kind: ``topic``, ``arc`` or ``field``.
        name: Its name.
        before: The deployed number; None: it is not deployed.
        after: The declared or actual one.
    """

    kind: str
    name: str
    before: int | None
    after: int | str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}: {self.before} -> {self.after}"


def read_plan(cluster: Cluster, network: str) -> Deployed | None:
    """Return the deployed plan of a network; None if it is not deployed."""
    place = TopicPartition(names.plan_topic(network), 0)
    deployed: PlanRecord | None = None
    announced: SwitchRecord | None = None
    try:
        reader = cluster.reader({place: 0})
    except MissingTopicError:
        return None
    try:
        for records in catch_up(cluster, reader, place):
            for key, value in zip(records.keys, records.values, strict=True):
                record = plan_records.decode(key, value)
                if isinstance(record, PlanRecord):
                    deployed = record
                elif isinstance(record, SwitchRecord):
                    announced = record
    finally:
        reader.close()
    if deployed is None:
        return None
    coming = deployed.version if announced is None else announced.version
    deployment = Deployment(
        network,
        deployed.deployment,
        deployed.version,
        deployed.first_epoch,
        dict(deployed.generations),
    )
    under_way = coming if coming > deployed.version else None
    return Deployed(deployment, deployed.plan, under_way)


def require_plan(cluster: Cluster, network: str, *, remedy: str = "run `errata up`") -> Deployed:
    """Return the deployed plan of a network.

    Args:
        cluster: The cluster.
        network: Its name.
        remedy: Ends the error's message.

    Raises:
        NotDeployedError: If it is not deployed.
    """
    found = read_plan(cluster, network)
    if found is None:
        raise NotDeployedError(f"network {network!r} is not deployed on this cluster; {remedy}")
    return found


def write_plan(cluster: Cluster, plan: Plan, *, first_epoch: int) -> None:
    """Deploy a version of a plan."""
    own = plan.deployment
    record = PlanRecord(own.version, first_epoch, own.id, own.generations, plan.describe())
    _write(cluster, plan, record)


def announce(cluster: Cluster, plan: Plan) -> None:
    """Announce a version of the plan: processes that run an older one stop."""
    _write(cluster, plan, SwitchRecord(plan.deployment.version))


def as_deployed(plan: CompiledPlan, found: Deployed) -> CompiledPlan:
    """Return a network's plan with the deployed numbers of partitions.

    Raises:
        PlanMismatchError: If it differs from the deployed plan in anything else.
    """
    new = added(plan, found)
    if new:
        raise PlanMismatchError(
            f"network {plan.network!r} has boxes that are not deployed: {', '.join(new)}; `errata "
            f"backfill NET {' '.join(new)}` fills what they would have written by now and deploys "
            "them, or run the network as deployed"
        )
    placement = Placement.load(plan.topology, found.description)
    placement = replace(placement, sink_partitions=plan.placement.sink_partitions)
    return replace(plan, placement=placement, deployment=found.deployment)


def added(plan: Plan, found: Deployed) -> list[str]:
    """Return the declared boxes of a network that are not deployed.

    Raises:
        PlanMismatchError: If the network lacks or changes anything that is deployed.
    """
    wanted: dict[str, Any] = json.loads(json.dumps(without_counts(plan.describe())))
    there = without_counts(found.description)
    lost = [repr(box) for box in there["boxes"] if box not in wanted["boxes"]]
    if lost:
        raise PlanMismatchError(
            f"network {plan.network!r} no longer has {', '.join(lost)}, which is deployed; put it "
            "back, give the network another name, or give up what is deployed with `errata reset`"
        )
    changed = sorted(_differences(there, wanted))
    if changed:
        raise PlanMismatchError(
            f"network {plan.network!r} is deployed with another plan ({', '.join(changed)} "
            "differ); run the network as deployed, or give the changed one another name (new "
            "optional fields of sources: `errata deploy` adds them)"
        )
    new = wanted["boxes"].keys() - there["boxes"].keys()
    return list(dict.fromkeys(owner_of(box) for box in wanted["boxes"] if box in new))


def deploy(cluster: Cluster, plan: Plan) -> Deployed:
    """Deploy the first version of a plan unless one is deployed; return the deployed one.

    Local state belongs to one deployment: a new cluster starts with new state.
    """
    found = read_plan(cluster, plan.network)
    if found is None:
        write_plan(
            cluster,
            replace(plan, deployment=replace(plan.deployment, id=uuid4().hex[:12])),
            first_epoch=0,
        )
        found = read_plan(cluster, plan.network)
        assert found is not None  # it was acknowledged
    return found


def require_same(plan: CompiledPlan, found: Deployed) -> CompiledPlan:
    """Return a plan as deployed.

    Raises:
        PlanMismatchError: If it differs from the deployed one, numbers of partitions included.
    """
    there = as_deployed(plan, found)
    changed = changes(there, plan)
    if changed:
        raise PlanMismatchError(
            f"network {plan.network!r} is deployed with other numbers of partitions "
            f"({', '.join(map(str, changed))}); `errata deploy` moves what is there, or run it as "
            "it was"
        )
    return there


def changes(old: Plan, new: Plan) -> list[Change]:
    """Return the numbers of partitions that differ between two plans of one network."""
    before, after = old.placement, new.placement
    sources = [
        Change("topic", source.topic, before.topic_partitions[name], after.topic_partitions[name])
        for name, source in new.topology.sources.items()
    ]
    arcs = [
        Change("arc", arc, before.partitions[arc], after.partitions[arc])
        for arc in new.topology.topics
    ]
    return [change for change in sources + arcs if change.before != change.after]


def plan_spec(network: str) -> TopicSpec:
    """Return the topic that holds a network's plan."""
    return TopicSpec(names.plan_topic(network), 1, settings.compacted())


def topic_specs(
    plan: CompiledPlan, *, compaction_lag_ms: int, existing: Collection[str] = ()
) -> list[TopicSpec]:
    """Return the topics that a network needs, with their settings (``docs/protocol.md#1-topics``).

    Args:
        plan: The plan, placed.
        compaction_lag_ms: How long superseded records stay in connection points.
        existing: Existing topics of sinks, which are used as they are.
    """
    net, topology, partitions = plan.network, plan.topology, plan.placement.partitions
    specs = [
        TopicSpec(names.progress_topic(net), 1, settings.compacted()),
        plan_spec(net),
        TopicSpec(names.dead_letters_topic(net), 1, settings.dead_letters()),
        TopicSpec(names.SCHEMAS_TOPIC, 1, settings.compacted()),
    ]
    for arc in topology.topics:
        config = settings.passing()
        if arc in plan.kept_ms:
            lateness = max(topology.sources[s].lateness_ms for s in topology.sources_of[arc])
            config = settings.connection_point(
                retention_ms=plan.kept_ms[arc] + plan.radius_ms(arc) + lateness,
                compaction_lag_ms=compaction_lag_ms,
            )
        specs.append(TopicSpec(plan.deployment.topic(arc), partitions[arc], config))
    for sink in topology.sinks:
        if sink.topic not in existing:
            config = settings.upserts() if sink.envelope == "upsert" else {}
            specs.append(TopicSpec(sink.topic, plan.placement.sink_partitions[sink.topic], config))
    for arc in plan.asked():
        specs.append(TopicSpec(plan.deployment.requests(arc), partitions[arc], settings.short()))
    for scope in topology.scopes.values():
        count = partitions[scope.inputs[0]]
        specs.append(TopicSpec(plan.deployment.replies(scope), count, settings.short()))
    return specs


def _differences(there: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of a deployed plan that differ in another one, which may have more boxes."""
    for group, known in there.items():
        own = wanted.get(group, {})
        if group == "sinks":
            ours = [sink for sink in own if sink["arc"] in there["arcs"]]
            differing = [s for s in known + ours if s not in own or s not in known]
            yield from (f"sink {sink['topic']!r}" for sink in differing)
        elif group == "scopes":
            for scope, boxes in known.items():
                kept = [box for box in own.get(scope, ()) if box in there["boxes"]]
                if kept != boxes:
                    yield f"scope {scope!r}"
        elif isinstance(known, dict):
            yield from (f"{group} {n!r}" for n, value in known.items() if own.get(n) != value)
        elif own != known:
            yield group
    yield from (f"sources {n!r}" for n in wanted["sources"] if n not in there["sources"])


def _write(cluster: Cluster, plan: Plan, record: AnyPlanRecord) -> None:
    key, value = plan_records.encode(record)
    cluster.send(names.plan_topic(plan.network), partition=0, key=key, value=value)
    cluster.flush()
