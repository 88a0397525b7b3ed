"""Reachability: which times may still appear at each location of a graph (Timely's tracker).

A *pointstamp* is a count at a time: of capabilities held at an output, or of messages waiting at an
input. Its *implications* are the times that it may become at other locations, along the paths of
the graph. The frontier of a location is the set of minimal times of all implications there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from errata.processors.progress.antichain import MutableAntichain
from errata.processors.progress.location import Connectivity, Location, Source, Target
from errata.processors.progress.timestamp import PathSummary, Timestamp
from errata.schemas.errors import ErrataError

T = TypeVar("T", bound=Timestamp)

Steps: TypeAlias = Mapping[Location, Sequence[tuple[Location, PathSummary[T] | None]]]
"""The locations one step from each location; None is an edge, which changes no time."""


class GraphError(ErrataError):
    """A graph refers to a port that its nodes don't have."""


class EndlessCycleError(ErrataError):
    """Times could circulate in a cycle forever without advancing, so no frontier would pass them.

    Args:
        graph: The graph's name.
        nodes: Names of the cycle's nodes; the last is the first again.
    """

    def __init__(self, graph: str, *, nodes: list[str]) -> None:
        self.graph, self.nodes = graph, nodes
        super().__init__(
            f"graph '{graph}' has a cycle along which no time advances: {' -> '.join(nodes)}; "
            "on every cycle some node must advance the time"
        )


@dataclass(frozen=True)
class _Node(Generic[T]):
    name: str
    inputs: int
    outputs: int
    connectivity: Connectivity[T]


class Builder(Generic[T]):
    """Builds a graph.

    Args:
        name: Name of the graph, for messages.

    Example:
        A loop of two nodes, the second of which adds 1:

        >>> from errata.processors.progress.location import fully_connected
        >>> from errata.processors.progress.timestamp import IDENTITY, Advance, Epoch
        >>> graph = Builder("example")
        >>> body = graph.add_node("body", 1, 1, fully_connected(1, 1, IDENTITY))
        >>> back = graph.add_node("feedback", 1, 1, fully_connected(1, 1, Advance(by=1)))
        >>> graph.add_edge(Source(body, 0), Target(back, 0))
        >>> graph.add_edge(Source(back, 0), Target(body, 0))
        >>> tracker = graph.build()
        >>> tracker.update(Source(body, 0), Epoch(17), 1)
        >>> tracker.propagate_all()
        >>> tracker.frontier(Target(back, 0)), tracker.frontier(Target(body, 0))
        ((17,), (18,))
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[_Node[T]] = []
        self._edges: list[tuple[Source, Target]] = []

    def add_node(self, name: str, inputs: int, outputs: int, connectivity: Connectivity[T]) -> int:
        """Add a node; return its number.

        Args:
            name: For messages.
            inputs: How many inputs it has.
            outputs: How many outputs it has.
            connectivity: The path summaries from each input to the outputs.

        Raises:
            GraphError: If the connectivity has not one entry per input, or names another output.
        """
        ports = {port for paths in connectivity for port in paths}
        if len(connectivity) != inputs or not ports <= set(range(outputs)):
            raise GraphError(
                f"node '{name}' of graph '{self._name}' has {inputs} inputs and {outputs} "
                f"outputs, but its connectivity has {len(connectivity)} inputs and outputs "
                f"{sorted(ports)}; the connectivity needs one entry per input, by output from 0 on"
            )
        self._nodes.append(_Node(name, inputs, outputs, connectivity))
        return len(self._nodes) - 1

    def add_edge(self, source: Source, target: Target) -> None:
        """Connect an output to an input; both may have several edges.

        Raises:
            GraphError: If the output or the input does not exist yet.
        """
        for port, kind in (source, "output"), (target, "input"):
            if not (0 <= port.node < len(self._nodes) and 0 <= port.port < self._count(port)):
                raise GraphError(
                    f"graph '{self._name}' has an edge from {source} to {target}, but no node "
                    f"{port.node} with an {kind} {port.port}; add the node before its edges"
                )
        self._edges.append((source, target))

    def build(self) -> Tracker[T]:
        """Return a tracker for the graph.

        Raises:
            EndlessCycleError: If times can return to a location without advancing.
        """
        steps = self._steps()
        return Tracker(self._in_order(steps), steps)

    def _count(self, location: Location) -> int:
        node = self._nodes[location.node]
        return node.outputs if isinstance(location, Source) else node.inputs

    def _steps(self) -> Steps[T]:
        steps: dict[Location, list[tuple[Location, PathSummary[T] | None]]] = {}
        for number, node in enumerate(self._nodes):
            for port in range(node.outputs):
                steps[Source(number, port)] = []
            for port, paths in enumerate(node.connectivity):
                steps[Target(number, port)] = [
                    (Source(number, output), summary)
                    for output, summaries in paths.items()
                    for summary in summaries
                ]
        for source, target in self._edges:
            steps[source].append((target, None))
        return steps

    def _in_order(self, steps: Steps[T]) -> list[Location]:
        """Order all locations so that every step that may leave a time unchanged leads forward."""
        predecessors: dict[Location, list[Location]] = {location: [] for location in steps}
        for location, successors in steps.items():
            for successor, summary in successors:
                if summary is None or not summary.advances:
                    predecessors[successor].append(location)
        try:
            return list(TopologicalSorter(predecessors).static_order())
        except CycleError as error:
            raise EndlessCycleError(self._name, nodes=self._names(error.args[1])) from error

    def _names(self, cycle: Sequence[Location]) -> list[str]:
        """Return the names of the nodes on a cycle of locations; its last is its first again."""
        numbers = [location.node for location in cycle[1:] if isinstance(location, Target)]
        return [self._nodes[number].name for number in [*numbers, numbers[0]]]


class Tracker(Generic[T]):
    """Maintains the frontiers of a graph as pointstamps change; built by `Builder.build`.

    Updates are buffered until `propagate_all`, whose cost is proportional to the changes. It visits
    locations in the order of time. For one time it uses an order in which no path leads back
    without advancing, so that each location is visited at most once for each time. (Timely orders
    locations by number, and may revisit one.)

    Args:
        order: All locations; every step that may leave a time unchanged leads forward.
        steps: The graph.
    """

    def __init__(self, order: list[Location], steps: Steps[T]) -> None:
        self._place = place = {location: number for number, location in enumerate(order)}
        self._steps = [[(place[to], by) for to, by in steps[location]] for location in order]
        self._pointstamps: list[MutableAntichain[T]] = [MutableAntichain() for _ in order]
        self._implications: list[MutableAntichain[T]] = [MutableAntichain() for _ in order]
        self._updates: dict[int, dict[T, int]] = {}
        self._due: dict[tuple[T, int], int] = {}
        self._heap: list[tuple[T, int]] = []

    def update(self, location: Location, time: T, diff: int) -> None:
        """Change a count: of capabilities at a `Source`, of messages at a `Target`."""
        counts = self._updates.setdefault(self._place[location], {})
        counts[time] = counts.get(time, 0) + diff

    def propagate_all(self) -> None:
        """Apply the buffered updates to all frontiers."""
        updates, self._updates = self._updates, {}
        for place, counts in updates.items():
            for time, diff in self._pointstamps[place].update_iter(counts.items()):
                self._visit(time, place, diff)
        while self._heap:
            time, place = visited = heappop(self._heap)
            diff = self._due.pop(visited)
            if diff:
                self._imply(place, time, diff)

    def frontier(self, location: Location) -> tuple[T, ...]:
        """Return the earliest times that may still appear at a location; () if none will."""
        return self._implications[self._place[location]].frontier

    def _visit(self, time: T, place: int, diff: int) -> None:
        key = (time, place)
        due = self._due.get(key)
        if due is None:
            heappush(self._heap, key)
        self._due[key] = (due or 0) + diff

    def _imply(self, place: int, time: T, diff: int) -> None:
        """Change the implications at a location, and propagate the change of its frontier."""
        for changed, sign in self._implications[place].update_iter(((time, diff),)):
            for to, summary in self._steps[place]:
                self._visit(changed if summary is None else summary.results_in(changed), to, sign)
