"""A random graph whose nodes send, keep and drop, and a tracker that hears of it later."""

from collections import Counter, deque
from functools import cached_property
from random import Random
from typing import Any

from errata.processors.progress.location import Location, Source, Target
from errata.processors.progress.reachability import Builder, Tracker
from tests.processors.progress.times import LOWEST, appear, later, random_summary

MESSAGES = 25


class Graph:
    """A random graph: nodes with paths inside, edges between."""

    def __init__(self, rng: Random, depth: int) -> None:
        self.depth = depth
        count = rng.randint(2, 7)
        self.shape = [(rng.choice([0, 1, 1, 2]), rng.choice([1, 1, 2])) for _ in range(count)]
        self.paths: dict[tuple[int, int, int], list[Any]] = {
            (node, port, output): [random_summary(rng, depth) for _ in range(rng.choice([1, 1, 2]))]
            for node, (inputs, outputs) in enumerate(self.shape)
            for port in range(inputs)
            for output in range(outputs)
            if rng.random() < 0.7
        }
        sources = [
            Source(n, p) for n, (_, outputs) in enumerate(self.shape) for p in range(outputs)
        ]
        targets = [Target(n, p) for n, (inputs, _) in enumerate(self.shape) for p in range(inputs)]
        self.edges = [
            (source, target)
            for target in targets
            for source in rng.sample(sources, min(len(sources), rng.choice([0, 1, 1, 1, 2])))
        ]
        self.steps: dict[Any, Any] = {place: [] for place in [*sources, *targets]}
        for source, target in self.edges:
            self.steps[source].append((target, lambda time: time))
        for (node, port, output), chain in self.paths.items():
            for summary in chain:
                self.steps[Target(node, port)].append((Source(node, output), summary.results_in))

    def build(self) -> Tracker[Any]:
        graph: Builder[Any] = Builder("random")
        for node, (inputs, outputs) in enumerate(self.shape):
            connectivity = [
                {
                    output: self.paths[node, port, output]
                    for output in range(outputs)
                    if (node, port, output) in self.paths
                }
                for port in range(inputs)
            ]
            graph.add_node(f"n{node}", inputs, outputs, connectivity)
        for edge in self.edges:
            graph.add_edge(*edge)
        return graph.build()

    @cached_property
    def stands_still(self) -> bool:
        """Whether some cycle brings the least time back as it is."""
        lowest = LOWEST[self.depth]
        for start in self.steps:
            seen, work = set(), [start]
            while work:
                place = work.pop()
                for after, step in self.steps[place]:
                    if step(lowest) == lowest and after not in seen:
                        seen.add(after)
                        work.append(after)
            if start in seen:
                return True
        return False


def advancing_graph(rng: Random, depth: int) -> Graph:
    """A random graph in which every cycle advances."""
    while (graph := Graph(rng, depth)).stands_still:
        pass
    return graph


class Flat:
    """Messages and capabilities as they are, and a tracker that hears of them node by node.

    Whatever a node does in one move is one report; a node's reports arrive in order, those of
    different nodes in any order, so that a message may be heard of after it has been taken.
    """

    def __init__(self, rng: Random, depth: int) -> None:
        self.rng, self.graph = rng, advancing_graph(rng, depth)
        self.tracker = self.graph.build()
        self.messages: Counter[tuple[Any, Any]] = Counter()
        self.held: Counter[tuple[Any, Any]] = Counter()
        self.reports: list[deque[list[tuple[Location, Any, int]]]] = [
            deque() for _ in self.graph.shape
        ]
        for place in self.graph.steps:
            if isinstance(place, Source) and rng.random() < 0.8:
                self._change(self.held, place, LOWEST[depth], 1)
                self.tracker.update(place, LOWEST[depth], 1)
        self.hear()

    def move(self) -> bool:
        """Let some node take a message, or use a capability; return False if none has either."""
        rng = self.rng
        stamps = self.stamps()
        if not stamps:
            return False
        place, time = stamps[rng.randrange(len(stamps))]
        report: list[tuple[Location, Any, int]] = []
        if isinstance(place, Target):
            self._change(self.messages, place, time, -1, report)
            for after, step in self.graph.steps[place]:
                if rng.random() < 0.6:
                    self._use(after, step(time), report)
        else:
            self._use(place, time, report)
            if rng.random() < 0.4:
                self._change(self.held, place, time, -1, report)
        rng.shuffle(report)
        self.reports[place.node].append(report)
        return True

    def _use(self, source: Any, time: Any, report: list[tuple[Location, Any, int]]) -> None:
        """Send or keep something at the time or later."""
        crowded = self.messages.total() + self.held.total() > MESSAGES
        if not crowded and self.rng.random() < 0.6:
            sent = later(self.rng, time)
            for target, _ in self.graph.steps[source]:
                self._change(self.messages, target, sent, 1, report)
        if self.rng.random() < (0.1 if crowded else 0.5):
            self._change(self.held, source, later(self.rng, time), 1, report)

    def wind_down(self) -> None:
        """Take every message and drop every capability, with nothing to follow."""
        for counts in (self.messages, self.held):
            for (place, time), count in list(counts.items()):
                report: list[tuple[Location, Any, int]] = []
                self._change(counts, place, time, -count, report)
                self.reports[place.node].append(report)

    def hear(self, nodes: list[int] | None = None) -> None:
        """Take the next report of some nodes, or all of every node, and propagate."""
        for node in range(len(self.reports)) if nodes is None else nodes:
            queue = self.reports[node]
            while queue:
                for place, time, diff in queue.popleft():
                    self.tracker.update(place, time, diff)
                if nodes is not None:
                    break
        self.tracker.propagate_all()

    def check_safe(self) -> None:
        """No frontier has passed a time that may still appear."""
        for place, times in self.appear().items():
            frontier = self.tracker.frontier(place)
            for time in times:
                assert any(known.less_equal(time) for known in frontier), (place, time, frontier)

    def check_exact(self) -> None:
        """After all reports: every frontier is what a search gives."""
        self.hear()
        truth = self.appear()
        for place in self.graph.steps:
            frontier = self.tracker.frontier(place)
            assert set(frontier) == set(truth.get(place, ())), place
            assert len(frontier) == len(set(frontier)), place

    def check_scratch(self) -> None:
        """A new tracker that is told only what is left knows the same."""
        self.hear()
        fresh = self.graph.build()
        for counts in (self.messages, self.held):
            for (place, time), count in counts.items():
                fresh.update(place, time, count)
        fresh.propagate_all()
        for place in self.graph.steps:
            assert fresh.frontier(place) == self.tracker.frontier(place), place

    def appear(self) -> dict[Any, list[Any]]:
        return appear(self.graph.steps, self.stamps())

    def stamps(self) -> list[tuple[Any, Any]]:
        return [*self.messages, *self.held]

    @staticmethod
    def _change(
        counts: Counter[tuple[Any, Any]],
        place: Any,
        time: Any,
        diff: int,
        report: list[tuple[Location, Any, int]] | None = None,
    ) -> None:
        counts[place, time] += diff
        if not counts[place, time]:
            del counts[place, time]
        if report is not None:
            report.append((place, time, diff))


def live(flat: Flat, moves: int, *, check: float) -> int:
    """Let a graph live through some moves, checked now and then, to its end; return how many."""
    rng, done = flat.rng, 0
    while done < moves and flat.move():
        done += 1
        if rng.random() < 0.5:
            flat.hear([rng.randrange(len(flat.reports))])
        if rng.random() < check:
            flat.check_safe()
            if rng.random() < 0.2:
                flat.check_exact()
                flat.check_scratch()
    flat.check_exact()
    flat.wind_down()
    while any(flat.reports):
        flat.hear([rng.randrange(len(flat.reports))])
        flat.check_safe()
    assert not any(flat.tracker.frontier(place) for place in flat.graph.steps)
    return done
