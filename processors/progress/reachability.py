"""Reachability: which times may still appear at each location of a graph (Timely's tracker).

A *pointstamp* is a count at a time: of capabilities held at an output, or of messages waiting at an
input. Its *implications* are the times that it may become at other locations, along the paths of
the graph. The frontier of a location is the set of minimal times of all implications there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from errata.processors.progress.antichain import Antichain, ChangeBatch, MutableAntichain
from errata.processors.progress.location import (
    OUTSIDE,
    Connectivity,
    Location,
    Source,
    StandstillError,
    Steps,
    Target,
    in_order,
    paths_to,
)
from errata.processors.progress.summary import PathSummary
from errata.processors.progress.timestamp import Timestamp
from errata.schemas.errors import ErrataError

T = TypeVar("T", bound=Timestamp)


class GraphError(ErrataError):
    """A graph refers to a port that its nodes don't have."""


class EndlessCycleError(ErrataError):
    """Times could circulate in a cycle forever without advancing, so no frontier would pass them.

    Args:
        scope: The scope's name.
        nodes: Names of the cycle's nodes; the last is the first again.
    """

    def __init__(self, scope: str, *, nodes: list[str]) -> None:
        self.scope, self.nodes = scope, nodes
        super().__init__(
            f"scope '{scope}' has a cycle along which no time advances: {' -> '.join(nodes)}; "
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

    Node 0, the outside, exists from the beginning; no path inside the scope leads through it.

    Args:
        scope: Name of the scope, for messages.
        identity: The summary that changes nothing.
        inputs: How many inputs the scope has.
        outputs: How many outputs it has.

    Example:
        A loop of two nodes, the second of which adds 1:

        >>> from errata.processors.progress.location import fully_connected
        >>> from errata.processors.progress.summary import IDENTITY, Advance
        >>> from errata.processors.progress.timestamp import Epoch
        >>> graph = Builder("example", IDENTITY)
        >>> body = graph.add_node("body", 1, 1, fully_connected(1, 1, IDENTITY))
        >>> back = graph.add_node("feedback", 1, 1, fully_connected(1, 1, Advance(by=1)))
        >>> graph.add_edge(Source(body, 0), Target(back, 0))
        >>> graph.add_edge(Source(back, 0), Target(body, 0))
        >>> tracker, _ = graph.build()
        >>> tracker.update(Source(body, 0), Epoch(17), 1)
        >>> tracker.propagate_all()
        >>> tracker.frontier(Target(back, 0)), tracker.frontier(Target(body, 0))
        ((17,), (18,))
    """

    def __init__(
        self, scope: str, identity: PathSummary[T], *, inputs: int = 0, outputs: int = 0
    ) -> None:
        self._scope, self._identity = scope, identity
        self._nodes: list[_Node[T]] = []
        self._edges: list[tuple[Source, Target]] = []
        self.add_node("outside", outputs, inputs, [{}] * outputs)

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
                f"node '{name}' of scope '{self._scope}' has {inputs} inputs and {outputs} "
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
                    f"scope '{self._scope}' has an edge from {source} to {target}, but no node "
                    f"{port.node} with an {kind} {port.port}; add the node before its edges"
                )
        self._edges.append((source, target))

    def build(self) -> tuple[Tracker[T], Connectivity[T]]:
        """Return a tracker for the graph, and how the scope's inputs lead to its outputs.

        Raises:
            EndlessCycleError: If times can return to a location without advancing.
        """
        steps = self._steps()
        try:
            order = in_order(steps)
        except StandstillError as error:
            raise EndlessCycleError(self._scope, nodes=self._names(error.cycle)) from error
        outside = self._nodes[OUTSIDE]
        ends = [Target(OUTSIDE, port) for port in range(outside.inputs)]
        paths = paths_to(ends, steps, self._identity)
        connectivity = [paths.pop(Source(OUTSIDE, n), {}) for n in range(outside.outputs)]
        return Tracker(order, steps, paths, outputs=len(ends)), connectivity

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
        order: All locations, in the order of `in_order`.
        steps: The graph.
        paths: Summaries of the paths to the scope's outputs, by location, without node 0.
        outputs: How many outputs the scope has.
    """

    def __init__(
        self,
        order: list[Location],
        steps: Steps[T],
        paths: Mapping[Location, Mapping[int, Antichain[PathSummary[T]]]],
        *,
        outputs: int,
    ) -> None:
        self._order = order
        self._place = place = {location: number for number, location in enumerate(order)}
        self._steps = [[(place[to], by) for to, by in steps[location]] for location in order]
        self._paths = [
            [(port, by) for port, chain in paths.get(location, {}).items() for by in chain]
            for location in order
        ]
        self._pointstamps: list[MutableAntichain[T]] = [MutableAntichain() for _ in order]
        self._implications: list[MutableAntichain[T]] = [MutableAntichain() for _ in order]
        self._updates: dict[int, ChangeBatch[T]] = {}
        self._due: dict[tuple[T, int], int] = {}
        self._heap: list[tuple[T, int]] = []
        self._pushed: ChangeBatch[tuple[int, T]] = ChangeBatch()
        self._pushed_outputs: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self._held: ChangeBatch[int] = ChangeBatch()
        self._tracked_count = 0

    def update(self, location: Location, time: T, diff: int) -> None:
        """Change a count: of capabilities at a `Source`, of messages at a `Target`."""
        self._updates.setdefault(self._place[location], ChangeBatch()).update(time, diff)

    def propagate_all(self) -> None:
        """Apply the buffered updates to all frontiers."""
        updates, self._updates = self._updates, {}
        for place, batch in updates.items():
            for time, diff in self._pointstamps[place].update_iter(batch):
                self._tracked_count += diff
                location = self._order[place]
                if isinstance(location, Source):
                    self._held.update(location.node, diff)
                for port, summary in self._paths[place]:
                    result = summary.results_in(time)
                    if result is not None:
                        self._pushed_outputs[port].update(result, diff)
                self._visit(time, place, diff)
        while self._heap:
            time, place = visited = heappop(self._heap)
            diff = self._due.pop(visited)
            if diff:
                self._imply(place, time, diff)

    def pushed(self) -> list[tuple[Location, T, int]]:
        """Return how frontiers changed since the last call: -1 leaves one, 1 enters it."""
        return [(self._order[place], time, diff) for (place, time), diff in self._pushed.drain()]

    def pushed_outputs(self) -> list[list[tuple[T, int]]]:
        """Return, for each output of the scope, changes of the times that pointstamps may become.

        Each path and frontier element that leads there counts once: only whether a count is above 0
        matters. The pointstamps of node 0 are excluded.
        """
        return [batch.drain() for batch in self._pushed_outputs]

    def frontier(self, location: Location) -> tuple[T, ...]:
        """Return the earliest times that may still appear at a location; () if none will."""
        return self._implications[self._place[location]].frontier

    def pointstamps(self, location: Location) -> MutableAntichain[T]:
        """Return the pointstamps at a location."""
        return self._pointstamps[self._place[location]]

    def holds(self, node: int) -> bool:
        """Whether a node holds a capability at any output."""
        return self._held.count(node) > 0

    def tracks_anything(self) -> bool:
        """Whether any pointstamp is counted, or an update is buffered."""
        return bool(self._tracked_count or self._updates)

    def _visit(self, time: T, place: int, diff: int) -> None:
        key = (time, place)
        due = self._due.get(key)
        if due is None:
            heappush(self._heap, key)
        self._due[key] = (due or 0) + diff

    def _imply(self, place: int, time: T, diff: int) -> None:
        """Change the implications at a location, and propagate the change of its frontier."""
        for changed, sign in self._implications[place].update_iter(((time, diff),)):
            self._pushed.update((place, changed), sign)
            for to, summary in self._steps[place]:
                result = changed if summary is None else summary.results_in(changed)
                if result is not None:
                    self._visit(result, to, sign)
