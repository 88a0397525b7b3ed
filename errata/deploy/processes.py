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
        part: Its part of the partitions of each scope.
        sweep_beside: Whether it has the sweepers that its scopes ask.
    """

    work: Work
    names: tuple[str, ...] = ()
    part: Part = ALL
    sweep_beside: bool = False

    @property
    def id(self) -> str:
        """A name for it: that of its scope; of several, ``tasks`` and its part."""
        if self.work is Work.SCOPE:
            name = self.names[0] if len(self.names) == 1 else "tasks"
            return name if self.part == ALL else f"{name}.{self.part.first + 1}"
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
        some = [] if self.part == ALL else ["--part", str(self.part)]
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
    if plan.topology.jobs:
        yield Process(Work.JOBS)


def processes_of_a_machine(
    plan: CompiledPlan, *, most: int, apart: bool = False
) -> Iterator[Process]:
    """Yield the processes of a network that runs on one machine.

    Each has a part of the partitions of every scope: what one of its tasks commits is handed to
    those that read the same partition. With `apart` each scope has a process for all its
    partitions. A process has the sweepers that only its scopes ask; all others share one process.

    Args:
        plan: The network's plan; placed, unless `apart`.
        most: Most processes of tasks, if they are not apart.
        apart: Whether each scope has a process of its own.
    """
    topology, parts = plan.topology, [ALL]
    groups: list[tuple[str, ...]] = [(name,) for name in topology.process_scopes]
    if groups and not apart:
        groups = [tuple(topology.process_scopes)]
        count = max(len(plan.placement.tasks(name)) for name in topology.process_scopes)
        parts = [Part(first, min(most, count)) for first in range(min(most, count))]
    asking = {arc: list[str]() for arc in plan.replayed_points()}
    for scope in topology.scopes.values():
        for arc in plan.replayed_points_of(scope):
            asking[arc].append(scope.name)
    everywhere = {arc for box in topology.boxes for arc in plan.replayed_everywhere(box)}
    elsewhere = set(asking)
    for group in groups:
        asked = {arc for arc, names in asking.items() if {*names} & {*group}}
        own = all({*asking[arc]} <= {*group} for arc in asked)
        beside = bool(asked) and own and (len(parts) == 1 or not asked & everywhere)
        elsewhere -= asked if beside else set()
        for part in parts:
            yield Process(Work.SCOPE, group, part, sweep_beside=beside)
    if elsewhere:
        yield Process(Work.SWEEPER, tuple(sorted(elsewhere)))
    if topology.jobs:
        yield Process(Work.JOBS)
