"""Scenarios in which a network switches to its next version while it runs.

The next version has other numbers of partitions, or more boxes, which are filled from the history.
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from errata.deploy.versions import next_version
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import read_plan, topic_specs
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.takeover import Fill
from errata.processors.tasks.task import WrongPlanError
from errata.processors.wire.task_id import TaskId
from errata.run import parts
from errata.run.parts import Actor, Parts
from errata.run.switch import Switch
from errata.topics.cluster import DoubtfulCommitError, FencedError, TopicPartition
from errata.topics.registry import SchemaRegistry
from tests.laws.audit import Audit
from tests.laws.cleaner import Cleaner
from tests.laws.history import History
from tests.laws.networks import PARTITIONS, Shape
from tests.laws.oracle import Content
from tests.laws.process import NEVER_COMPACTED_MS, Process, kinds
from tests.laws.simulation import STEPS_A_TICK, KilledError, Simulation
from tests.plans import with_topology

DIED_AT_MOST = 12


class Mover:
    """The process of a switch, with the interface of simulated processes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_zombie = False

    def forget_transactions(self) -> None:
        """Do nothing: the next attempt fences its transactions."""


class Switching(Simulation):
    """Switches in the middle of the tape, and again after draining.

    Args:
        shape: The network.
        count: The partitions that its sources' arcs get.
        then: Those that they get in a second switch soon after; None: there is none.
        more: Other arguments of `Simulation`.
    """

    def __init__(self, shape: Shape, *, count: int, then: int | None = None, **more) -> None:
        super().__init__(shape, **more)
        self.count, self.then, self.before = count, then, self.plan
        self.versions: list[tuple[int, CompiledPlan]] = []
        """The last epoch and the plan of each version before the deployed one."""

    def run(self) -> None:
        """Run the scenario to its end."""
        make = self.shape.tape
        tapes = {
            source: make(self.rng, partitions=PARTITIONS) for source in self.plan.topology.sources
        }
        self._first_act(tapes)
        # A seed determines the scenario.
        with mock.patch.object(parts, "wall_clock_ms", self._clock_ms):
            self._switch(tapes)
            if self.then is not None:
                self._third_act(tapes)
                self.count = self.then
                self._switch(tapes)
        self._third_act(tapes)
        self.drain()
        self._second_act(tapes)
        self.drain()

    def _third_act(self, tapes) -> None:
        """Processes of a new version run, die, and are restarted, while records arrive."""
        for tick in range(self.ticks, self.ticks + 8):
            self._send(tapes, 2 * tick)
            for _ in range(STEPS_A_TICK):
                self.step += 1
                self._advance_somebody()

    def _clock_ms(self) -> int:
        return self.now

    # ---------------------------------------------------------------- the switch

    def _switch(self, tapes) -> None:
        rng, old = self.rng, self.plan
        new = self.next(old)
        for spec in topic_specs(new, compaction_lag_ms=2**60):
            self.cluster.create(spec.name, spec.partitions)
        for place, process in enumerate(self.processes):
            if place not in self.down:  # it does not know of the switch yet
                process.is_zombie = True
                self.zombies.append(process)
        self.down = dict.fromkeys(range(len(self.processes)), 2**60)
        for died in range(2 * DIED_AT_MOST):
            if self._life(tapes, old, new, may_die=died < DIED_AT_MOST):
                break
        found = read_plan(self.cluster, new.network)
        assert (found.deployment.version, found.switching_to) == (new.deployment.version, None)
        self.since, self.before, self.plan = found.deployment.first_epoch - 1, old, new
        self.versions.append((self.since, old))
        self.shape = replace(self.shape, plan=new)
        self.history.read()
        history = History(self.cluster, new)
        history.rows |= self.history.rows
        history.positions |= self.history.positions
        self.history, self.cleaner = history, Cleaner(self.cluster, new, history)
        self.places.clear()
        for spec in topic_specs(new, compaction_lag_ms=2**60):
            self._watch(spec)
        self.down.clear()
        self.processes = [self._start(kind) for kind in kinds(new, rng, beside=0.4)]

    def next(self, old: CompiledPlan) -> CompiledPlan:
        """Return the plan to switch to: another one, as `errata deploy` does nothing else."""
        new = next_version(old, other_counts(old, self.count))
        if new.fingerprint == old.fingerprint:
            new = next_version(old, other_counts(old, self.count - 1))
        return new

    def fill(self, was: Shared, new: CompiledPlan) -> Fill | None:
        """Return the writer of new arcs; None, since there are no new arcs."""

    def _life(self, tapes, old: CompiledPlan, new: CompiledPlan, *, may_die: bool) -> bool:
        """Run one attempt of the switch, interleaved with others; return whether it completed."""
        registry = SchemaRegistry(self.cluster)
        was, comes = (
            Shared(self.cluster, p, registry, View(self.cluster, plan=p), NEVER_COMPACTED_MS)
            for p in (old, new)
        )
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()

        def scopes() -> list[Actor]:
            parts = Parts(was, Path(folder))
            parts.beside.update(old.topology.scopes)
            tasks = [
                TaskId.parse(task)
                for scope in old.topology.scopes
                for task in old.placement.tasks(scope)
            ]
            return [a for task in tasks for a in parts.tasks(str(task.scope), task.partition)]

        switch, mover = Switch(was, comes, scopes, fill=self.fill(was, new)), Mover()
        life, faults = switch.run_once(), self.faults
        if not may_die:
            self.faults = None
            for zombie in self.zombies:
                zombie.close()
            self.zombies.clear()
        dies = may_die and self.rng.random() < 0.5
        try:
            for _ in range(100_000):
                self.running.append(mover)
                try:
                    next(life)
                finally:
                    self.running.pop()
                if dies and self.rng.random() < 0.004:
                    self.seen["killed in a switch"] += 1
                    return False
                if self.rng.random() < 0.02:
                    self._send(tapes, 2 * self.ticks)
                if self.zombies and self.rng.random() < 0.1:
                    self._advance_zombie(self.rng.choice(self.zombies))
            raise AssertionError(f"the switch did not end: it {switch.step}")
        except StopIteration:
            return True
        except (KilledError, FencedError, DoubtfulCommitError) as error:
            self.seen[f"a switch ended by {type(error).__name__}"] += 1
            return False
        finally:
            self.faults = None
            life.close()
            self.faults = faults

    def _advance_zombie(self, zombie: Process) -> None:
        if self.rng.random() < 0.02:
            zombie.begin_again()  # as if it had not seen the switch
        try:
            super()._advance_zombie(zombie)
        except WrongPlanError:
            self.seen["old versions refused"] += 1
            self.zombies.remove(zombie)
            zombie.close()

    def owners(self, source: str, epoch: int) -> int:
        """Return how many tasks owned the identities of a rekeyed source at an epoch."""
        plan = next((plan for last, plan in self.versions if epoch <= last), self.plan)
        return plan.placement.partitions[f"{source}.exchange"]


class SwitchAudit(Audit):
    """Checks the laws from the last epoch of the old version on."""

    def _begin(self) -> None:
        """Insert what arcs without history held: it is not copied, but readers continue."""
        switching = self.simulation
        new = switching.plan
        for arc in new.topology.topics:
            if arc in new.kept_ms or new.topology.arcs[arc].exchange:
                continue
            for content in self._held(arc).values():
                there = self._partition(arc, content, new.placement.partitions[arc])
                insert = {"op": "insert", "before": None, "after": content}
                insert |= {"task": "", "attempt": 0, "epoch": switching.since}
                self.revisions[arc][there].insert(0, insert)

    def _held(self, arc: str) -> Content:
        """Return what an arc held in topics of earlier versions."""
        topic, told = self.plan.deployment.topic(arc), []
        places = {
            TopicPartition(plan.deployment.topic(arc), partition): None
            for _, plan in self.simulation.versions
            if arc in plan.topology.topics
            for partition in range(plan.placement.partitions[arc])
        }
        for place in places:
            told += self._believed(place) if place.topic != topic else ()
        told.sort(key=lambda revision: (revision["epoch"], revision["op"] != "delete"))
        return self._folded(arc, told)

    def _agree(self) -> None:
        """L5, where contents were written anew: only revisions after the switch."""
        told, since, before = self.revisions, self.simulation.since, self.simulation.before
        is_same = self.plan.boxes.keys() == before.boxes.keys()
        if not (is_same and self.plan.kept_ms.keys() == before.kept_ms.keys()):
            self.revisions = {
                arc: [[row for row in rows if row["epoch"] > since] for rows in parts]
                for arc, parts in told.items()
            }
        super()._agree()
        self.revisions = told

    def _compacted(self) -> None:
        told = self.revisions
        self.revisions = {
            arc: [[row for row in rows if row["task"]] for rows in parts]
            for arc, parts in told.items()
        }
        super()._compacted()
        self.revisions = told

    def _kinds(self) -> None:
        """Skip this: counts continue, but the topics before the switch are not read."""


def judged(make: Callable[[Path], Switching], seen: Counter[str]) -> dict:
    """Run a scenario, and add what it has seen; return the violations by law."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = make(Path(folder))
        try:
            simulation.run()
            found = SwitchAudit(simulation).found
        finally:
            simulation.close()
        seen.update(simulation.seen)
    return {law: [len(what), *what[:3]] for law, what in found.items()}


def other_counts(plan: CompiledPlan, count: int) -> CompiledPlan:
    """Return a plan whose sources' arcs have other numbers of partitions."""
    sources = {
        name: replace(source, partitions=count) for name, source in plan.topology.sources.items()
    }
    return with_topology(plan, sources=sources).placed(plan.placement.topic_partitions)
