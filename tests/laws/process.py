"""One process of a simulation: tasks or sweepers that share a view."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from errata.processors.ingest.bound_task import BoundTask
from errata.processors.ingest.ingest_task import ROWS_A_BATCH, IngestTask
from errata.processors.ingest.owner_task import OwnerTask
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import ingest_scope
from errata.processors.reports.progress_view import View
from errata.processors.tasks.handover import Handover, Written
from errata.processors.tasks.replay_client import TopicReplayClient
from errata.processors.tasks.scope_task import ScopeTask
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.sweepers.sweeper import LocalSweepers, Service, Sweeper
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.laws.spark_engine import SparkJob

SEGMENT_ROWS = 6  # small, so that a restarted sweeper finds sealed segments
NEVER_COMPACTED_MS = 2**60
TOGETHER = 0.4
"""The share of scenarios in which one process does most of the work: it hands over its records."""
FORGOTTEN = 0.1
"""The share of records that it does not hand over."""


@dataclass(frozen=True)
class Kind:
    """The kind of a process.

    Args:
        what: ``ingest``, ``scope``, ``spark``, ``sweep`` or ``together``.
        name: The source, the scope, or the arc.
        partitions: Its partitions.
        beside: Of a scope: whether its sweepers run in the same process.
        skew_ms: Of ingest: the error of its clock.
        parts: What runs together.
    """

    what: str
    name: str = ""
    partitions: tuple[int, ...] = ()
    beside: bool = False
    skew_ms: int = 0
    parts: tuple["Kind", ...] = ()


def kinds(
    plan: CompiledPlan, rng: random.Random, *, beside: float, skews_ms: Sequence[int] = ()
) -> list[Kind]:
    """Return the processes of a network, with tasks distributed at random.

    Args:
        plan: The network.
        rng: The random generator.
        beside: The share of scopes with their sweepers beside them.
        skews_ms: Errors of the clocks of ingest tasks, by partition; at random if there are none.
    """
    found = []
    for name, source in plan.topology.sources.items():
        if source.on_spark:
            found.append(Kind("spark", ingest_scope(name), ()))
            continue
        for partition in range(len(plan.placement.ingest_tasks([name]))):
            skew = rng.choice([-100_000, -30, 0, 0, 700])
            skew = skews_ms[partition] if skews_ms else skew
            found.append(Kind("ingest", name, (partition,), skew_ms=skew))
    over_topics = False
    for name, scope in plan.topology.scopes.items():
        if scope.on_spark:
            found.append(Kind("spark", name, ()))
            over_topics = True
            continue
        every = tuple(range(len(plan.placement.tasks(name))))
        has_beside = rng.random() < beside
        over_topics |= not has_beside
        parts = [every] if rng.random() < 0.5 else [(p,) for p in every]
        found += [Kind("scope", name, part, has_beside) for part in parts]
    if over_topics:
        for arc in plan.replayed_points():
            found.append(Kind("sweep", arc, tuple(range(plan.placement.partitions[arc]))))
    if rng.random() < TOGETHER:
        chosen = [kind for kind in found if kind.what != "spark" and rng.random() < 0.7]
        left = [kind for kind in found if kind not in chosen]
        found = [*left, Kind("together", parts=tuple(chosen))] if chosen else left
    return found


class Forgetful(Handover):
    """Hands over most of what tasks commit: records of others may come between those of a task.

    In the cluster in memory none do.
    """

    def __init__(self, shared: Shared, chance: random.Random) -> None:
        super().__init__(shared)
        self.chance = chance

    def _is_in_one_piece(self, sent: Sequence[Written], offsets: range) -> bool:
        return self.chance.random() >= FORGOTTEN and super()._is_in_one_piece(sent, offsets)


class Process:
    """A simulated process.

    Args:
        kind: What it runs.
        cluster: The cluster of the topics.
        plan: The deployed plan.
        folder: The folder of its indexes and copies.
        now: The clock, in ms.
        waits: Whether brokers are slow; then some ingest tasks take few records at once, and read
            ahead.
    """

    def __init__(
        self,
        kind: Kind,
        cluster: MemoryCluster,
        plan: CompiledPlan,
        folder: Path,
        now: Callable[[], int],
        *,
        waits: bool = True,
    ) -> None:
        self.kind, self.plan, self.folder, self.now = kind, plan, folder, now
        view = View(cluster, plan=plan)
        self.shared = Shared(
            cluster, plan, SchemaRegistry(cluster), view, NEVER_COMPACTED_MS,
            hands_over=True, run=self._run,
        )  # fmt: skip
        self._chance, self.waits = random.Random(str(kind)), waits
        self.shared.handover = Forgetful(self.shared, self._chance)
        self.tasks: list[Task | SparkJob] = []
        self.sweepers: list[Sweeper] = []
        self.services: list[Service] = []
        self.besides: dict[str, dict[int, Sweeper]] = {}
        self.calls: list[str] = []
        self.is_zombie = self.is_dead = False
        for part in kind.parts or (kind,):
            own = folder / f"{part.what}.{part.name}.{part.partitions}" if kind.parts else folder
            own.mkdir(exist_ok=True)
            made = {"ingest": self._ingest, "scope": self._scope, "spark": self._spark}
            (made | {"sweep": self._sweep})[part.what](part, own)
        besides = [sweeper for found in self.besides.values() for sweeper in found.values()]
        self.actors = [*self.tasks, *self.services, *besides]
        self.lives: list[Iterator[bool]] = [actor.steps() for actor in self.actors]
        self.turn = 0

    def _run(self, call: Callable[[], Any]) -> Iterator[bool]:
        """Run a call to the brokers; while brokers are slow, others work before it, and after."""
        yield from self._late()
        result = call()
        yield from self._late()
        return result

    def _late(self) -> list[bool]:
        return [False] * self._chance.choice((*[0] * 8, 1, 3)) if self.waits else []

    def _ingest(self, kind: Kind, folder: Path) -> None:
        source = self.plan.topology.sources[kind.name]
        if source.is_bound:
            clock_ms = partial(self._skewed_ms, kind.skew_ms)
            self.tasks.append(BoundTask(self.shared, source, clock_ms=clock_ms))
            return
        for partition in kind.partitions:
            task = IngestTask(
                self.shared,
                source,
                partition=partition,
                folder=folder / f"index.{partition}",
                clock_ms=partial(self._skewed_ms, kind.skew_ms),
            )
            task.rows_a_batch = (
                self._chance.choice((2, ROWS_A_BATCH)) if self.waits else ROWS_A_BATCH
            )
            self.tasks.append(task)

    def _skewed_ms(self, skew_ms: int) -> int:
        return self.now() + skew_ms

    def _scope(self, kind: Kind, folder: Path) -> None:
        scope = self.plan.topology.scopes[kind.name]
        source = self.plan.topology.owned(scope.name)
        if source is not None:
            for partition in kind.partitions:
                index = folder / f"index.{partition}"
                task = OwnerTask(self.shared, source, partition=partition, folder=index)
                self.tasks.append(task)
            return
        everywhere = {arc for box in scope.boxes for arc in self.plan.replayed_everywhere(box)}
        for partition in kind.partitions:
            if kind.beside:
                for arc in self.plan.replayed_points_of(scope):
                    count = self.plan.placement.partitions[arc]
                    own = self.besides.setdefault(arc, {})
                    for number in range(count) if arc in everywhere else [partition]:
                        if number not in own:
                            own[number] = self._sweeper(arc, number, folder)
                replays = LocalSweepers(self.besides, partition=partition)
            else:
                replays = TopicReplayClient(
                    self.shared,
                    scope=scope.name,
                    partition=partition,
                    clock_s=lambda: self.now() / 1000,
                )
            self.tasks.append(ScopeTask(self.shared, scope, partition=partition, replays=replays))

    def _spark(self, kind: Kind, folder: Path) -> None:
        scope = self.plan.topology.jobs[kind.name]
        replays = None
        if scope.boxes:
            replays = TopicReplayClient(
                self.shared, scope=scope.name, partition=0, clock_s=lambda: self.now() / 1000
            )
        self.tasks.append(
            SparkJob(
                self.shared,
                scope,
                folder=folder,
                replays=replays,
                rng=random.Random(self.now()),
                clock_ms=self.now,
            )
        )

    def _sweep(self, kind: Kind, folder: Path) -> None:
        for partition in kind.partitions:
            sweeper = self._sweeper(kind.name, partition, folder)
            self.services.append(Service(self.shared, sweeper))

    def _sweeper(self, arc: str, partition: int, folder: Path) -> Sweeper:
        sweeper = Sweeper(
            self.shared,
            arc,
            partition=partition,
            folder=folder / f"{arc}.{partition}",
            clock_ms=self.now,
            segment_rows=SEGMENT_ROWS,
        )
        self.sweepers.append(sweeper)
        return sweeper

    def advance(self, rng: random.Random, turn: int | None = None) -> bool:
        """Advance one actor, by number or at random; in the latter case sweepers may lag."""
        self.turn = rng.randrange(len(self.actors)) if turn is None else turn
        if turn is None and not isinstance(self.actors[self.turn], Task) and rng.random() < 0.3:
            return False
        return next(self.lives[self.turn])

    def begin_again(self) -> None:
        """Start a new attempt of the task whose commit is doubtful; the other tasks continue."""
        self.lives[self.turn] = self.actors[self.turn].steps()

    def forget_transactions(self) -> None:
        """Leave open transactions to the broker, as a killed process does."""
        for task in self.tasks:
            task.attempt.transactions = None

    def kill(self) -> None:
        """End abruptly, as by SIGKILL."""
        self.forget_transactions()
        self.close()

    def close(self) -> None:
        """Close files; safe to call twice."""
        self.is_dead = True
        for life in self.lives:
            life.close()
        for sweeper in self.sweepers:
            sweeper.close()
