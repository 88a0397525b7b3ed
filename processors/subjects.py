"""The schemas of a plan's own topics, registered when it is deployed: tasks find them there."""

from __future__ import annotations

from processors import desk
from processors import report as reports
from processors.arc_topic import ArcCodec
from processors.plan import Plan
from topics import names
from topics.registry import Registry


def register(plan: Plan, registry: Registry) -> None:
    """Register the schemas of arcs, reports, requests and replies under their topics' subjects.

    Raises:
        ClusterError: If the registry can't be used.
    """
    for arc in plan.topics:
        ArcCodec(plan.arcs[arc], plan.topic(arc), registry)
    registry.register(f"{names.progress_topic(plan.network)}-value", reports.SCHEMA)
    for arc in plan.asked():
        registry.register(f"{plan.requests(arc)}-value", desk.REQUEST)
    for scope in plan.scopes.values():
        if plan.asked_by(scope):
            registry.register(f"{plan.replies(scope.name)}-value", desk.REPLY)
