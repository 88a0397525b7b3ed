"""A deployed plan read back from its description, for readers without the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from errata.processors.boxes.modes import Choice
from errata.processors.plan.arc_name import ArcName, exchange_of, read_by
from errata.processors.plan.deployed import Deployed, require_plan
from errata.processors.plan.plan import Plan
from errata.processors.plan.scope import Scope, owning_scope
from errata.processors.plan.source import Source
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType
from errata.topics.cluster import Cluster
from errata.topics.registry import Registry


class NoSuchArcError(ErrataError):
    """A network has no arc of this name that can be read."""


class ForeignSchemaError(ErrataError):
    """The registry does not have the schema with which an arc is written."""


@dataclass(frozen=True)
class DescribedPlan(Plan):
    """A plan read from its description: tasks, topics, partitions, and the fields of arcs.

    It lacks how boxes compute: `boxes`, `paths`, `kept_ms`, `exchanged` and `sinks` are empty, and
    arcs have no `event_time_shift_ms`. It serves readers of arcs and reports; no task can run by
    it.

    Args:
        description: The result of `Plan.describe`.
    """

    description: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return dict(self.description)

    def readable(self, arc: str) -> Arc:
        """Return an arc that has a topic of its own.

        Raises:
            NoSuchArcError: If no arc has this name, or it stays inside its process.
        """
        known = [name for name in self.topics if not self.arcs[name].exchange]
        if arc in known:
            return self.arcs[arc]
        lacks = f"network {self.network!r} has no arc {arc!r}"
        if arc in self.arcs:
            lacks = f"arc {arc!r} stays inside the processes of network {self.network!r}"
        raise NoSuchArcError(f"{lacks}; it can be read: {', '.join(known)}")

    def written(self, arc: str, registry: Registry) -> tuple[Arc, dict[str, int]]:
        """Return an arc with its fields in wire order, and its schemas' ids by subject.

        A description has fields by name; only the schema of the records has their order.

        Raises:
            NoSuchArcError: If the arc can't be read.
            ForeignSchemaError: If the registry has no such schema: the network's processes use
                another registry.
        """
        found, ids, schema = self.readable(arc), dict[str, int](), None
        for part in ("key", "value"):
            subject = f"{self.topic(arc)}-{part}"
            latest = registry.latest(subject)
            if latest is not None:
                ids[subject], schema = latest
        names = _names(schema) if len(ids) == 2 else []  # the value's schema comes last
        if set(names) != set(found.fields):
            raise ForeignSchemaError(
                f"the schemas of arc {arc!r} of network {self.network!r} are not in this registry; "
                "read with the SCHEMA_REGISTRY_URL (or without one) that its processes have"
            )
        return replace(found, fields={name: found.fields[name] for name in names}), ids


def read_described(cluster: Cluster, network: str) -> DescribedPlan:
    """Return the plan that is deployed under a network's name.

    Raises:
        NotDeployedError: If none is.
    """
    return described(require_plan(cluster, network))


def described(found: Deployed) -> DescribedPlan:
    """Return the plan of a deployment."""
    told = found.plan
    arcs = {name: _arc(name, each) for name, each in told["arcs"].items()}
    sources = {name: _source(arcs[name], each) for name, each in told["sources"].items()}
    inputs = {name: _reads(each) for name, each in told["boxes"].items()}
    home = {box: scope for scope, boxes in told["scopes"].items() for box in boxes}
    read = {arc for above in inputs.values() for arc in above}
    crossing = {arc for box, above in inputs.items() for arc in above if home.get(arc) != home[box]}
    topics = tuple(
        name
        for name, arc in arcs.items()
        if not arc.sink
        and (arc.is_connection_point or name in sources or name in crossing or name not in read)
    )

    @cache
    def sources_of(arc: str) -> tuple[str, ...]:
        above = [source for name in inputs.get(arc, ()) for source in sources_of(name)]
        return tuple(dict.fromkeys(above)) or (read_by(arc),)  # a source, or its exchange

    def scope(name: str, boxes: tuple[str, ...]) -> Scope:
        if not boxes:
            source = next(source for source in sources if owning_scope(source) == name)
            return Scope(name, (), (exchange_of(source),), (source,))
        above = (arc for box in boxes for arc in inputs[box] if home.get(arc) != name)
        return Scope(
            name,
            boxes,
            inputs=tuple(dict.fromkeys(above)),
            outputs=tuple(box for box in boxes if box in topics),
            on_spark=any(box in told.get("spark", ()) for box in boxes),
        )

    return DescribedPlan(
        network=told["network"],
        sources=sources,
        boxes={},
        scopes={name: scope(name, tuple(boxes)) for name, boxes in told["scopes"].items()},
        arcs=arcs,
        topics=topics,
        paths={},
        choices={n: Choice(mode, mode, "as deployed") for n, mode in told["modes"].items()},
        sources_of={arc: sources_of(arc) for arc in arcs},
        kept_ms={},
        exchanged={},
        spark=told.get("spark", {}),
        partitions={name: each["partitions"] for name, each in told["arcs"].items()},
        topic_partitions={n: each["topic_partitions"] for n, each in told["sources"].items()},
        deployment=found.deployment,
        version=found.version,
        first_epoch=found.first_epoch,
        generations=found.generations,
        description=told,
    )


def _arc(name: str, told: Mapping[str, Any]) -> Arc:
    parsed = ArcName.parse(name)
    return Arc(
        name,
        {field: FieldType.parse(kind) for field, kind in told["fields"].items()},
        identity=tuple(told["identity"]),
        event_time=told["event_time"],
        partition_by=tuple(told["partition_by"]),
        keep_ms=told["keep_ms"],
        exchange=parsed.is_exchange,
        sink=parsed.is_sink,
    )


def _source(arc: Arc, told: Mapping[str, Any]) -> Source:
    return Source(
        arc,
        told["topic"],
        envelope=told["envelope"],
        format=told["format"],
        lateness_ms=told["lateness_ms"],
        idle_after_ms=told["idle_after_ms"],
        partitions=None,
        rekey=told["rekey"],
    )


def _reads(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arcs that a box reads, from its description."""
    if "union" in told:
        return tuple(told["union"])
    if "inputs" in told:
        return tuple(told["inputs"])
    return (told["forward"] if "forward" in told else told["input"],)


def _names(schema: Any) -> list[str]:
    """Return the fields of a revision schema's tuples, in order; [] for any other schema.

    Example:
        >>> from errata.schemas.avro import revision_schema
        >>> kinds = {"z": FieldType("long"), "a": FieldType("long")}
        >>> _names(revision_schema("prices", kinds)), _names({"type": "string"})
        (['z', 'a'], [])
    """
    sides = {each["name"]: each["type"] for each in schema.get("fields", ())}
    return [each["name"] for each in sides["before"][1]["fields"]] if "before" in sides else []
