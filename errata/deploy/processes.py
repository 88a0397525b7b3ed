"""The processes that a network needs, whoever starts them: `errata up`, compose or Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self

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


class Part(NamedTuple):
    """A part of the partitions of a scope, however many there are: every so many, from one on.

    Example:
        >>> str(Part(0, 2)), list(Part(0, 2).partitions(5))
        ('1/2', [0, 2, 4])
    """

    first: int
    of: int

    def __str__(self) -> str:
        return f"{self.first + 1}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the part of a text like ``1/2``.

        Raises:
            ValueError: If it is none.
        """
        number, of = map(int, text.split("/"))
        if not 1 <= number <= of:
            raise ValueError(text)
        return cls(number - 1, of)

    def partitions(self, count: int) -> range:
        """Return its partitions of so many."""
        return range(self.first, count, self.of)


ALL = Part(0, 1)
"""All partitions."""


@dataclass(frozen=True)
class Process:
    """A process of a network.

    Args:
        work: What it runs.
        names: Names of scopes, or of connection points; none for jobs.
        part: Its part of the partitions of each scope; None for all.
        sweep_beside: Whether it has the sweepers that its scopes ask.
    """

    work: Work
    names: tuple[str, ...] = ()
    part: Part | None = None
    sweep_beside: bool = False

    @property
    def id(self) -> str:
        """A name for it: of its last scope, with its first partition if it does not run all."""
        if self.work is Work.SCOPE:
            return self.names[-1] if self.part is None else f"{self.names[-1]}.{self.part.first}"
        if self.work is Work.JOBS:
            return ".spark"  # no scope has such a name
        return str(ScopeId.of_sweeper(self.names[0]))

    def arguments(self, reference: str) -> list[str]:
        """Return the arguments of `errata` that run it.

        Args:
            reference: The network's reference on a command line.
        """
        option = "--scope" if self.work is Work.SCOPE else "--arc"
        named = [part for name in self.names for part in (option, name)]
        some = [] if self.part is None else ["--part", str(self.part)]
        beside = ["--sweep-beside"] if self.sweep_beside else []
        return [self.work.value, reference, *named, *some, *beside]


def processes(plan: CompiledPlan) -> Iterator[Process]:
    """Yield all processes of a network; together they run every task, job and sweeper.

    Args:
        plan: The network's plan; it need not be placed.
    """
    for scope in plan.topology.process_scopes:
        yield Process(Work.SCOPE, (scope,))
    for arc in plan.replayed_points():
        yield Process(Work.SWEEPER, (arc,))
    if plan.topology.spark:
        yield Process(Work.JOBS)


def processes_of_a_machine(
    plan: CompiledPlan, *, most: int, apart: bool = False
) -> Iterator[Process]:
    """Yield the processes of a network that runs on one machine.

    A process has some partitions of all scopes that pass them to each other (`Placement.chains`):
    what one of its tasks commits is handed to those that read it. It has the sweepers that only
    these scopes ask; all other sweepers share one process.

    Args:
        plan: The network's plan; placed, unless `apart`.
        most: Most processes for the partitions of the same scopes.
        apart: Whether each scope has a process for all its partitions.
    """
    topology = plan.topology
    chains = [[name] for name in topology.process_scopes] if apart else plan.placement.chains()
    readers = {arc: set[str]() for arc in plan.replayed_points()}
    for scope in topology.scopes.values():
        for arc in plan.replayed_points_of(scope):
            readers[arc].add(scope.name)
    elsewhere = set(readers)
    for chain in chains:
        replayed = {arc for arc, names in readers.items() if names & set(chain)}
        beside = bool(replayed) and all(readers[arc] <= set(chain) for arc in replayed)
        elsewhere -= replayed if beside else set()
        count = 0 if apart else len(plan.placement.tasks(chain[0]))
        parts = [Part(first, min(most, count)) for first in range(min(most, count))]
        for part in parts if len(parts) > 1 else [None]:
            yield Process(Work.SCOPE, tuple(chain), part, sweep_beside=beside)
    if elsewhere:
        yield Process(Work.SWEEPER, tuple(sorted(elsewhere)))
    if topology.spark:
        yield Process(Work.JOBS)
