"""A running scope: its children run in the order of their numbers and move frontiers (Timely).

The steps are those of Timely's ``Subgraph``: accept changes from outside, update frontiers, and run
the children with new input, from a heap of their numbers. If the numbers are in topological order,
this is also Streamulus' priority queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from errata.processors.progress.antichain import MutableAntichain
from errata.processors.progress.change_batch import ChangeBatch
from errata.processors.progress.location import OUTSIDE, Connectivity, Location, Source, Target
from errata.processors.progress.operate import Interest, Progress, Schedulable
from errata.processors.progress.reachability import Tracker
from errata.processors.progress.refinement import Refinement
from errata.processors.progress.timestamp import Timestamp
from errata.processors.progress.validity import validate

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
    """A running scope; built by `subgraph.ScopeBuilder`.

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
        self.progress.again = True

    def enter(self, port: int, time: Outer, count: int = 1) -> None:
        """Count messages that have entered the scope, at the inputs that this port leads to.

        The scope reports them as consumed when it runs next.
        """
        inner = self._refinement.to_inner(time)
        self._pointstamps.update((Source(OUTSIDE, port), inner), -count)
        self._send(OUTSIDE, port, inner, count)
        self.progress.again = True

    def activate(self, child: int, *within: int) -> None:
        """Run a child in the next round even without new input.

        Args:
            child: Its number.
            within: If it is a scope: the child in it, and so on.
        """
        self._activate(child)
        self.progress.again = True
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
        self.progress.again = bool(self._pointstamps or self._active)
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
                holds = interest == Interest.IF_CAPABILITY and self.tracker.holds(place.node)
                if interest == Interest.ALWAYS or holds:
                    self._activate(place.node)
        for number in touched:
            if self._is_over(number):
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
        if number not in self._incomplete and self._is_over(number):
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
        if progress.again:
            progress.again = False
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

    def _is_over(self, number: int) -> bool:
        """Whether a child can get no more input and holds no capability."""
        inputs = range(len(self._children[number].connectivity))
        return not self.tracker.holds(number) and not any(
            self.tracker.frontier(Target(number, port)) for port in inputs
        )
