"""Scopes: graphs of operators, each an operator itself to the scope around it (Timely).

A scope exposes three things to the outside: how its inputs lead to its outputs, which capabilities
are left inside, projected to its outputs, and how many messages have entered and left. Inside the
scope, child 0 represents the outside.

The steps of a running scope are those of Timely's ``Subgraph``: accept changes from outside, update
frontiers, and run the children with new input, from a heap of their numbers. If the numbers are in
topological order, this is also Streamulus' priority queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from errata.processors.progress.antichain import Antichain, ChangeBatch, MutableAntichain
from errata.processors.progress.location import OUTSIDE, Connectivity, Location, Source, Target
from errata.processors.progress.operate import (
    Initialized,
    Interest,
    Operator,
    Progress,
    Schedulable,
    validate,
)
from errata.processors.progress.reachability import Builder, Tracker
from errata.processors.progress.refinement import Refinement
from errata.processors.progress.timestamp import Timestamp

T = TypeVar("T", bound=Timestamp)
Outer = TypeVar("Outer", bound=Timestamp)
Inner = TypeVar("Inner", bound=Timestamp)


@dataclass(slots=True)
class Child(Generic[T]):
    """An operator in a scope; child 0 has no work, and a record that stays empty.

    Args:
        name: For messages.
        connectivity: The path summaries from each input to the outputs.
        progress: The record shared with it.
        interest: For each input, whether the child runs when that frontier changes.
        edges: For each output, the inputs that it leads to.
        work: The running operator; None once it is dropped.
    """

    name: str
    connectivity: Connectivity[T]
    progress: Progress[T]
    interest: Sequence[Interest]
    edges: list[list[Target]]
    work: Schedulable | None


class Scope(Generic[Outer, Inner]):
    """A running scope; built by `ScopeBuilder`.

    Attributes:
        connectivity: How its inputs lead to its outputs, as seen from outside.
        progress: The record that it shares with the scope around it.
    """

    def __init__(
        self,
        refinement: Refinement[Outer, Inner],
        children: list[Child[Inner]],
        tracker: Tracker[Inner],
        connectivity: Connectivity[Outer],
        *,
        outputs: int,
    ) -> None:
        self.connectivity = connectivity
        self.progress: Progress[Outer] = Progress(len(connectivity), outputs)
        self.tracker = tracker
        self._refinement, self._children = refinement, children
        self._pointstamps: ChangeBatch[tuple[Location, Inner]] = ChangeBatch()
        self._capabilities: list[MutableAntichain[Outer]] = [
            MutableAntichain() for _ in range(outputs)
        ]
        self._active: list[int] = []
        self._queued: set[int] = set()
        self._incomplete = set(range(1, len(children)))
        for number in range(1, len(children)):
            self._take_report(number)
            self._activate(number)
        self._propagate()
        self.progress.run_again = True

    def enter(self, port: int, time: Outer, count: int = 1) -> None:
        """Count messages that have entered the scope, at the inputs that this port leads to.

        The scope reports them as consumed when it runs next.
        """
        inner = self._refinement.to_inner(time)
        self._pointstamps.update((Source(OUTSIDE, port), inner), -count)
        self._send(OUTSIDE, port, inner, count)
        self.progress.run_again = True

    def activate(self, child: int, *within: int) -> None:
        """Run a child in the next round even without new input.

        Args:
            child: Its number.
            within: If it is a scope: the child in it, and so on.
        """
        self._activate(child)
        self.progress.run_again = True
        work = self._children[child].work
        if within and isinstance(work, Scope):
            work.activate(*within)

    def schedule(self) -> bool:
        """Run one round: accept changes from outside, then run each active child at most once.

        Returns:
            Whether anything in the scope isn't done: a child, a capability, or a message.
        """
        self._accept_frontiers()
        self._propagate()
        previous, later = OUTSIDE, []
        while self._active:
            number = heappop(self._active)
            if number > previous:
                self._queued.remove(number)
                self._run(number)
                previous = number
            else:
                later.append(number)
        heapify(later)
        self._active = later
        self.progress.run_again = bool(self._pointstamps or self._active)
        return bool(self._incomplete) or self.tracker.tracks_anything()

    def _accept_frontiers(self) -> None:
        """Hold the times that may still enter from outside as capabilities of child 0."""
        for port, batch in enumerate(self.progress.frontiers):
            for time, diff in batch.drain():
                self.tracker.update(Source(OUTSIDE, port), self._refinement.to_inner(time), diff)

    def _propagate(self) -> None:
        """Update frontiers from the children's reports, and report to the outside.

        The outer report is consistent only as a whole: the messages that child 0 has sent are those
        that the scope has consumed; the messages that have reached child 0 are those that the scope
        has produced; the times that all other pointstamps may still become at the outputs are the
        capabilities that the scope holds.
        """
        for (place, time), diff in self._pointstamps.drain():
            if place.node != OUTSIDE:
                self.tracker.update(place, time, diff)
            elif isinstance(place, Source):  # counted down as messages enter
                self.progress.consumeds[place.port].update(self._refinement.to_outer(time), -diff)
            else:
                self.progress.produceds[place.port].update(self._refinement.to_outer(time), diff)
        self.tracker.propagate_all()
        self._push_frontiers()
        for port, changes in enumerate(self.tracker.pushed_outputs()):
            outer = [(self._refinement.to_outer(time), diff) for time, diff in changes]
            for change in self._capabilities[port].update_iter(outer):
                self.progress.internals[port].update(*change)

    def _push_frontiers(self) -> None:
        """Report input frontiers to children; activate those that are interested or may end."""
        touched: set[int] = set()
        for place, time, diff in self.tracker.pushed():
            if place.node == OUTSIDE:
                continue
            touched.add(place.node)
            if isinstance(place, Target):
                child = self._children[place.node]
                child.progress.frontiers[place.port].update(time, diff)
                interest = child.interest[place.port]
                holds_capability = interest == Interest.IF_CAPABILITY and self.tracker.holds(
                    place.node
                )
                if interest == Interest.ALWAYS or holds_capability:
                    self._activate(place.node)
        for number in touched:
            if self._is_finished(number):
                self._activate(number)

    def _run(self, number: int) -> None:
        child = self._children[number]
        if child.work is None:
            return
        if not child.work.schedule():
            self._incomplete.discard(number)
        else:
            self._incomplete.add(number)
        validate(
            child.name,
            child.progress,
            connectivity=child.connectivity,
            held=lambda port: self.tracker.pointstamps(Source(number, port)),
        )
        self._take_report(number)
        if number not in self._incomplete and self._is_finished(number):
            child.work = None

    def _take_report(self, number: int) -> None:
        """Take a child's whole report at once."""
        progress = self._children[number].progress
        for port, batch in enumerate(progress.consumeds):
            for time, diff in batch.drain():
                self._pointstamps.update((Target(number, port), time), -diff)
        for port, batch in enumerate(progress.internals):
            for time, diff in batch.drain():
                self._pointstamps.update((Source(number, port), time), diff)
        for port, batch in enumerate(progress.produceds):
            for time, diff in batch.drain():
                self._send(number, port, time, diff)
        if progress.run_again:
            progress.run_again = False
            self._activate(number)

    def _send(self, number: int, port: int, time: Inner, count: int) -> None:
        """Count messages at the inputs that an output leads to, and activate their nodes."""
        for target in self._children[number].edges[port]:
            self._pointstamps.update((target, time), count)
            if target.node != OUTSIDE:
                self._activate(target.node)

    def _activate(self, number: int) -> None:
        """Run a child in this round if its turn is still to come, otherwise in the next."""
        if number not in self._queued:
            self._queued.add(number)
            heappush(self._active, number)

    def _is_finished(self, number: int) -> bool:
        """Whether a child can get no more input and holds no capability."""
        inputs = range(len(self._children[number].connectivity))
        return not self.tracker.holds(number) and not any(
            self.tracker.frontier(Target(number, port)) for port in inputs
        )


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
        interests = [interest for operator in self._operators for interest in operator.interest]
        return [max(interests, default=Interest.NEVER)] * self.inputs

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
