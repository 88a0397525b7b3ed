"""A random scenario: processes run interleaved, die anywhere, and are restarted.

Each process knows only what it has read itself. Other processes may run between any two steps of a
process, and inside a step at every call of the cluster. Time is a number that the simulation
increases.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from errata.processors.arcs import feeds
from errata.processors.plan.deployed import declare_end, deploy, topic_specs
from errata.processors.tasks import attempt as attempts
from errata.processors.tasks import task as tasks
from errata.processors.tasks.replay_client import LONGEST_RESEND_S
from errata.processors.tasks.task import Task
from errata.sweepers import sweeper
from errata.topics.cluster import DoubtfulCommitError, FencedError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.settings import TopicSpec
from tests.laws.cleaner import Cleaner
from tests.laws.envelopes import Record, written
from tests.laws.history import History
from tests.laws.networks import PARTITIONS, Shape
from tests.laws.process import NEVER_COMPACTED_MS, Kind, Process, kinds
from tests.laws.tape import Tape

CALLS = ("begin", "produce", "flush", "offsets", "commit", "committed")
STEPS_A_TICK = 30
ROUND_MS, QUIET_ROUNDS, MOST_ROUNDS = 500, 14, 2_000
"""While nothing happens each round is longer than the one before."""
assert ROUND_MS * sum(range(QUIET_ROUNDS)) > LONGEST_RESEND_S * 1000, "lost replies come too late"


class KilledError(Exception):
    """The process died here."""


class Faults:
    """The frequency of faults, per step or per call of the cluster.

    Args:
        rng: The random generator.
        exposing: Whether a late EndTxn may expose half of a transaction.
    """

    def __init__(self, rng: random.Random, *, exposing: bool) -> None:
        calm = rng.random() < 0.15  # a crash would hide a deadlock
        storm = 3 if rng.random() < 0.25 else 1
        self.kill = 0 if calm else 0.006 * storm
        self.kill_in_call = 0 if calm else 0.015 * storm
        self.doubt = 0 if calm else 0.015 * storm
        self.late = 0.01 * storm if exposing and not calm else 0
        self.interleave = 0.03


class Simulation:
    """Runs a network on a random tape with faults, then without faults until nothing changes.

    Args:
        shape: The network.
        seed: Seed of all random choices; it determines the scenario.
        folder: The folder of indexes and copies.
        ticks: The length of the tape.
        cluster: The cluster of the topics.
        faults: Whether faults occur.
        beside: The share of scopes with their sweepers beside them, not over topics.
        skews_ms: Errors of the clocks of ingest tasks, by partition; at random if there are none.
    """

    waits = True
    """Whether tasks wait for brokers at times, while others of their process work."""

    def __init__(
        self,
        shape: Shape,
        *,
        seed: int,
        folder: Path,
        ticks: int = 30,
        cluster: MemoryCluster | None = None,
        faults: bool = True,
        beside: float = 0.4,
        skews_ms: Sequence[int] = (),
    ) -> None:
        self.put_back: dict[str, int] = {}  # where the watermark of a source was put back to
        self.since = -1  # the last epoch of the plan's version before this one
        self.shape, self.plan, self.folder, self.ticks = shape, shape.plan, folder, ticks
        self.rng = random.Random(seed)
        # What is handed over, read, looked up again and answered depends on the seed alone.
        self._clocks = [
            mock.patch.object(module, "monotonic", self.now_s)
            for module in (feeds, attempts, tasks, sweeper)
        ]
        for clock in self._clocks:
            clock.start()
        self.now, self.seen = 1_000_000, Counter[str]()
        self.trims = 0
        self.cluster = MemoryCluster() if cluster is None else cluster
        self.cluster.clock_ms = lambda: self.now
        self.cluster.on_step = self._call
        self.faults = Faults(self.rng, exposing=not self.plan.topology.sinks) if faults else None
        self.lose = 0.3  # share of restarted processes that have lost their files
        self.running: list[Process] = []
        self.places: list[TopicPartition] = []
        for spec in topic_specs(self.plan, compaction_lag_ms=2**60):
            self.cluster.create(spec.name, spec.partitions)
            self._watch(spec)
        for source in self.plan.topology.sources.values():
            if not source.is_bound:
                self.cluster.create(source.topic, PARTITIONS)
        deploy(self.cluster, self.plan)
        self.history = History(self.cluster, self.plan)
        self.tape: dict[str, list[list[Record]]] = {
            source: [[] for _ in range(PARTITIONS)] for source in self.plan.topology.sources
        }
        found = kinds(self.plan, self.rng, beside=beside, skews_ms=skews_ms)
        self.processes = [self._start(kind) for kind in found]
        self.zombies: list[Process] = []
        self.down: dict[int, int] = {}  # index of a process: step at which it is restarted
        self.step = 0
        self.cleaner = Cleaner(self.cluster, self.plan, self.history)

    def now_s(self) -> float:
        """Return the time in seconds."""
        return self.now / 1000

    # ---------------------------------------------------------------- the scenario

    def run(self) -> None:
        """Run the scenario to its end."""
        make = self.shape.tape
        tapes = {
            source: make(self.rng, partitions=PARTITIONS) for source in self.plan.topology.sources
        }
        self._first_act(tapes)
        self.drain()
        self._second_act(tapes)
        self.drain()

    def _first_act(self, tapes: dict[str, Tape]) -> None:
        """Processes run, die, and are restarted, while records arrive."""
        rng = self.rng
        third = self.ticks // 3
        silent = range(third, 2 * third) if rng.random() < 0.5 else range(0)
        end_tick = rng.choice([self.ticks - 4, self.ticks + 1])
        for tick in range(self.ticks):
            for _ in range(rng.choice([1, 2, 2, 3])):
                self._send(tapes, 2 * tick, 0 if tick in silent else None)
            if tick == end_tick:
                declare_end(self.cluster, self.plan, rng.choice(list(tapes)))
            for _ in range(STEPS_A_TICK):
                self.step += 1
                self._advance_somebody()

    def _second_act(self, tapes: dict[str, Tape]) -> None:
        """Kill all processes; those that lost their files must reply as if they had not."""
        self.kill_all()
        self.seen["records compacted away"] += self.clean()
        for _ in range(8):
            self._send(tapes, 2 * self.ticks)

    def kill_all(self) -> None:
        """Kill all processes; many of those that follow have lost their files."""
        for place in range(len(self.processes)):
            self._end(place, "killed at rest")
        self.lose = 0.6

    def _send(self, tapes: dict[str, Tape], now: int, partition: int | None = None) -> None:
        source = self.rng.choice(list(tapes))
        line, known = tapes[source].line(now, partition), self.plan.topology.sources[source]
        record = written(line.content, known.envelope)
        self.tape[source][line.partition].append(record)
        self.cluster.send(known.topic, partition=line.partition, **record._asdict())

    def _advance_somebody(self) -> None:
        rng = self.rng
        self.now += rng.randrange(40)
        for place in [place for place, until in self.down.items() if until <= self.step]:
            self._restart(place)
        place = rng.randrange(len(self.processes))
        if self.faults is not None:
            self._fault(self.faults, place)
        self._advance(place)
        if self.zombies and rng.random() < 0.2:
            self._advance_zombie(rng.choice(self.zombies))
        if rng.random() < 0.04:
            self.seen["records compacted away"] += self.clean()
        if rng.random() < 0.04:
            self._trim()

    def _fault(self, faults: Faults, place: int) -> None:
        if self.rng.random() < faults.kill and place not in self.down:
            self._end(place, "killed between steps", zombie=self.rng.random() < 0.5)
        if self.rng.random() < faults.late:
            task = self.rng.choice([task for p in self.processes for task in p.tasks])
            self.cluster.late_end_txn(f"{self.plan.network}.{task.name}")

    def owners(self, source: str, epoch: int) -> int:
        """Return how many tasks own the identities of a rekeyed source at an epoch."""
        return self.plan.placement.partitions.get(f"{source}.exchange", 1)

    def clean(self, *, all_passed: bool = False) -> int:
        """Run the cleaner; return how many records were removed."""
        return self.cleaner.clean([*self.processes, *self.zombies], all_passed=all_passed)

    def _trim(self) -> None:
        """Let all tasks delete what nobody needs: all transactions since the last time have ended.

        A task only looks again, and only deletes what has long been written, if time has passed.
        """
        self.history.read()
        self.trims += 1
        logs = [
            self.cluster.log(place) for places in self.history.arcs.values() for place in places
        ]
        for process in [*self.processes, *self.zombies]:
            for task in process.tasks:
                if isinstance(task, Task) and task.started and not process.is_dead:
                    task.trimmer.trim(now_ms=self.trims * 2 * NEVER_COMPACTED_MS)
        self.seen["trimmed logs"] = sum(log.start > 0 for log in logs)

    def drain(self) -> None:
        """Run without faults until nothing changes."""
        self.faults = None
        for zombie in self.zombies:
            zombie.close()
        self.zombies.clear()
        self._end_sources()
        quiet = rounds = 0
        while quiet < QUIET_ROUNDS and rounds < MOST_ROUNDS:
            before = sum(map(self.cluster.end, self.places))
            for place in list(self.down):
                self._restart(place)
            for place, process in enumerate(self.processes):
                process.waits = False  # for brokers: what takes many rounds would pass for rest
                for turn in range(len(process.actors)):
                    self._advance(place, turn)
            self.now += ROUND_MS * (1 + quiet)
            rounds += 1
            quiet = quiet + 1 if before == sum(map(self.cluster.end, self.places)) else 0
        self.seen["never quiet"] += quiet < QUIET_ROUNDS

    def _end_sources(self) -> None:
        for source in self.plan.topology.sources:
            declare_end(self.cluster, self.plan, source)

    def close(self) -> None:
        """Close all files."""
        for clock in self._clocks:
            clock.stop()
        for process in [*self.processes, *self.zombies]:
            process.close()

    def _watch(self, spec: TopicSpec) -> None:
        """Count what comes to a topic as progress, but for requests: lost ones are repeated."""
        if not spec.name.endswith("requests"):
            self.places += [TopicPartition(spec.name, p) for p in range(spec.partitions)]

    # ---------------------------------------------------------------- processes

    def _start(self, kind: Kind, old: Process | None = None) -> Process:
        """Start a process in its predecessor's folder, sometimes in an empty one."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        if old is not None and not old.is_zombie and self.rng.random() >= self.lose:
            folder = old.folder
        elif old is not None and any(old.folder.iterdir()):
            self.seen[f"lost {kind.what}"] += kind.what != "scope" or kind.beside
        folder.mkdir(exist_ok=True)
        return Process(kind, self.cluster, self.plan, folder, lambda: self.now, waits=self.waits)

    def _restart(self, place: int) -> None:
        del self.down[place]
        old = self.processes[place]
        self.processes[place] = self._start(old.kind, old)

    def _advance(self, place: int, turn: int | None = None) -> None:
        """Advance one process if it runs; a doubtful commit or a fault may end it."""
        process = self.processes[place]
        if place in self.down:
            return
        self.running.append(process)
        try:
            process.advance(self.rng, turn)
        except DoubtfulCommitError:
            self.seen["doubtful commits"] += 1
            if self.rng.random() < 0.5:
                process.begin_again()
            else:
                self._end(place, "ended by a doubtful commit")
        except KilledError:
            self._end(place, "killed in a call")
        except FencedError:  # by a zombie that was slow to start
            self._end(place, "fenced by a zombie")
        finally:
            self.running.pop()

    def _advance_zombie(self, zombie: Process) -> None:
        self.running.append(zombie)
        try:
            zombie.advance(self.rng)
        except (FencedError, DoubtfulCommitError) as error:
            self.seen["fenced zombies"] += isinstance(error, FencedError)
            self.zombies.remove(zombie)
            zombie.close()
        finally:
            self.running.pop()

    def _end(self, place: int, how: str, *, zombie: bool = False) -> None:
        """End a process as kill -9 does; a zombie is only slow, and runs beside its successor."""
        process = self.processes[place]
        self.seen[how] += 1
        if zombie:
            process.is_zombie = True
            self.zombies.append(process)
        else:
            process.kill()
        self.down[place] = self.step + self.rng.choice([0, 0, 30, 200])

    # ---------------------------------------------------------------- inside a call

    def _call(self, name: str) -> None:
        """Run before each step of the cluster: the caller may die, other processes may run."""
        if not self.running or self.faults is None:
            return
        process, rng, faults = self.running[-1], self.rng, self.faults
        if name in CALLS:
            kind = "report" if name == "produce" and process.calls[-1:] == ["flush"] else name
            process.calls.append(name)
            if rng.random() < faults.kill_in_call and not process.is_zombie:
                self.seen[f"killed at {kind}"] += 1
                process.forget_transactions()
                raise KilledError
            if name in ("commit", "committed") and rng.random() < faults.doubt:
                raise DoubtfulCommitError(f"played: the outcome at {name} is not known")
        if len(self.running) == 1 and rng.random() < faults.interleave:
            place = rng.randrange(len(self.processes))
            if self.processes[place] is not process and place not in self.down:
                self._advance(place)
