"""Scopes: boxes that run together in one process."""

from __future__ import annotations

from dataclasses import dataclass

from errata.processors.propagation.choice import STATIC

INGEST = "ingest."
"""Before a source's name: the scope of its ingest tasks."""


@dataclass(frozen=True)
class Scope:
    """Boxes that run together in one process, a task a partition, in topological order.

    One without boxes is that of the owners of a rekeyed source (`exchanges.owning_scope`). One on
    Spark is a job, which reports as a task for each partition, all of them at once.
    `order` is that in which an epoch goes through the boxes (`propagation`).
    """

    name: str
    boxes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    on_spark: bool = False
    order: str = STATIC
