"""The processes that a network needs, whoever starts them: `errata up`, compose or Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.task_id import ScopeId


class Work(Enum):
    """What a process runs; the value is its command of `errata`."""

    SCOPE = "run"
    """The tasks of a scope; several processes may share them."""
    SWEEPER = "sweep"
    """The sweepers of a connection point, which have a disk."""
    JOBS = "spark"
    """All jobs on Spark."""


@dataclass(frozen=True)
class Process:
    """A process of a network.

    Args:
        work: What it runs.
        name: Name of the scope, of the connection point, or ``.spark``.
    """

    work: Work
    name: str

    @property
    def id(self) -> str:
        """Its name, as no other process of the network has it: of jobs, ``.spark``."""
        return str(ScopeId.of_sweeper(self.name)) if self.work is Work.SWEEPER else self.name

    def arguments(self, reference: str) -> list[str]:
        """Return the arguments of `errata` that run it.

        Args:
            reference: The network's reference on a command line.
        """
        option = {Work.SCOPE: "--scope", Work.SWEEPER: "--arc"}.get(self.work)
        return [self.work.value, reference, *((option, self.name) if option else ())]


def processes(plan: CompiledPlan) -> Iterator[Process]:
    """Yield all processes of a network; together they run every task, job and sweeper.

    Args:
        plan: The network's plan; it need not be placed.
    """
    for scope in plan.topology.process_scopes:
        yield Process(Work.SCOPE, scope)
    for arc in plan.replayed_points():
        yield Process(Work.SWEEPER, arc)
    if plan.topology.spark:
        yield Process(Work.JOBS, ".spark")  # no scope has such a name
