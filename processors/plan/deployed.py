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
from errata.processors.plan.placement import Placement
from errata.processors.plan.plan import Deployment, Plan, load, without_counts
from errata.processors.plan.topology import Topology
from errata.processors.wire import plan_records
from errata.processors.wire.plan_records import (
    PLAN,
    SWITCH,
    AnyPlanRecord,
    EndRecord,
    PlanRecord,
    PlanRecordError,
    SettleRecord,
    SwitchRecord,
    WatermarkRecord,
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

    restart_helps = True


def declare_end(cluster: Cluster, plan: Plan, source: str) -> dict[int, int]:
    """Declare that a source ends at the current end of its topic; returns offsets by partition."""
    topic = plan.topology.sources[source].topic
    ends = {p: cluster.end(TopicPartition(topic, p)) for p in range(cluster.partitions(topic))}
    _write(cluster, plan, EndRecord(source, ends))
    return ends


def put_back(
    cluster: Cluster, plan: Plan, source: str, *, time_ms: int, resent: int = 0
) -> WatermarkRecord:
    """Tell the ingest tasks of a source to put a watermark that has run ahead back to a time.

    Each does so in its next epoch, if its watermark is later, and was earlier before it ran ahead.

    Args:
        cluster: The cluster.
        plan: The network.
        source: The source.
        time_ms: The watermark, ms.
        resent: As of `WatermarkRecord`.
    """
    record = WatermarkRecord(source, time_ms, resent)
    _write(cluster, plan, record)
    return record


def settle(cluster: Cluster, plan: Plan, number: int) -> None:
    """Tell the boxes that keep revisions back to emit them, each task in its next epoch.

    Args:
        cluster: The cluster.
        plan: The network.
        number: How often that has been asked for, this time included.
    """
    _write(cluster, plan, SettleRecord(number))


@dataclass(frozen=True)
class Deployed:
    """The deployed plan of a network, from the plan topic.

    Args:
        deployment: Its version and topics.
        description: The plan's description.
        switching_to: The version that a running switch deploys; None: no switch is running.
    """

    deployment: Deployment
    description: Mapping[str, Any]
    switching_to: int | None = None

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


def decode_record(network: str, key: bytes | None, value: bytes | None) -> AnyPlanRecord | None:
    """Decode a record of a network's plan topic; None if its key is unknown, or it has no value.

    Raises:
        PlanRecordError: If it can't be read, or holds a description that is none of the network.
    """
    record = plan_records.decode(key, value)
    if isinstance(record, PlanRecord):
        try:
            if _deployed(record).plan.network != network:
                raise ValueError("it describes another network")
        except (ErrataError, *plan_records.MALFORMED, StopIteration) as error:
            raise plan_records.unreadable(key or b"", error) from error
    return record


def read_plan(cluster: Cluster, network: str) -> Deployed | None:
    """Return the deployed plan of a network; None if it is not deployed.

    Of each key the newest readable record counts.

    Raises:
        PlanRecordError: If there are records of the plan, but none can be read.
    """
    readable, unreadable = _read_records(cluster, network)
    record, announced = readable.get(PLAN), readable.get(SWITCH)
    if not isinstance(record, PlanRecord):
        if PLAN in unreadable:
            raise PlanRecordError(
                f"topic '{names.plan_topic(network)}' has a record of the plan of network "
                f"{network!r}, but none that can be read; restore that topic from a backup, or "
                "give the network up with `errata reset`, and check who may write there"
            )
        return None
    deployed = _deployed(record)
    newest = announced.version if isinstance(announced, SwitchRecord) else record.version
    return replace(deployed, switching_to=newest if newest > record.version else None)


def restore_records(cluster: Cluster, network: str) -> list[str]:
    """Write the records of the plan topic again of which the newest can't be read.

    The topic is compacted: in time only the newest record of a key is left. An announcement or an
    end of a source of which no readable record is left is deleted.

    Returns:
        The keys of these records.
    """
    readable, unreadable = _read_records(cluster, network)
    for key in sorted(unreadable):
        value = plan_records.encode(readable[key])[1] if key in readable else None
        cluster.send(names.plan_topic(network), partition=0, key=key, value=value)
    cluster.flush()
    return [key.decode(errors="replace") for key in sorted(unreadable)]


def _read_records(cluster: Cluster, network: str) -> tuple[dict[bytes, AnyPlanRecord], set[bytes]]:
    """Return the newest readable record of each key, and the keys of which the newest is not."""
    place = TopicPartition(names.plan_topic(network), 0)
    readable: dict[bytes, AnyPlanRecord] = {}
    unreadable = set[bytes]()
    try:
        reader = cluster.reader({place: 0})
    except MissingTopicError:
        return readable, unreadable
    try:
        for records in catch_up(cluster, reader, place):
            for key, value in zip(records.keys, records.values, strict=True):
                try:
                    record = decode_record(network, key, value)
                except PlanRecordError:
                    unreadable.add(key or b"")
                    continue
                if record is not None:
                    readable[key or b""] = record
                unreadable.discard(key or b"")
    finally:
        reader.close()
    return readable, unreadable


def _deployed(record: PlanRecord) -> Deployed:
    deployment = Deployment(
        str(record.plan["network"]),
        record.deployment,
        record.version,
        record.first_epoch,
        dict(record.generations),
        Topology.load(record.plan).bound,
    )
    return Deployed(deployment, record.plan)


def require_plan(cluster: Cluster, network: str, *, remedy: str = "run `errata up`") -> Deployed:
    """Return the deployed plan of a network.

    Args:
        cluster: The cluster.
        network: Its name.
        remedy: Ends the error's message.

    Raises:
        NotDeployedError: If it is not deployed.
    """
    deployed = read_plan(cluster, network)
    if deployed is None:
        raise NotDeployedError(f"network {network!r} is not deployed on this cluster; {remedy}")
    return deployed


def write_plan(cluster: Cluster, plan: Plan, *, first_epoch: int) -> None:
    """Deploy a version of a plan."""
    deployment = plan.deployment
    record = PlanRecord(
        deployment.version, first_epoch, deployment.id, deployment.generations, plan.describe()
    )
    _write(cluster, plan, record)


def announce(cluster: Cluster, plan: Plan) -> None:
    """Announce a version of the plan: processes that run an older one stop."""
    _write(cluster, plan, SwitchRecord(plan.deployment.version))


def as_deployed(plan: CompiledPlan, deployed: Deployed) -> CompiledPlan:
    """Return a network's plan with the deployed numbers of partitions.

    Raises:
        PlanMismatchError: If it differs from the deployed plan in anything else.
    """
    new = added(plan, deployed)
    if new:
        raise PlanMismatchError(
            f"network {plan.network!r} has boxes that are not deployed: {', '.join(new)}; `errata "
            f"backfill NET {' '.join(new)}` fills what they would have written by now and deploys "
            "them; or run the network as deployed"
        )
    placement = Placement.load(plan.topology, deployed.description)
    placement = replace(placement, sink_partitions=plan.placement.sink_partitions)
    return replace(plan, placement=placement, deployment=deployed.deployment)


def added(plan: Plan, deployed: Deployed) -> list[str]:
    """Return the declared boxes of a network that are not deployed.

    Raises:
        PlanMismatchError: If the network lacks or changes anything that is deployed.
    """
    declared: dict[str, Any] = json.loads(json.dumps(without_counts(plan.describe())))
    existing = without_counts(deployed.description)
    removed = [repr(box) for box in existing["boxes"] if box not in declared["boxes"]]
    if removed:
        raise PlanMismatchError(
            f"network {plan.network!r} no longer has {', '.join(removed)}, which is deployed; put "
            "it back, give the network another name, or delete what is deployed with `errata reset`"
        )
    changed = sorted(_differences(existing, declared))
    toggled = [
        arc
        for arc, each in existing["arcs"].items()
        if (each["keep_ms"] is None) != (declared["arcs"].get(arc, each)["keep_ms"] is None)
    ]
    if toggled:
        raise PlanMismatchError(
            f"network {plan.network!r} is deployed with other connection points "
            f"({', '.join(map(repr, toggled))} differ); `errata connection-point` adds or drops "
            "those of boxes; or give them keep= as deployed"
        )
    if changed:
        raise PlanMismatchError(
            f"network {plan.network!r} is deployed with another plan ({', '.join(changed)} "
            "differ); run the network as deployed, or give the changed one another name (new "
            "optional fields of sources: `errata deploy` adds them)"
        )
    new = declared["boxes"].keys() - existing["boxes"].keys()
    return list(dict.fromkeys(owner_of(box) for box in declared["boxes"] if box in new))


def deploy(cluster: Cluster, plan: Plan) -> Deployed:
    """Deploy the first version of a plan unless one is deployed; return the deployed one.

    Local state belongs to one deployment: a new cluster starts with new state.
    """
    deployed = read_plan(cluster, plan.network)
    if deployed is None:
        write_plan(
            cluster,
            replace(plan, deployment=replace(plan.deployment, id=uuid4().hex[:12])),
            first_epoch=0,
        )
        deployed = read_plan(cluster, plan.network)
        assert deployed is not None  # its record was acknowledged
    return deployed


def require_same(plan: CompiledPlan, deployed: Deployed) -> CompiledPlan:
    """Return a plan as deployed.

    Raises:
        PlanMismatchError: If it differs from the deployed one, numbers of partitions included.
    """
    as_is = as_deployed(plan, deployed)
    changed = changes(as_is, plan)
    if changed:
        raise PlanMismatchError(
            f"network {plan.network!r} is deployed with other numbers of partitions "
            f"({', '.join(map(str, changed))}); run `errata deploy` to move its tuples, or run it "
            "with the deployed numbers"
        )
    return as_is


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
        config, least = settings.passing(), dict[str, str]()
        if arc in plan.kept_ms:
            lateness = max(topology.sources[s].lateness_ms for s in topology.sources_of[arc])
            config = settings.connection_point(
                retention_ms=plan.kept_ms[arc] + plan.radius_ms(arc) + lateness,
                compaction_lag_ms=compaction_lag_ms,
            )
        if arc in plan.trimmed:
            least["retention.ms"] = config["retention.ms"]
            config["retention.ms"] = "-1"
        specs.append(TopicSpec(plan.deployment.topic(arc), partitions[arc], config, least))
    for sink in topology.sinks:
        if sink.topic not in existing:
            config = settings.upserts() if sink.envelope == "upsert" else {}
            specs.append(TopicSpec(sink.topic, plan.placement.sink_partitions[sink.topic], config))
    for arc in plan.replayed_points():
        specs.append(TopicSpec(plan.deployment.requests(arc), partitions[arc], settings.short()))
    for scope in topology.scopes.values():
        count = partitions[scope.inputs[0]]
        specs.append(TopicSpec(plan.deployment.replies(scope), count, settings.short()))
    return specs


def _differences(deployed: dict[str, Any], declared: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of a deployed plan that differ in another one, which may have more boxes."""
    for group, expected in deployed.items():
        actual = declared.get(group, {})
        if group == "sinks":
            of_arcs = [sink for sink in actual if sink["arc"] in deployed["arcs"]]
            differing = [s for s in expected + of_arcs if s not in actual or s not in expected]
            yield from (f"sink {sink['topic']!r}" for sink in differing)
        elif group == "scopes":
            for scope, boxes in expected.items():
                kept = [box for box in actual.get(scope, ()) if box in deployed["boxes"]]
                if kept != boxes:
                    yield f"scope {scope!r}"
        elif isinstance(expected, dict):
            yield from (f"{group} {n!r}" for n, value in expected.items() if actual.get(n) != value)
        elif actual != expected:
            yield group
    yield from (f"sources {n!r}" for n in declared["sources"] if n not in deployed["sources"])


def _write(cluster: Cluster, plan: Plan, record: AnyPlanRecord) -> None:
    key, value = plan_records.encode(record)
    cluster.send(names.plan_topic(plan.network), partition=0, key=key, value=value)
    cluster.flush()
