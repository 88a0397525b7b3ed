"""Registers the schemas of a plan's topics when it is deployed; tasks only look them up.

So only the deploying process needs the right to write to the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire import dead_letter, replay
from errata.processors.wire import report as reports
from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.registry import (
    INCOMPATIBLE,
    JudgingRegistry,
    Registry,
    UnknownSchemaError,
    Verdict,
)


class IncompatibleSchemaError(ErrataError):
    """The registry would refuse schemas of a plan.

    Args:
        network: Name of the network.
        verdicts: The verdicts on the subjects that would be refused.
    """

    def __init__(self, network: str, verdicts: list[Verdict]) -> None:
        self.verdicts = verdicts
        lines = (f"\n{v.subject} ({v.level}): {'; '.join(v.reasons)}" for v in verdicts)
        super().__init__(
            f"network {network!r} can't be deployed: the registry has other schemas, with "
            "which its own are not compatible; keep those fields as they were, give the network or "
            "the sink's topic another name, or remove the subject from the registry"
            + "".join(lines)
        )


def planned(plan: CompiledPlan) -> dict[str, dict[str, Any]]:
    """Return the schemas with which a plan's processes write, by subject.

    They are those of all arcs, of sinks in Avro, of reports, requests, replies and dead letters.
    Arcs without a topic have schemas too: dead letters hold their tuples.
    """
    collected = _SchemaCollector({})
    for name, arc in plan.topology.arcs.items():
        if not arc.sink:
            ArcCodec(arc, plan.deployment.own_topic(name), collected)
    for sink in plan.topology.sinks:
        Outgoing(plan.topology.arcs[sink.arc], sink.topic, sink.envelope, sink.format, collected)
    collected.register(f"{names.progress_topic(plan.network)}-value", reports.SCHEMA)
    collected.register(f"{names.dead_letters_topic(plan.network)}-value", dead_letter.SCHEMA)
    for arc_name in plan.replayed_points():
        collected.register(f"{plan.deployment.requests(arc_name)}-value", replay.REQUEST_SCHEMA)
    for scope in plan.topology.scopes.values():
        if plan.replayed_points_of(scope):
            collected.register(f"{plan.deployment.replies(scope)}-value", replay.REPLY_SCHEMA)
    return collected.schemas


def verdicts(plan: CompiledPlan, registry: JudgingRegistry) -> list[Verdict]:
    """Return the registry's verdict on each schema of a plan.

    Raises:
        ClusterError: If the registry can't be used.
    """
    return [registry.judge(subject, schema) for subject, schema in planned(plan).items()]


def check(plan: CompiledPlan, registry: JudgingRegistry) -> None:
    """Check that the registry accepts all schemas of a plan, before anything is created.

    Raises:
        IncompatibleSchemaError: If it would refuse one.
        ClusterError: If it can't be used.
    """
    refused = [verdict for verdict in verdicts(plan, registry) if verdict.kind == INCOMPATIBLE]
    if refused:
        raise IncompatibleSchemaError(plan.network, refused)


def register(plan: CompiledPlan, registry: Registry) -> None:
    """Register the schemas of a plan under its topics' subjects.

    Raises:
        ClusterError: If the registry can't be used.
    """
    for subject, schema in planned(plan).items():
        registry.register(subject, schema)


class _SchemaCollector:
    """A `Registry` that collects schemas instead of registering them."""

    def __init__(self, schemas: dict[str, dict[str, Any]]) -> None:
        self.schemas = schemas

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Collect a schema and return 0: it has no id yet."""
        self.schemas[subject] = schema
        return 0

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Raise: no schema has an id yet."""
        raise UnknownSchemaError(schema_id, registry="a plan that is not deployed")

    def latest(self, subject: str) -> tuple[int, Mapping[str, Any]] | None:
        """Return None: no schema has an id yet."""
        return None
