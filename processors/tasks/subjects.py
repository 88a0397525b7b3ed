"""The schemas of a plan's topics, registered when it is deployed: tasks find them there.

So only who deploys needs the right to write to the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.plan import Plan
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
        network: Whose plan it is.
        verdicts: Those of the subjects that would be refused.
    """

    def __init__(self, network: str, verdicts: list[Verdict]) -> None:
        self.verdicts = verdicts
        told = (f"\n{v.subject} ({v.level}): {'; '.join(v.reasons)}" for v in verdicts)
        super().__init__(
            f"network {network!r} can't be deployed: the registry has other schemas that its own "
            "do not go with; keep those fields as they were, give the network or the sink's topic "
            f"another name, or take the subject out of the registry{''.join(told)}"
        )


def planned(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the schemas that a plan's processes write by, by subject.

    Those of all arcs, also where they have no topic: what a box refuses of one is in the dead
    letters. Those of its sinks in Avro, of reports, requests, replies and dead letters.
    """
    found = _Noted({})
    for name, arc in plan.arcs.items():
        if not arc.sink:
            ArcCodec(arc, plan.topic(name), found)
    for sink in plan.sinks:
        Outgoing(plan.arcs[sink.arc], sink.topic, sink.envelope, sink.format, found)
    found.register(f"{names.progress_topic(plan.network)}-value", reports.SCHEMA)
    found.register(f"{names.dead_letters_topic(plan.network)}-value", dead_letter.SCHEMA)
    for asked in plan.asked():
        found.register(f"{plan.requests(asked)}-value", replay.REQUEST_SCHEMA)
    for scope in plan.scopes.values():
        if plan.asked_by(scope):
            found.register(f"{plan.replies(scope.name)}-value", replay.REPLY_SCHEMA)
    return found.schemas


def judged(plan: Plan, registry: JudgingRegistry) -> list[Verdict]:
    """Return what would become of each schema of a plan.

    Raises:
        ClusterError: If the registry can't be used.
    """
    return [registry.judge(subject, schema) for subject, schema in planned(plan).items()]


def check(plan: Plan, registry: JudgingRegistry) -> None:
    """See that the registry takes all schemas of a plan, before anything is made.

    Raises:
        IncompatibleSchemaError: If it would not.
        ClusterError: If it can't be used.
    """
    refused = [verdict for verdict in judged(plan, registry) if verdict.kind == INCOMPATIBLE]
    if refused:
        raise IncompatibleSchemaError(plan.network, refused)


def register(plan: Plan, registry: Registry) -> None:
    """Register the schemas of a plan under its topics' subjects.

    Raises:
        ClusterError: If the registry can't be used.
    """
    for subject, schema in planned(plan).items():
        registry.register(subject, schema)


class _Noted:
    """A `Registry` that notes what is registered."""

    def __init__(self, schemas: dict[str, dict[str, Any]]) -> None:
        self.schemas = schemas

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Note a schema; ids are not known yet."""
        self.schemas[subject] = schema
        return 0

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Refuse: nothing has an id yet."""
        raise UnknownSchemaError(schema_id, registry="a plan that is not deployed")

    def latest(self, subject: str) -> tuple[int, Mapping[str, Any]] | None:
        """Return nothing: nothing has an id yet."""
        return None
