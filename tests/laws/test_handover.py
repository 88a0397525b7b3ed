"""A law of what the tasks of a process hand to its readers: these get all that counts, once.

Tasks write to one partition, at the same time and in several attempts. Some commits are of unknown
outcome; other processes take tasks over and lose them again; records of others come between those
of a transaction; readers begin and end. ``ERRATA_LAWS_EXAMPLES=1000`` tries so many series.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import polars as pl
import pytest

from errata.processors.arcs import feeds
from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.feeds import Chunk, Cursor, Feeds
from errata.processors.arcs.partitioner import Emission
from errata.processors.tasks.handover import Handover, Written
from errata.processors.wire.report import Report
from errata.topics.cluster import DoubtfulCommitError, FencedError, Records, TopicPartition
from errata.topics.memory import MemoryCluster

ARC, PROGRESS = TopicPartition("net.trades", 0), TopicPartition("net.progress", 0)
TASKS = tuple(f"ingest.trades.{number}" for number in range(3))
OURS, OTHERS = 7, 8
EXAMPLES, STEPS = int(os.environ.get("ERRATA_LAWS_EXAMPLES", "200")), 250
seen = Counter[str]()


@dataclass
class Transaction:
    """A transaction of a task.

    Args:
        client: Its transactions.
        values: Its records, in the order of its emissions.
        ends: What its last flush has returned.
        reported: The offset after its report.
        is_committed: Whether it is committed; its task may not know.
    """

    client: object
    values: list[list[bytes]] = field(default_factory=list)
    ends: dict[TopicPartition, range] = field(default_factory=dict)
    reported: int = 0
    is_committed: bool = False


class World:
    """Three tasks of one process that write to a partition, and its readers."""

    def __init__(self, seed: int, clock: list[float]) -> None:
        self.rng, self.clock, self.count = random.Random(seed), clock, 0
        self.cluster = MemoryCluster(clock_ms=lambda: 0)
        for place in (ARC, PROGRESS):
            self.cluster.create(place.topic, 1)
        self.reports = {task: Report(task) for task in TASKS}
        self.newest = dict(self.reports)
        self.told: list[tuple[int, Report]] = []
        """The offset after each report of another process."""
        self.read_to = 0
        """Up to where the process has read the reports."""
        view = SimpleNamespace(
            newest_ms=0,
            writers=lambda arc, partition: TASKS,
            of=self.reports.__getitem__,
            has_read_to=lambda end: self.read_to >= end,
        )
        plan = SimpleNamespace(deployment=SimpleNamespace(topic=lambda arc: ARC.topic))
        shared = SimpleNamespace(
            hands_over=True, process=OURS, view=view, plan=plan, codec=lambda arc: self
        )
        self.handover = Handover(shared)
        self.feeds = Feeds(self.cluster, ARC, _decoded)
        self.clients: dict[str, object] = {}
        self.begins_again = set[str]()
        self.eager = self.rng.choice((0.03, 0.5))
        """How likely a task that was fenced or has failed begins again at once."""
        self.slow = self.rng.choice((0.0, 0.15))
        """How likely the process reads no reports."""
        self.open: dict[str, Transaction] = {}
        self.committed: list[tuple[int, Transaction]] = []
        self.known: list[Transaction] = []
        """Committed transactions that the process knows of."""
        self.cursors: dict[Cursor, tuple[int, list[int]]] = {}
        """Where each reader began, and the offsets that it has got."""

    # ---------------------------------------------------------------- the codec

    def hand(self, place, offsets, *, keys, values, before, is_certain, meta, **_):
        if not self.feeds.expects(offsets.start):
            return
        records = Records(place, [*offsets], [*keys], [*values], [0] * len(offsets))
        self.feeds.hand(Chunk(records, _decoded(records), meta.task, before, is_certain))

    def miss(self, place):
        self.feeds.miss()

    # ---------------------------------------------------------------- what happens

    def claim(self, task: str, process: int) -> None:
        """Let a process begin the next attempt of a task."""
        self.clients[task] = self.cluster.transactions(task)
        newest = self.newest[task]
        report = Report(task, attempt=newest.attempt + 1, process=process)
        transaction = Transaction(self.clients[task])
        transaction.client.begin()
        self._report(transaction)
        transaction.client.commit()
        self._tell(report, transaction.reported)
        seen[f"claims of {process}"] += 1

    def _report(self, transaction: Transaction) -> None:
        client = transaction.client
        client.produce(PROGRESS.topic, partitions=[0], keys=[b""], values=[b"report"])
        transaction.reported = client.flush()[PROGRESS].stop

    def _tell(self, report: Report, end: int) -> None:
        self.newest[report.task] = report
        if report.process == OURS:
            self.read_reports(end)  # it reads what came before its claim
            self.reports[report.task] = report
        else:
            self.told.append((end, report))

    def read_reports(self, upto: int) -> None:
        """Let the process read reports."""
        self.read_to = max(self.read_to, upto)
        for end, report in self.told:
            if end <= self.read_to and report.attempt > self.reports[report.task].attempt:
                self.reports[report.task] = report
        self.known += [
            t for end, t in self.committed if end <= self.read_to and t not in self.known
        ]

    def produce(self, transaction: Transaction) -> None:
        """Write some records."""
        values = [b"%d" % (self.count + number) for number in range(self.rng.randint(1, 3))]
        self.count += len(values)
        transaction.values.append(values)
        nothing = [None] * len(values)
        transaction.client.produce(
            ARC.topic, partitions=[0] * len(values), keys=nothing, values=values
        )

    def write_elsewhere(self, task: str) -> None:
        """Let another process write, which has taken a task over, or does so now."""
        if self.newest[task].process != OTHERS or self.rng.random() < 0.2:
            self.claim(task, OTHERS)
        transaction = Transaction(self.clients[task])
        transaction.client.begin()
        self.produce(transaction)
        transaction.client.flush()
        self._report(transaction)
        transaction.client.commit()
        self.committed.append((transaction.reported, transaction))
        seen["written elsewhere"] += 1

    def step(self, task: str) -> None:
        """Let a task of the process do what comes next."""
        transaction = self.open.get(task)
        try:
            if transaction is None:
                is_held_up = task in self.begins_again or self.newest[task].process == OTHERS
                if not is_held_up or self.rng.random() < self.eager:
                    self._begin(task)
            elif not transaction.ends and self.rng.random() < 0.7:
                self.produce(transaction)
                self.handover.begin(task, ARC, arc="trades")
            elif not transaction.ends:
                if transaction.values:
                    transaction.ends = transaction.client.flush()
                    self._report(transaction)
            elif not transaction.is_committed:
                transaction.client.commit()
                transaction.is_committed = True
                self.committed.append((transaction.reported, transaction))
            elif self.rng.random() < 0.1:
                self._fail(task)
            else:
                self._hand(task, self.open.pop(task))
        except (FencedError, DoubtfulCommitError):
            self._fail(task)

    def _begin(self, task: str) -> None:
        if task in self.begins_again or self.newest[task].process != OURS:
            self.claim(task, OURS)
            self.begins_again.discard(task)
        transaction = Transaction(self.clients[task])
        transaction.client.begin()
        self.open[task] = transaction

    def _fail(self, task: str) -> None:
        """Let a task not know the outcome of its transaction: its next attempt begins later."""
        del self.open[task]
        self.handover.fail(task)
        self.begins_again.add(task)
        seen["failed"] += 1

    def _hand(self, task: str, transaction: Transaction) -> None:
        written = []
        for values in transaction.values:
            places = pl.Series([0] * len(values))
            emission = Emission("trades", 1, pl.DataFrame({"x": values}), places)
            written.append(Written(emission, values, values))
        meta = Meta(task, self.reports[task].attempt, 1)
        self.handover.hand(meta, written, transaction.ends, transaction.reported)
        self.known.append(transaction)
        seen["handed over"] += 1

    def poll(self, cursor: Cursor) -> None:
        """Let a reader read, and check what it has got."""
        known = max((t.ends[ARC].stop for t in self.known if t.ends), default=0)
        _, offsets = self.cursors[cursor]
        for chunk in cursor.poll(limit=self.rng.choice((2, 100)), known=known):
            assert not offsets or chunk.first > offsets[-1]
            offsets += chunk.records.offsets
        self.check(cursor)

    def check(self, cursor: Cursor) -> None:
        """Check that a reader has got what the process knows of, up to its position."""
        start, offsets = self.cursors[cursor]
        values = {value for t in self.known for part in t.values for value in part}
        wanted = [
            offset
            for offset, value in self.records()
            if start <= offset < cursor.position and value in values
        ]
        assert set(wanted) <= set(offsets)

    def records(self) -> list[tuple[int, bytes]]:
        """Return the committed records of the partition."""
        records, _ = self.cluster.log(ARC).read(0, 10**6)
        return [*zip(records.offsets, records.values, strict=True)]

    def act(self) -> None:
        """Let something happen."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.55:
            self.step(rng.choice(TASKS))
        elif chance < 0.70 - self.slow:
            stable = self.cluster.stable_ends([PROGRESS])[PROGRESS]
            self.read_reports(rng.randint(min(self.read_to, stable), stable))
        elif chance < 0.90 and self.cursors:
            self.poll(rng.choice([*self.cursors]))
        elif chance < 0.92:
            self.clock[0] += rng.choice((0.1, 1.0, 10.0))
        elif chance < 0.95:
            others = [task for task in TASKS if self.newest[task].process == OTHERS]
            if others or rng.random() < 0.2:
                self.write_elsewhere(rng.choice(others or TASKS))
        elif chance < 0.97 and len(self.cursors) < 3:
            start = rng.choice([0, *(cursor.position for cursor in self.cursors)])
            self.cursors[Cursor(self.feeds, start)] = (start, [])
        elif chance < 0.98 and self.cursors:
            cursor = rng.choice([*self.cursors])
            cursor.close()
            del self.cursors[cursor]
        elif chance < 0.99:
            self.cluster.send(ARC.topic, partition=0, key=None, value=b"-")

    def end(self) -> None:
        """Let all end, and all readers read everything."""
        for task in [*self.open]:
            self.open.pop(task).client.close()
            self.handover.fail(task)
        self.read_reports(self.cluster.end(PROGRESS))
        for cursor, (start, offsets) in self.cursors.items():
            for _ in range(50):
                self.clock[0] += 10.0
                self.poll(cursor)
            wanted = [offset for offset, value in self.records() if offset >= start]
            counted = {offset for offset, value in self.records() if value != b"-"}
            assert [o for o in offsets if o in counted] == [o for o in wanted if o in counted]
            seen["read to the end"] += 1


def _decoded(records: Records) -> pl.DataFrame:
    seen["decoded"] += len(records)
    return pl.DataFrame({"offset": records.offsets, "value": records.values})


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_readers_get_all_that_counts_once(seed, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(feeds, "monotonic", lambda: clock[0])
    world = World(seed, clock)
    for _ in range(STEPS):
        world.act()
    world.end()


def test_all_happened():
    if not seen:
        pytest.skip("no series was run")
    for what in ("handed over", "failed", "written elsewhere", "read to the end", "decoded"):
        assert seen[what] > EXAMPLES, what
