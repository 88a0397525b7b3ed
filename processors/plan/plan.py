"""A network's plan: what runs, where, and what of it is deployed: its version and topics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from errata.processors.plan.arc_name import ArcName, read_by
from errata.processors.plan.placement import Placement
from errata.processors.plan.topology import MAX_AHEAD_MS, Scope, Topology
from errata.processors.wire.task_id import ScopeId
from errata.schemas.arc import Arc, usual_shift_ms
from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.registry import Registry


@dataclass(frozen=True)
class Deployment:
    """What is deployed under a network's name.

    Args:
        network: The network's name.
        id: Id of the deployment, to which local state belongs; "" before it.
        version: Version of the plan; the next one has other numbers of partitions.
        first_epoch: The first epoch that this version processes; moved tuples belong to the epoch
            before it.
        generations: By arc: the version that made its topic; 1 if absent.
        bound: By bound source: the topic of its arc, which belongs to another network.
    """

    network: str
    id: str = ""
    version: int = 1
    first_epoch: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)

    def topic(self, arc: str) -> str:
        """Return the topic of an arc."""
        return self.bound.get(arc) or self.own_topic(arc)

    def own_topic(self, arc: str) -> str:
        """Return the name of an arc's topic in this network, which also names its schemas.

        Nothing is in that of a bound source, but dead letters hold its tuples.
        """
        version = self.generations.get(arc, 1)
        if ArcName.parse(arc).is_exchange:
            return names.exchange_topic(self.network, read_by(arc), version=version)
        return names.arc_topic(self.network, arc, version=version)

    def requests(self, arc: str) -> str:
        """Return the topic of the requests to the sweepers of a connection point."""
        return names.requests_topic(self.network, arc, version=self.generations.get(arc, 1))

    def replies(self, scope: Scope) -> str:
        """Return the topic of the replies to the tasks of a scope, one partition per task."""
        version = self.generations.get(scope.inputs[0], 1)
        return names.replay_topic(self.network, scope.name, version=version)


class NoSuchArcError(ErrataError):
    """A network has no arc of this name that can be read."""


class ForeignSchemaError(ErrataError):
    """The registry does not have the schema with which an arc is written."""


@dataclass(frozen=True)
class Plan:
    """A network's plan, as the compiler makes it or as it is read back from the plan topic.

    Readers of arcs and reports need no more. A process that runs boxes needs
    a `errata.processors.plan.compiled.CompiledPlan`.

    Args:
        placement: Where it runs, and by its `topology`, what runs.
        deployment: What of it is deployed.
    """

    placement: Placement
    deployment: Deployment

    @property
    def topology(self) -> Topology:
        """What runs."""
        return self.placement.topology

    @property
    def network(self) -> str:
        """The network's name."""
        return self.topology.network

    def group_topic(self, scope: str) -> str:
        """Return a topic with one partition per task of a scope, for its consumer group."""
        scope_id = ScopeId.parse(scope)
        if scope_id.is_ingest:
            source = self.topology.sources[scope_id.name]
            return names.progress_topic(source.bound_to[0]) if source.is_bound else source.topic
        return self.deployment.replies(self.topology.scopes[scope])

    def readable(self, arc: str) -> Arc:
        """Return an arc that has a topic of its own.

        Raises:
            NoSuchArcError: If no arc has this name, or it stays inside its process.
        """
        topology = self.topology
        known = [name for name in topology.topics if not topology.arcs[name].exchange]
        if arc in known:
            return topology.arcs[arc]
        fault = f"network {self.network!r} has no arc {arc!r}"
        if arc in topology.bound:
            fault = f"source {arc!r} of network {self.network!r} is {topology.sources[arc].where}"
        elif arc in topology.arcs:
            fault = f"arc {arc!r} stays inside the processes of network {self.network!r}"
        raise NoSuchArcError(f"{fault}; these can be read: {', '.join(known)}")

    def written(self, arc: str, registry: Registry) -> tuple[Arc, dict[str, int]]:
        """Return an arc with its fields in wire order, and its schemas' ids by subject.

        A description has fields by name; only the schema of the records has their order.

        Raises:
            NoSuchArcError: If the arc can't be read.
            ForeignSchemaError: If the registry has no such schema: the network's processes use
                another registry.
        """
        described, ids, schema = self.readable(arc), dict[str, int](), None
        for part in ("key", "value"):
            subject = f"{self.deployment.topic(arc)}-{part}"
            latest = registry.latest(subject)
            if latest is not None:
                ids[subject], schema = latest
        names = _tuple_fields(schema) if len(ids) == 2 else []  # the value's schema comes last
        if set(names) != set(described.fields):
            raise ForeignSchemaError(
                f"the schemas of arc {arc!r} of network {self.network!r} are not in this registry; "
                "read with the SCHEMA_REGISTRY_URL (or without one) that its processes have"
            )
        return replace(described, fields={name: described.fields[name] for name in names}), ids

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain data, for the plan topic and `errata explain`."""
        topology, placement = self.topology, self.placement
        return {
            "network": topology.network,
            "sources": {
                name: {
                    "topic": s.topic,
                    "envelope": s.envelope,
                    "format": s.format,
                    "topic_partitions": placement.topic_partitions.get(name),
                    "lateness_ms": s.lateness_ms,
                    "idle_after_ms": s.idle_after_ms,
                    "event_time": s.event_time,
                    "rekey": s.rekey,
                    **({} if s.max_ahead_ms == MAX_AHEAD_MS else {"max_ahead_ms": s.max_ahead_ms}),
                    **({"on_spark": True} if s.on_spark else {}),
                }
                for name, s in topology.sources.items()
            },
            "arcs": {
                name: {
                    "fields": {n: str(t) for n, t in arc.fields.items()},
                    "identity": list(arc.identity),
                    "event_time": arc.event_time,
                    "partition_by": list(arc.partition_by),
                    "partitions": placement.partitions.get(name),
                    "keep_ms": arc.keep_ms,
                    **_shift(arc),
                }
                for name, arc in topology.arcs.items()
            },
            "boxes": topology.boxes,
            "sinks": [
                {"arc": s.arc, "topic": s.topic, "envelope": s.envelope, "format": s.format}
                for s in topology.sinks
            ],
            "scopes": {name: list(scope.boxes) for name, scope in topology.scopes.items()},
            "modes": topology.modes,
            **({"spark": topology.spark} if topology.spark else {}),
            "generations": self.deployment.generations,
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the plan; equal plans have equal digests."""
        return _digest(self.describe())

    @cached_property
    def shape(self) -> str:
        """A digest of the plan without its numbers of partitions."""
        return _digest(without_counts(self.describe()))


def _shift(arc: Arc) -> dict[str, int]:
    """Return what a description says of an arc's event time: as a rule nothing."""
    shift = arc.event_time_shift_ms
    return {} if shift == usual_shift_ms(arc.event_time) else {"event_time_shift_ms": shift}


def load(description: Mapping[str, Any], deployment: Deployment) -> Plan:
    """Return the plan of a description, the result of `Plan.describe`."""
    return Plan(Placement.load(Topology.load(description), description), deployment)


def without_counts(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's description without its numbers of partitions."""
    plain = {key: value for key, value in description.items() if key != "generations"}
    for group, count in (("sources", "topic_partitions"), ("arcs", "partitions")):
        plain[group] = {
            name: {key: value for key, value in each.items() if key != count}
            for name, each in description[group].items()
        }
    return plain


def _digest(description: Mapping[str, Any]) -> str:
    text = json.dumps(description, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tuple_fields(schema: Any) -> list[str]:
    """Return the fields of a revision schema's tuples, in order; [] for any other schema.

    Example:
        >>> from errata.schemas.avro import revision_schema
        >>> from errata.schemas.fields import FieldType
        >>> kinds = {"z": FieldType("long"), "a": FieldType("long")}
        >>> _tuple_fields(revision_schema("prices", kinds)), _tuple_fields({"type": "string"})
        (['z', 'a'], [])
    """
    sides = {each["name"]: each["type"] for each in schema.get("fields", ())}
    return [each["name"] for each in sides["before"][1]["fields"]] if "before" in sides else []
