"""A scope at work: its children run by their numbers, their reports move frontiers (Timely).

The order is that of Timely's ``Subgraph``: take what is new from outside, let frontiers follow, run
the children that something has reached, from a heap of their numbers. Where numbers follow the
graph this is Streamulus' priority queue, too.
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
    """An operator in a scope; child 0 has no work, and a record that nobody writes to.

    Args:
        name: For messages.
        connectivity: What its paths make of a time, for each input.
        progress: The record shared with it.
        interest: For each input, whether it is to run when that frontier changes.
        edges: For each output, the inputs that it leads to.
        work: What runs; None once it is let go.
    """

    name: str
    connectivity: Connectivity[T]
    progress: Progress[T]
    interest: Sequence[Interest]
    edges: list[list[Target]]
    work: Schedulable | None


class Scope(Generic[Outer, Inner]):
    """A scope at work; made by `subgraph.ScopeBuilder`.

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
        """Count messages that have been put into the scope, wherever its input leads.

        The scope tells of them as consumed when it runs next.
        """
        inner = self._refinement.to_inner(time)
        self._pointstamps.update((Source(OUTSIDE, port), inner), -count)
        self._send(OUTSIDE, port, inner, count)
        self.progress.again = True

    def activate(self, child: int, *within: int) -> None:
        """Have a child run in the next round though nothing reaches it.

        Args:
            child: Its number.
            within: Where it is a scope: the child in it, and so on.
        """
        self._activate(child)
        self.progress.again = True
        work = self._children[child].work
        if within and isinstance(work, Scope):
            work.activate(*within)

    def schedule(self) -> bool:
        """Run one round: take what is new from outside, then run each active child at most once.

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
        """What may still come from outside is held as capabilities of child 0."""
        for port, batch in enumerate(self.progress.frontiers):
            for time, diff in batch.drain():
                self.tracker.update(Source(OUTSIDE, port), self._refinement.to_inner(time), diff)

    def _propagate(self) -> None:
        """Let frontiers follow what children have reported, and tell the world outside.

        All at once, since what is told outside only holds together: what child 0 has sent is what
        the scope has consumed; what has reached child 0 is what the scope has produced; and what
        the rest may still become at the outputs, without what came out already, is what the scope
        holds.
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
        """Tell children of their inputs' frontiers; have those run that want to or may end."""
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
        """Take what a child has reported, all of it at once."""
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
        """Count messages at the inputs that an output leads to, and have those run."""
        for target in self._children[number].edges[port]:
            self._pointstamps.update((target, time), count)
            if target.node != OUTSIDE:
                self._activate(target.node)

    def _activate(self, number: int) -> None:
        """Have a child run in this round if its turn is still to come, else in the next."""
        if number not in self._queued:
            self._queued.add(number)
            heappush(self._active, number)

    def _is_over(self, number: int) -> bool:
        """Whether nothing more reaches a child and it holds nothing."""
        inputs = range(len(self._children[number].connectivity))
        return not self.tracker.holds(number) and not any(
            self.tracker.frontier(Target(number, port)) for port in inputs
        )
