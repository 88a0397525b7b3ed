"""Two networks, one bound to the arcs of the other, with processes that die in both.

``upper`` has the sources of a random network, and filters over some of them. ``lower`` has all its
other boxes, and reads the arcs of ``upper`` where they are.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from errata import Network, Stream
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.declarations import BOUND, Source
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.tasks import subjects
from errata.topics.cluster import TopicPartition
from errata.topics.registry import SchemaRegistry
from tests.laws import oracle
from tests.laws.audit import Audit
from tests.laws.cleaner import Cleaner
from tests.laws.networks import PARTITIONS, Shape
from tests.laws.oracle import FOREVER, NEVER, Tuple, watermark
from tests.laws.process import Process
from tests.laws.random_boxes import FIELDS, kind
from tests.laws.random_networks import RandomNetwork, RandomShape, shape_of
from tests.laws.random_results import draw_predicate
from tests.laws.simulation import STEPS_A_TICK, Simulation


def bound(source: Source, arc: str, **more) -> Source:
    """Return a source as one that is bound to an arc of ``upper``."""
    return replace(
        source, envelope=BOUND, format="avro", topic=f"upper.{arc}", partitions=None,
        idle_after=None, rekey=False, max_ahead="1h", **more,
    )  # fmt: skip


def split(
    net: Network, whole: CompiledPlan, export: Callable[[Network, str], tuple[str, int]]
) -> tuple[Network, Network]:
    """Return a network with the sources of another one, and one with the rest.

    Args:
        net: The other network.
        whole: Its plan.
        export: Adds to the first network what is behind a source; returns the arc that the second
            one reads, and its `lateness`.
    """
    upper, below = Network("upper"), dict(net.declarations)
    for name, box in net.declarations.items():
        if isinstance(box, Source):
            by = whole.topology.arcs[name].partition_by
            upper.declarations[name] = replace(box, partition_by=by)
            arc, lateness = export(upper, name)
            below[name] = bound(box, arc, partition_by=by, lateness=lateness)
    sinks = [sink for sink in net.sinks if not isinstance(below[sink.arc], Source)]
    return upper, replace(net, name="lower", declarations=below, sinks=sinks)


def placed_below(lower: CompiledPlan, upper: CompiledPlan) -> CompiledPlan:
    """Return a plan with the partitions of the arcs that it is bound to."""
    counts = upper.placement.partitions
    return lower.placed({n: counts[s.bound_to[1]] for n, s in lower.topology.sources.items()})


def halves(shape: Shape, net: Network) -> tuple[Shape, Shape]:
    """Return the shapes of two networks: one with the sources of a network, one with the rest.

    Args:
        shape: The network's shape.
        net: The network.
    """
    upper, lower = split(net, shape.plan, lambda _, source: (source, 0))
    above = compile_network(upper)
    above = above.placed(dict.fromkeys(above.topology.sources, PARTITIONS))
    below = placed_below(compile_network(lower), above)
    return replace(shape, plan=above, boxes=()), replace(shape, plan=below)


def divided(made: RandomNetwork, seed: int) -> tuple[Shape, RandomShape]:
    """Return the shapes of both networks of a random one.

    Args:
        made: The random network.
        seed: Draws which sources are filtered upstream.
    """
    dice, boxes = random.Random(f"compose {seed}"), list[oracle.Box]()

    def export(upper: Network, source: str) -> tuple[str, int]:
        arc = source
        if dice.random() < 0.5:
            arc, kinds = f"some_{source}", {field: kind(text) for field, text in FIELDS.items()}
            where = draw_predicate(dice, kinds, made.times.unit)
            Stream(upper, source).where(arc, where.text, keep=made.times.keep)
            boxes.append(oracle.Where(arc, source, where.means))
        return arc, dice.choice([0, 0, 2])

    upper, lower = split(made.net, shape_of(made, made.net).plan, export)
    above, below = shape_of(made, upper), shape_of(made, lower)
    above = replace(above, boxes=tuple(boxes), agree=())
    return above, replace(below, plan=placed_below(below.plan, above.plan))


class Upper(Simulation):
    """The network upstream.

    Args:
        shape: The network.
        more: Other arguments of `Simulation`.
    """

    def __init__(self, shape: Shape, **more) -> None:
        super().__init__(shape, **more)
        self.tapes = {
            source: shape.tape(self.rng, partitions=PARTITIONS)
            for source in self.plan.topology.sources
        }

    def send(self, now: int) -> None:
        """Let a record arrive."""
        self._send(self.tapes, now)

    def at(self, tick: int) -> None:
        """Let the records of a tick arrive."""
        for _ in range(self.rng.choice([1, 2, 2, 3])):
            self.send(2 * tick)

    def _trim(self) -> None:
        """Delete nothing: boxes below may need older tuples than those of this network."""


class Composed(Simulation):
    """Runs both networks; this is the lower one.

    Args:
        upper: The shape of the other one.
        lower: The shape of this one.
        folder: The folder of indexes and copies.
        kind: The simulation of the other one.
        more: Other arguments of `Simulation`.
    """

    def __init__(
        self,
        upper: Shape,
        lower: Shape,
        *,
        folder: Path,
        seed: int,
        kind: type[Upper] = Upper,
        **more,
    ) -> None:
        for name in ("upper", "lower"):
            (folder / name).mkdir()
        self.upper = kind(upper, folder=folder / "upper", seed=seed, **more)
        subjects.register(upper.plan, SchemaRegistry(self.upper.cluster))
        super().__init__(
            lower, folder=folder / "lower", seed=seed, cluster=self.upper.cluster, **more
        )
        self.cluster.clock_ms = lambda: self.now
        self.cluster.on_step = self._call_both
        self.upper.cleaner = BothCleaner(self)

    has_begun = True
    """Whether the lower network runs: at times it begins when the upper one has a history."""

    def _call_both(self, name: str) -> None:
        self.upper._call(name)
        self._call(name)

    def run(self) -> None:
        """Run the scenario to its end."""
        begins = self.rng.choice([0, 0, self.ticks // 2])
        for tick in range(self.ticks):
            self.has_begun = tick >= begins
            if tick == begins:
                self.seen["compacted before"] += self.upper.clean()
            self.upper.at(tick)
            for _ in range(2 * STEPS_A_TICK):
                self.step += 1
                self._advance_somebody()
        self.drain()
        self.upper.kill_all()
        self.kill_all()
        self.seen["records compacted away"] += self.clean() + self.upper.clean()
        for _ in range(8):
            self.upper.send(2 * self.ticks)
        self.drain()

    def _advance_somebody(self) -> None:
        if self.rng.random() < 0.5 or not self.has_begun:
            self.upper.now, self.upper.step = self.now, self.step
            self.upper._advance_somebody()
            self.now = self.upper.now
        else:
            super()._advance_somebody()

    def drain(self) -> None:
        """Run both without faults until nothing changes."""
        self.upper.now = self.now
        self.upper.drain()
        self.now = self.upper.now
        super().drain()

    def _end_sources(self) -> None:
        """Do nothing: they end upstream."""

    def close(self) -> None:
        """Close all files."""
        super().close()
        self.upper.close()


class BothCleaner(Cleaner):
    """Compacts the topics of the upper network: what readers in both have passed."""

    def __init__(self, simulation: Composed) -> None:
        upper = simulation.upper
        super().__init__(upper.cluster, upper.plan, upper.history)
        self.simulation = simulation

    def _horizon(self, arc: str, place: TopicPartition, processes: list[Process]) -> int:
        horizon, lower = super()._horizon(arc, place, processes), self.simulation
        if not lower.has_begun:
            return horizon
        view = lower.cleaner.view
        view.poll()
        for name, source in lower.plan.topology.sources.items():
            if source.bound_to[1] != arc:
                continue
            passed = [
                view.of(task).done
                for scope in lower.plan.topology.scopes
                if name in lower.plan.topology.sources_behind(scope)
                for task in view.tasks(scope)
            ]
            passed += [
                sweeper.store.sealed
                for process in [*lower.processes, *lower.zombies]
                for sweeper in process.sweepers
                if (sweeper.arc.name, sweeper.partition) == (name, place.partition)
            ]
            pairs = view.of(view.writers(name, 0)[0]).bound
            done = min(passed, default=-1)
            behind = max((upstream for own, upstream in pairs if own <= done), default=-1)
            rows = self.history.rows[place]
            newer = (row.offset for row in rows if row.content and row.content["epoch"] > behind)
            horizon = min(horizon, next(newer, 2**40))
        return horizon


class ComposedAudit(Audit):
    """Checks the laws of the lower network, given what the upper one holds.

    Args:
        simulation: A finished simulation.
        upper: The audit of the upper network.
    """

    simulation: Composed

    def __init__(self, simulation: Composed, upper: Audit) -> None:
        self.upper = upper
        super().__init__(simulation)

    def _intake(self) -> None:
        """Map what the arcs upstream held to epochs of this network."""
        self.pairs, self.lowered, self.arrived = [], set(), defaultdict(dict)
        for name, source in self.plan.topology.sources.items():
            reports = self.reports[f"ingest.{name}.0"]
            told = [item for r in reports for item in r["counts"].items()]
            begin = "bound_epoch."
            pairs = sorted({(int(k[len(begin) :]), u) for k, u in told if k.startswith(begin)})
            self._map(name, source.bound_to[1], pairs)
            lowered = {value for key, value in told if key == "lowered_epoch" and value >= 0}
            self.lowered |= lowered
            rises = {p["epoch"]: p["watermark"] for r in reports for p in r["watermarks"]}
            self.pairs.append(rises)
            self._check_watermarks(name, pairs, rises, source.lateness_ms)
        self.seen["epochs paired"] += sum(map(len, self.pairs))

    def _map(self, source: str, arc: str, pairs: list[tuple[int, int]]) -> None:
        revisions = [each for part in self.upper.revisions[arc] for each in part]
        revisions.sort(key=lambda each: (each["epoch"], each["op"] != "delete"))
        held: dict[str, Tuple] = {}
        for epoch, upstream in pairs:
            before = dict(held)
            while revisions and revisions[0]["epoch"] <= upstream:
                revision = revisions.pop(0)
                held.pop((revision["before"] or revision["after"])["key"], None)
                if revision["after"] is not None:
                    held[revision["after"]["key"]] = revision["after"]
            for key in before.keys() | held.keys():
                if before.get(key) != held.get(key):
                    self.arrived[epoch][source, key] = held.get(key)
        if revisions:
            self.found["Progress"].append(f"{source} lacks {len(revisions)} revisions upstream")

    def _check_watermarks(
        self, source: str, pairs: list[tuple[int, int]], told: dict[int, int], lateness: int
    ) -> None:
        upper, bound = self.upper, self.plan.topology.sources[source]
        behind = upper.plan.topology.sources_of[bound.bound_to[1]]
        of_tapes = [name for name in upper.plan.topology.sources for _ in range(PARTITIONS)]
        own = [w for name, w in zip(of_tapes, upper.pairs, strict=True) if name in behind]
        for epoch, upstream in pairs:
            is_ = watermark([told], epoch, lowered=self.lowered)
            above = watermark(own, upstream, lowered=upper.lowered)
            should = above if above >= FOREVER else max(above - lateness, NEVER)
            if is_ > should:  # what was before may not be told any more
                self.found["L1"].append(f"{source} epoch {epoch}: wm {is_}, should be {should}")

    def _cover(self) -> None:
        """Count nothing more."""
