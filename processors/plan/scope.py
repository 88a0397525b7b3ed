"""Scopes: boxes that run together in one process."""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.propagation.orders import STATIC
from errata.processors.wire.task_id import ScopeId


def ingest_scope(source: str) -> str:
    """Return the scope of a source's ingest tasks."""
    return str(ScopeId.of_source(source))


def owning_scope(source: str) -> str:
    """Return the scope whose tasks own the identities of a rekeyed source, behind an exchange."""
    return str(ScopeId.of_owners(source))


@dataclass(frozen=True)
class Scope:
    """Boxes that run together in one process, one task per partition, in topological order.

    A scope without boxes is that of the owners of a rekeyed source (`owning_scope`). A scope on
    Spark is a job, which reports for the tasks of all partitions at once. `order` is the order in
    which an epoch runs the boxes (`propagation`).
    """

    name: str
    boxes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    on_spark: bool = False
    order: str = STATIC
