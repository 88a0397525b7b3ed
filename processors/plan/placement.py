"""The placement of a network: where it runs, as numbers of partitions, and tasks by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.plan.arc_name import exchange_of
from errata.processors.plan.topology import Topology, ingest_scope
from errata.processors.wire.task_id import ScopeId

Requested = Mapping[str, int | tuple[str, ...] | None]
"""By exchange: the requested partitions; None: as many as its input has; names: as many as the
widest of these arcs."""


@dataclass(frozen=True)
class Placement:
    """Where a topology runs.

    Args:
        topology: What runs.
        partitions: By arc: its number of partitions; empty before the network is placed.
        topic_partitions: By source: the number of partitions of the user's topic.
        sink_partitions: By topic of a sink: its number of partitions.
    """

    topology: Topology
    partitions: dict[str, int] = field(default_factory=dict)
    topic_partitions: dict[str, int] = field(default_factory=dict)
    sink_partitions: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topology: Topology,
        requested: Requested,
        topic_partitions: Mapping[str, int],
        sink_partitions: Mapping[str, int] | None = None,
    ) -> Self:
        """Return the placement that follows from the users' topics.

        Args:
            topology: What runs.
            requested: What exchanges request.
            topic_partitions: By source: partitions of its topic.
            sink_partitions: By existing topic of a sink: its partitions; others get their arc's.

        Raises:
            NetworkError: If arcs that are read together have different numbers of partitions.
        """
        counts = {
            name: source.partitions or topic_partitions[name]
            for name, source in topology.sources.items()
        }
        rekeyed = [name for name, source in topology.sources.items() if source.rekey]
        counts |= {exchange_of(name): counts[name] for name in rekeyed}
        for name, reads in topology.reads.items():
            request = requested.get(name) or reads[:1]
            counts[name] = (
                max(counts[arc] for arc in request) if isinstance(request, tuple) else request
            )
        faults = []
        for name, inputs in _read_together(topology):
            of_inputs = {arc: counts[arc] for arc in inputs}
            if len(set(of_inputs.values())) > 1:
                actual = ", ".join(f"{count} of {arc!r}" for arc, count in of_inputs.items())
                remedy = "give their sources the same partitions="
                faults.append(
                    Fault(name, "inputs with the same number of partitions", actual, remedy)
                )
        if faults:
            raise NetworkError(topology.network, faults)
        of_sinks = {sink.topic: counts[sink.arc] for sink in topology.sinks}
        of_sinks |= sink_partitions or {}
        return cls(topology, counts, dict(topic_partitions), of_sinks)

    @classmethod
    def load(cls, topology: Topology, description: Mapping[str, Any]) -> Self:
        """Return the placement of a description, for a topology that it describes or extends.

        Numbers of partitions of sinks aren't described.
        """
        arcs, sources = description["arcs"], description["sources"]
        return cls(
            topology,
            {name: arcs[name]["partitions"] for name in topology.arcs},
            {name: sources[name]["topic_partitions"] for name in topology.sources},
        )

    @cached_property
    def _tasks(self) -> dict[str, Sequence[str]]:
        """What `tasks` has returned: it is asked at each step of each task."""
        return {}

    def tasks(self, scope: str) -> Sequence[str]:
        """Return the tasks of a scope, one per partition."""
        if scope not in self._tasks:
            scope_id = ScopeId.parse(scope)
            numbers = range(self.task_count(scope_id))
            self._tasks[scope] = [str(scope_id.task(number)) for number in numbers]
        return self._tasks[scope]

    def ingest_tasks(self, sources: Iterable[str] | None = None) -> list[str]:
        """Return the tasks that ingest some sources; None for all sources."""
        names = self.topology.sources if sources is None else sources
        return [task for source in names for task in self.tasks(ingest_scope(source))]

    def task_count(self, scope: ScopeId) -> int:
        """Return the number of tasks of an ingest scope or a scope of boxes."""
        if scope.is_ingest:
            is_bound = self.topology.sources[scope.name].is_bound
            return 1 if is_bound else self.topic_partitions[scope.name]
        known = self.topology.scopes[scope.name]
        arcs = (*known.inputs, *known.outputs) if known.on_spark else known.inputs[:1]
        return max(self.partitions[arc] for arc in arcs)

    @cached_property
    def _writers(self) -> dict[tuple[str, int], Sequence[str]]:
        """What `writers` has returned."""
        return {}

    def writers(self, arc: str, partition: int) -> Sequence[str]:
        """Return the tasks that may write to one partition of an arc."""
        place = arc, partition
        if place not in self._writers:
            scope = self.topology.scope_of(arc)
            is_any = arc in self.topology.sources or self.topology.arcs[arc].exchange
            own = [str(ScopeId.parse(scope).task(partition))]
            self._writers[place] = self.tasks(scope) if is_any else own
        return self._writers[place]

    def read_by(self, scope: str, partition: int) -> list[tuple[str, int]]:
        """Return the arcs and partitions that a task's output depends on; on Spark, all of them."""
        reader = self.topology.scopes[scope]
        return [
            (arc, number)
            for arc in reader.inputs
            for number in (range(self.partitions[arc]) if reader.on_spark else (partition,))
        ]


def _read_together(topology: Topology) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the arcs that are read together in one partition, and who reads them.

    That is a scope; on Spark it is each box of it, for shuffles may be between them.
    """
    for scope in topology.scopes.values():
        if scope.on_spark:
            yield from ((box, topology.reads[box]) for box in scope.boxes)
        else:
            yield scope.name, scope.inputs
