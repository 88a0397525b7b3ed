"""Scopes: graphs of operators, each an operator itself to the scope around it (Timely).

A scope exposes three things to the outside: how its inputs lead to its outputs, which capabilities
are left inside, projected to its outputs, and how many messages have entered and left. Inside the
scope, child 0 represents the outside.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from errata.processors.progress.antichain import Antichain
from errata.processors.progress.location import Connectivity, Source, Target
from errata.processors.progress.operate import Initialized, Interest, Operator, Progress
from errata.processors.progress.reachability import Builder
from errata.processors.progress.refinement import Refinement
from errata.processors.progress.scope import Child, Scope
from errata.processors.progress.timestamp import Timestamp

Outer = TypeVar("Outer", bound=Timestamp)
Inner = TypeVar("Inner", bound=Timestamp)


class ScopeBuilder(Generic[Outer, Inner]):
    """Builds a scope, which can be added to the scope around it as an operator.

    A scope runs its children in the order in which they were added. If that order is topological,
    except for feedback, messages are processed in the same round.

    Args:
        name: For messages.
        refinement: How its times relate to those outside.
        inputs: How many inputs it has.
        outputs: How many outputs it has.

    Example:
        What enters a scope without operators leaves it:

        >>> from errata.processors.progress.refinement import Rounds
        >>> from errata.processors.progress.summary import IDENTITY
        >>> from errata.processors.progress.timestamp import Epoch
        >>> pipe = ScopeBuilder("pipe", Rounds(IDENTITY), inputs=1, outputs=1)
        >>> pipe.connect(Source(0, 0), Target(0, 0))
        >>> scope = pipe.build()
        >>> scope.connectivity
        [{0: Antichain([Advance(by=0, below=inf)])}]
        >>> scope.enter(0, Epoch(3))
        >>> _ = scope.schedule()
        >>> scope.progress.consumeds[0], scope.progress.produceds[0]
        (ChangeBatch([(3, 1)]), ChangeBatch([(3, 1)]))
    """

    def __init__(
        self, name: str, refinement: Refinement[Outer, Inner], *, inputs: int = 0, outputs: int = 0
    ) -> None:
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self._refinement = refinement
        self._operators: list[Operator[Inner]] = []
        self._edges: list[tuple[Source, Target]] = []

    @property
    def interest(self) -> list[Interest]:
        """For every input, the highest interest among its children."""
        keenest = [interest for operator in self._operators for interest in operator.interest]
        return [max(keenest, default=Interest.NEVER)] * self.inputs

    def add(self, operator: Operator[Inner]) -> int:
        """Add a child; return its number, 1 or more."""
        self._operators.append(operator)
        return len(self._operators)

    def connect(self, source: Source, target: Target) -> None:
        """Connect an output to an input; those of node 0 are the scope's inputs and outputs."""
        self._edges.append((source, target))

    def build(self) -> Scope[Outer, Inner]:
        """Prepare the scope and everything in it to run.

        Raises:
            GraphError: If an edge or a connectivity names a port that does not exist.
            EndlessCycleError: If times could circulate in a cycle without advancing.
        """
        graph = Builder(
            self.name, self._refinement.identity, inputs=self.inputs, outputs=self.outputs
        )
        outside: Progress[Inner] = Progress(self.outputs, self.inputs)
        children: list[Child[Inner]] = [
            Child("outside", [], outside, [], [[] for _ in range(self.inputs)], None)
        ]
        for operator in self._operators:
            ready = operator.initialize()
            graph.add_node(operator.name, operator.inputs, operator.outputs, ready.connectivity)
            children.append(
                Child(
                    operator.name,
                    ready.connectivity,
                    ready.progress,
                    operator.interest,
                    [[] for _ in range(operator.outputs)],
                    ready.work,
                )
            )
        for source, target in self._edges:
            graph.add_edge(source, target)
            children[source.node].edges[source.port].append(target)
        tracker, paths = graph.build()
        connectivity: Connectivity[Outer] = [
            {
                port: Antichain(map(self._refinement.summarize, chain))
                for port, chain in ends.items()
            }
            for ends in paths
        ]
        return Scope(self._refinement, children, tracker, connectivity, outputs=self.outputs)

    def initialize(self) -> Initialized[Outer]:
        """Prepare it to run, as an operator of the scope around it."""
        scope = self.build()
        return Initialized(scope.connectivity, scope.progress, scope)
