"""Random scopes within scopes, whose operators do what they may, and where messages really are."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from errata.processors.progress.antichain import Antichain, MutableAntichain
from errata.processors.progress.location import OUTSIDE, Location, Source, Target
from errata.processors.progress.operate import Initialized, Interest, Progress
from errata.processors.progress.refinement import Refinement, Region, Rounds
from errata.processors.progress.scope import Scope, ScopeBuilder
from tests.processors.progress.times import IDENTITIES, LOWEST, appear, later, random_summary

MESSAGES = 25


def settle(scope: Scope[Any, Any]) -> bool:
    """Run a scope until nobody in it has anything to report; return whether anything is left."""
    for _ in range(1000):
        left = scope.schedule()
        if not scope.progress.run_again:
            return left
    raise AssertionError("the scope does not settle")


class Leaf:
    """An operator that takes, keeps, sends and drops at random, as its paths allow."""

    def __init__(self, world: World, group: Group, *, feedback: bool) -> None:
        rng = world.rng
        self.world, self.group, self.number = world, group, len(group.members) + 1
        self.name = f"{group.name}.{self.number}"
        self.inputs, self.outputs = (
            (1, 1) if feedback else (rng.choice([0, 1, 1, 2]), rng.choice([1, 2]))
        )
        self.feedback = feedback
        self.paths: list[dict[int, Antichain[Any]]] = [
            {
                output: Antichain(
                    random_summary(rng, group.depth, by=1 if feedback else None)
                    for _ in range(rng.choice([1, 1, 2]))
                )
                for output in range(self.outputs)
                if feedback or rng.random() < 0.8
            }
            for _ in range(self.inputs)
        ]
        self.interest = [world.interest or rng.choice(list(Interest)) for _ in range(self.inputs)]
        self.progress: Progress[Any] = Progress(self.inputs, self.outputs)
        self.waiting: list[Counter[Any]] = [Counter() for _ in range(self.inputs)]
        self.held: list[Counter[Any]] = [Counter() for _ in range(self.outputs)]
        self.runs = 0
        self.known: list[MutableAntichain[Any]] = [MutableAntichain() for _ in range(self.inputs)]

    def initialize(self) -> Initialized[Any]:
        for output in range(self.outputs):
            if self.world.rng.random() < (0.2 if self.inputs else 0.9):
                self._hold(output, LOWEST[self.group.depth], 1)
        return Initialized(self.paths, self.progress, self)

    def schedule(self) -> bool:
        self.runs += 1
        for port, batch in enumerate(self.progress.frontiers):
            self.known[port].update_iter(batch.drain())
        self.world.run_leaf(self)
        return any(self.waiting)

    def move(self) -> None:
        rng = self.world.rng
        waiting = [(port, time) for port, times in enumerate(self.waiting) for time in times]
        if waiting and rng.random() < 0.7:
            port, time = rng.choice(waiting)
            self.take(port, time)
            for output, chain in self.paths[port].items():
                for summary in chain:
                    result = summary.results_in(time)
                    if result is not None and rng.random() < 0.7:
                        self._use(output, result)
            return
        held = [(output, time) for output, times in enumerate(self.held) for time in times]
        if held:
            output, time = rng.choice(held)
            self._use(output, time)
            if rng.random() < 0.4:
                self._hold(output, time, -1)

    def take(self, port: int, time: Any) -> None:
        self.world.moved += 1
        self.world.message_count -= 1
        self.waiting[port] -= Counter([time])
        self.progress.consumeds[port].update(time, 1)

    def finish(self) -> None:
        """Take everything, drop everything."""
        for port, times in enumerate(self.waiting):
            for time in list(times.elements()):
                self.take(port, time)
        for output, times in enumerate(self.held):
            for time, count in list(times.items()):
                self._hold(output, time, -count)

    def _use(self, output: int, time: Any) -> None:
        rng, crowded = self.world.rng, self.world.message_count > MESSAGES
        if not crowded and rng.random() < 0.6:
            sent = later(rng, time)
            self.world.moved += 1
            self.progress.produceds[output].update(sent, 1)
            self.world.deliver(self.group, Source(self.number, output), sent)
        if rng.random() < (0.1 if crowded else 0.4):
            self._hold(output, later(rng, time), 1)

    def _hold(self, output: int, time: Any, diff: int) -> None:
        self.world.moved += 1
        self.held[output][time] += diff
        if not self.held[output][time]:
            del self.held[output][time]
        self.progress.internals[output].update(time, diff)


class Group(ScopeBuilder[Any, Any]):
    """A scope of random operators and scopes."""

    scope: Scope[Any, Any]

    def __init__(self, world: World, parent: Group | None, depth: int, level: int) -> None:
        rng = world.rng
        self.parent, self.depth, self.level = parent, depth, level
        self.members: list[Leaf | Group] = []
        self.wires: dict[Location, list[Target]] = {}
        rounds = parent is not None and depth > parent.depth
        self.refinement: Refinement[Any, Any] = (
            Rounds(IDENTITIES[depth - 1]) if rounds else Region(IDENTITIES[depth])
        )
        self.number = len(parent.members) + 1 if parent else 0
        super().__init__(
            f"{parent.name}.{self.number}" if parent else "root",
            self.refinement,
            inputs=rng.choice([0, 1, 1, 2]) if parent else 0,
            outputs=rng.choice([1, 1, 2]) if parent else 0,
        )
        world.groups.append(self)
        for _ in range(rng.randint(2, 4)):
            kind = rng.random()
            member: Leaf | Group
            if level < 3 and kind < 0.2:
                member = Group(world, self, depth, level + 1)
            elif level < 3 and kind < 0.45 and depth < 2:
                member = Group(world, self, depth + 1, level + 1)
            else:
                member = Leaf(world, self, feedback=rng.random() < 0.35)
            self.members.append(member)
            self.add(member)
        self._wire(rng)

    def build(self) -> Scope[Any, Any]:
        self.scope = super().build()
        return self.scope

    @property
    def hears(self) -> bool:
        """Whether the scope runs at every change of what may come from outside."""
        if self.parent is None:
            return True
        return self.parent.hears and set(self.interest) <= {Interest.ALWAYS}

    def _wire(self, rng: Random) -> None:
        """Edges go forward, but for those of a feedback, whose paths all advance."""
        sources = [(OUTSIDE, Source(OUTSIDE, port), False) for port in range(self.inputs)]
        targets = [(9, Target(OUTSIDE, port)) for port in range(self.outputs)]
        for number, member in enumerate(self.members, 1):
            back = isinstance(member, Leaf) and member.feedback
            sources += [(number, Source(number, port), back) for port in range(member.outputs)]
            targets += [(number, Target(number, port)) for port in range(member.inputs)]
        for number, target in targets:
            fitting = [source for before, source, back in sources if back or before < number]
            for source in rng.sample(fitting, min(len(fitting), rng.choice([0, 1, 1, 1, 2]))):
                self.wires.setdefault(source, []).append(target)
                self.connect(source, target)


class World:
    """A random nest of scopes, its operators, and the same graph laid out flat.

    Args:
        rng: Where everything random comes from.
        interest: That of all operators; each its own when None.
        check: How often an operator that runs compares its frontiers with what may reach it.
    """

    def __init__(self, rng: Random, *, interest: Interest | None, check: float) -> None:
        self.rng, self.interest, self.check = rng, interest, check
        self.mode = "live"
        self.moved = self.message_count = 0
        self.groups: list[Group] = []
        self.root = Group(self, None, 0, 0)
        self.leaves = [m for group in self.groups for m in group.members if isinstance(m, Leaf)]
        self.scope = self.root.build()
        self.steps = self._laid_out()

    def _laid_out(self) -> dict[Any, Any]:
        """Places of all scopes; what enters or leaves a scope changes its time there."""
        steps: dict[Any, Any] = {}
        for group in self.groups:
            for number, (ins, outs) in enumerate(
                [(group.outputs, group.inputs), *((m.inputs, m.outputs) for m in group.members)]
            ):
                steps |= {(group, Target(number, port)): [] for port in range(ins)}
                steps |= {(group, Source(number, port)): [] for port in range(outs)}
        for group in self.groups:
            for source, targets in group.wires.items():
                steps[group, source] += [((group, target), lambda time: time) for target in targets]
            for number, member in enumerate(group.members, 1):
                if isinstance(member, Group):
                    inward, outward = member.refinement.to_inner, member.refinement.to_outer
                    for port in range(member.inputs):
                        after = (member, Source(OUTSIDE, port))
                        steps[group, Target(number, port)].append((after, inward))
                    for port in range(member.outputs):
                        after = (group, Source(number, port))
                        steps[member, Target(OUTSIDE, port)].append((after, outward))
                else:
                    for port, paths in enumerate(member.paths):
                        steps[group, Target(number, port)] += [
                            ((group, Source(number, output)), summary.results_in)
                            for output, chain in paths.items()
                            for summary in chain
                        ]
        return steps

    def deliver(self, group: Group, source: Source, time: Any) -> None:
        """Put a message wherever an output leads, at once: long before anyone reports it."""
        for target in group.wires.get(source, ()):
            if target.node == OUTSIDE:
                if group.parent is not None:
                    outer = group.refinement.to_outer(time)
                    self.deliver(group.parent, Source(group.number, target.port), outer)
                continue
            member = group.members[target.node - 1]
            if isinstance(member, Leaf):
                member.waiting[target.port][time] += 1
                self.message_count += 1
            else:
                member.scope.enter(target.port, time)
                inner = member.refinement.to_inner(time)
                self.deliver(member, Source(OUTSIDE, target.port), inner)

    def run_leaf(self, leaf: Leaf) -> None:
        if self.rng.random() < self.check:
            self._check_told(leaf)
        if self.mode == "live":
            for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
                leaf.move()
            leaf.progress.run_again = self.rng.random() < 0.2
        elif self.mode == "finish":
            leaf.finish()

    def round(self) -> bool:
        """Have some operator run, and whatever else is to; return whether anything is left."""
        self.activate(self.rng.choice(self.leaves))
        return self.scope.schedule()

    def activate(self, leaf: Leaf) -> None:
        path, group = [leaf.number], leaf.group
        while group.parent is not None:
            path.insert(0, group.number)
            group = group.parent
        self.scope.activate(*path)

    def settle(self) -> None:
        """Run until nobody has anything to report."""
        mode, self.mode = self.mode, "quiet" if self.mode == "live" else self.mode
        settle(self.scope)
        self.mode = mode

    def stamps(self) -> list[tuple[Any, Any]]:
        found = []
        for leaf in self.leaves:
            for kind, counted in ((Target, leaf.waiting), (Source, leaf.held)):
                for port, times in enumerate(counted):
                    found += [((leaf.group, kind(leaf.number, port)), time) for time in times]
        return found

    def check_safe(self) -> None:
        """No frontier in any scope has passed a time that may still appear there."""
        for (group, location), times in appear(self.steps, self.stamps()).items():
            frontier = group.scope.tracker.frontier(location)
            for time in times:
                assert any(f.less_equal(time) for f in frontier), (group.name, location, time)

    def _check_told(self, leaf: Leaf) -> None:
        """What an operator has been told has not passed what may still reach it."""
        truth = appear(self.steps, self.stamps())
        for port, known in enumerate(leaf.known):
            for time in truth.get((leaf.group, Target(leaf.number, port)), ()):
                assert known.less_equal(time), (leaf.name, port, time, known)

    def check_exact(self) -> None:
        """Once all is reported, the frontiers are those of the graph laid out flat.

        Within a scope only if it hears of every change outside.
        """
        self.settle()
        truth = appear(self.steps, self.stamps())
        for group, location in self.steps:
            if group.hears:
                frontier = group.scope.tracker.frontier(location)
                assert set(frontier) == set(truth.get((group, location), ())), (
                    group.name,
                    location,
                )

    def end(self) -> None:
        """Let everything be taken and dropped: nothing may appear anywhere any more."""
        self.mode = "finish"
        for _ in range(1000):
            self.round()
            if not self.stamps():
                break
        self.settle()
        assert not self.scope.schedule()
        assert not any(group.scope.tracker.frontier(place) for group, place in self.steps)


def live(world: World, rounds: int, *, check: float) -> int:
    """Let a world live for some rounds, checked now and then, to its end; return its moves."""
    rng = world.rng
    for _ in range(rounds):
        if not world.round():
            break
        if rng.random() < check:
            world.check_safe()
            if rng.random() < 0.3:
                world.check_exact()
    world.check_exact()
    world.end()
    return world.moved
