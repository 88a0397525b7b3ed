"""Locations in a graph where a time may be, and the paths between them (Timely).

A location is an output or an input of a node. Node 0 of a scope's graph is the outside: its outputs
are the scope's inputs, and its inputs are the scope's outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias, TypeVar

from errata.processors.progress.antichain import Antichain
from errata.processors.progress.summary import PathSummary
from errata.processors.progress.timestamp import Timestamp

T = TypeVar("T", bound=Timestamp)

OUTSIDE = 0
"""The node that represents the outside of a scope."""


@dataclass(frozen=True, slots=True)
class Source:
    """An output of a node: where capabilities are held and messages are sent."""

    node: int
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """An input of a node: where messages wait."""

    node: int
    port: int


Location: TypeAlias = Source | Target

Connectivity: TypeAlias = Sequence[Mapping[int, Antichain[PathSummary[T]]]]
"""For each input of a node, the outputs that it leads to, with the minimal path summaries.

An absent output can't be reached.
"""


def fully_connected(inputs: int, outputs: int, summary: PathSummary[T]) -> Connectivity[T]:
    """Return the connectivity of a node whose inputs all lead to all outputs by one summary.

    Example:
        >>> from errata.processors.progress.summary import IDENTITY
        >>> fully_connected(1, 2, IDENTITY)[0][1]
        Antichain([Advance(by=0, below=inf)])
    """
    return [{port: Antichain([summary]) for port in range(outputs)} for _ in range(inputs)]


Steps: TypeAlias = Mapping[Location, Sequence[tuple[Location, PathSummary[T] | None]]]
"""The locations one step from each location; None is an edge, which changes no time."""


class StandstillError(Exception):
    """A time may return unchanged along a cycle.

    Args:
        cycle: The locations of the cycle; the last is the first again.
    """

    def __init__(self, cycle: Sequence[Location]) -> None:
        self.cycle = cycle
        super().__init__(cycle)


def in_order(steps: Steps[T]) -> list[Location]:
    """Order all locations so that every step that may leave a time unchanged leads forward.

    Raises:
        StandstillError: If there is no such order.
    """
    predecessors: dict[Location, list[Location]] = {location: [] for location in steps}
    for location, successors in steps.items():
        for successor, summary in successors:
            if summary is None or not summary.advances:
                predecessors[successor].append(location)
    try:
        return list(TopologicalSorter(predecessors).static_order())
    except CycleError as error:
        raise StandstillError(error.args[1]) from error


def paths_to(
    outputs: Iterable[Target], steps: Steps[T], identity: PathSummary[T]
) -> dict[Location, dict[int, Antichain[PathSummary[T]]]]:
    """Return the minimal summaries of all paths to some inputs, by the location they begin at.

    The search runs backwards from the inputs. It terminates because another round of a cycle never
    gives an earlier summary (no result is before its time), so only finitely many are minimal.

    Args:
        outputs: The ends of the paths, each with a port of its own; for a scope, node 0's inputs.
        steps: The graph.
        identity: The summary that changes nothing.

    Returns:
        By location and the port of the end; locations without a path are absent.
    """
    predecessors: dict[Location, list[tuple[Location, PathSummary[T] | None]]] = {}
    for location, successors in steps.items():
        for successor, summary in successors:
            predecessors.setdefault(successor, []).append((location, summary))
    paths: dict[Location, dict[int, Antichain[PathSummary[T]]]] = {}
    queue: deque[tuple[Location, int, PathSummary[T]]] = deque()
    queue.extend((target, target.port, identity) for target in outputs)
    while queue:
        location, port, suffix = queue.popleft()
        for predecessor, summary in predecessors.get(location, ()):
            path = suffix if summary is None else summary.followed_by(suffix)
            if path is None:
                continue
            if paths.setdefault(predecessor, {}).setdefault(port, Antichain()).insert(path):
                queue.append((predecessor, port, path))
    return paths
