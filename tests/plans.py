"""Plans with other parts, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from errata.processors.plan.plan import Plan

P = TypeVar("P", bound=Plan)


def with_topology(plan: P, **changes: Any) -> P:
    """Return a plan in whose topology some fields are replaced."""
    topology = replace(plan.topology, **changes)
    return replace(plan, placement=replace(plan.placement, topology=topology))


def with_deployment(plan: P, **changes: Any) -> P:
    """Return a plan in whose deployment some fields are replaced."""
    return replace(plan, deployment=replace(plan.deployment, **changes))
