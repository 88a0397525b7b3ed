"""Hostile records in the topics of a network at work: real records with one change, and bytes.

The processes run in memory, with sweepers over topics. Honest trades come in between. What could
be true counts, by design: a report that claims what its task may have done, a record that a report
covers. Such records are made in *loose* runs, in which nothing may escape and nothing may hang. In
the others no record could be true, and every arc must hold what a recomputation gives.
"""

import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from errata import Network, hopping
from errata.client import dead_letters
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import (
    declare_end,
    deploy,
    read_plan,
    restore_records,
    topic_specs,
)
from errata.processors.reports.progress_view import View
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.topics.cluster import DoubtfulCommitError, FencedError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.faults.hostile_internals import Hostile, Maker
from tests.laws.process import Process, kinds

MINUTE = 60_000
FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "product": "string",
    "desk": "string",
    "n": "long",
}
KINDS = ("reports", "arc", "exchange", "plan", "requests", "replies", "schemas", "dead letters")
MOST_ROUNDS = 3_000


def network() -> Network:
    net = Network("hostile")
    trades = net.source(
        "trades",
        topic="feed",
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        keep="1d",
        format="json",
        partitions=2,
    )
    window = hopping("30m", every="20m")
    for by, mode in (("product", "upstream"), ("desk", "downstream")):
        trades.aggregate(
            f"by_{by}", by=[by], window=window, mode=mode, total="sum(n)", keep="1d", scope=by
        )
    return net


class AtWork:
    """The processes of the network over a cluster in memory.

    Args:
        dice: The random generator.
        folder: The folder of indexes and copies.
    """

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice, self.folder, self.now = dice, folder, 1_000_000
        self.cluster = MemoryCluster(clock_ms=lambda: self.now)
        self.plan = compile_network(network()).placed({"trades": 2})
        for spec in topic_specs(self.plan, compaction_lag_ms=2**60):
            self.cluster.create(spec.name, spec.partitions)
        self.cluster.create("feed", 2)
        deploy(self.cluster, self.plan)
        self.kinds = kinds(self.plan, dice, beside=0, skews_ms=(0, 0))
        self.processes = [self._process(number) for number in range(len(self.kinds))]
        self.live: dict[str, dict[str, Any]] = {}
        self.sent = 0
        self.seen = Counter[str]()

    def _process(self, number: int) -> Process:
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        return Process(self.kinds[number], self.cluster, self.plan, folder, lambda: self.now)

    def restart(self) -> None:
        """End a process as kill -9 does, and start it again."""
        number = self.dice.randrange(len(self.processes))
        self.processes[number].kill()
        self.processes[number] = self._process(number)
        self.seen["restarts"] += 1

    def advance(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now += 50
            for process in self.processes:
                for turn in range(len(process.actors)):
                    try:
                        process.advance(self.dice, turn)
                    except (DoubtfulCommitError, FencedError) as error:
                        self.seen[type(error).__name__] += 1
                        process.begin_again()

    def trade(self, count: int) -> None:
        """Send honest trades, corrections and cancellations."""
        dice = self.dice
        for _ in range(count):
            old = dice.choice([*self.live]) if self.live and dice.random() < 0.4 else None
            key = str(self.sent) if old is None else old
            row = {
                "key": key,
                "at": self.now // 1000 * MINUTE // 20 + dice.randrange(5 * MINUTE),
                "product": dice.choice("abc"),
                "desk": dice.choice("xyz"),
                "n": dice.randrange(100),
            }
            self.sent += 1
            before = None if old is None else self.live.pop(old)
            line: dict[str, Any] = {"op": "insert", "after": row}
            if before is not None and dice.random() < 0.3:
                line = {"op": "delete", "before": before}
            else:
                self.live[key] = row
                if before is not None:
                    line = {"op": "replace", "before": before, "after": row}
            value = json.dumps(line).encode()
            place = int(key) % 2
            self.cluster.send("feed", partition=place, key=key.encode(), value=value)

    def put(self, records: list[Hostile]) -> None:
        """Append records to topics, in order."""
        for record in records:
            log = self.cluster.log(record.place)
            time_ms = self.dice.choice([self.now, self.now, 0, -1])
            log.append([record.key], [record.value], time_ms=time_ms)

    def settle(self) -> bool:
        """Declare the end, and run until nothing changes; return whether it came to rest."""
        declare_end(self.cluster, self.plan, "trades")
        places = [
            TopicPartition(spec.name, p)
            for spec in topic_specs(self.plan, compaction_lag_ms=2**60)
            for p in range(spec.partitions)
            if not spec.name.endswith(("requests", "replay"))
        ]
        quiet = rounds = 0
        while quiet < 12 and rounds < MOST_ROUNDS:
            before = sum(map(self.cluster.end, places))
            self.now += 450
            self.advance(1)
            rounds += 1
            quiet = quiet + 1 if before == sum(map(self.cluster.end, places)) else 0
        return quiet >= 12

    def content(self, arc: str) -> list[dict[str, Any]]:
        """Return what a reader of an arc sees."""
        view = View(self.cluster, plan=self.plan)
        view.catch_up()
        codec = self.processes[0].shared.codec(arc)
        parts = []
        for partition in range(self.plan.placement.partitions[arc]):
            source = ArcInput(view, codec, partition, done=-1, resume=0)
            while source.poll():
                pass
            parts.append(source.take(source.frontier()).sort("epoch", "offset"))
            source.close()
        kind = self.plan.topology.arcs[arc]
        is_kept = pl.col("op") != frames.DELETE
        revisions = pl.concat(parts).sort("epoch", is_kept, maintain_order=True)
        return frames.fold(revisions, kind.identity, list(kind.fields)).rows(named=True)

    def expected(self, by: str) -> dict[tuple[str, int], int]:
        """Recompute a box: a hop of 30 minutes every 20, from the trades that are there."""
        totals = defaultdict[tuple[str, int], int](int)
        for row in self.live.values():
            start = row["at"] // (20 * MINUTE) * 20 * MINUTE
            while start > row["at"] - 30 * MINUTE:
                totals[row[by], start] += row["n"]
                start -= 20 * MINUTE
        return dict(totals)

    def differences(self) -> Iterator[str]:
        """Yield in which arcs something else is than a recomputation gives."""
        found = {row["key"]: {n: row[n] for n in FIELDS} for row in self.content("trades")}
        if found != self.live:
            yield f"trades: {len(found)} tuples, should be {len(self.live)}, or others"
        for by in ("product", "desk"):
            told = {
                (row[by], row["window_start"]): row["total"] for row in self.content(f"by_{by}")
            }
            wanted = self.expected(by)
            if told != wanted:
                wrong = [w for w in {*told, *wanted} if told.get(w) != wanted.get(w)]
                first = wrong[0]
                yield (
                    f"by_{by}: {len(wrong)} of {len(wanted)} differ: {first}: "
                    f"{told.get(first)}, should be {wanted.get(first)}"
                )

    def close(self) -> None:
        for process in self.processes:
            process.close()


def run(
    kind: str, *, seed: int, records: int, loose: bool = False
) -> tuple[Counter[str], list[str]]:
    """Send hostile records of a kind to a network at work; return counts and faults."""
    dice = random.Random(f"{kind} {seed} {loose}")
    counts, faults = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="errata-hostile-") as folder:
        world = AtWork(dice, Path(folder))
        maker = Maker(world, loose=loose)
        what = f"{kind}{' (loose)' if loose else ''}, seed {seed}"
        try:
            for _ in range(6):
                world.trade(20)
                world.advance(8)
            maker.look()
            sent = 0
            while sent < records:
                part = maker.records(kind, min(records - sent, dice.choice([1, 20, 300])))
                if not part:
                    break
                world.trade(dice.randrange(12))
                world.put(part)
                sent += len(part)
                world.advance(dice.randrange(1, 6))
                if dice.random() < 0.15:
                    world.restart()
            counts["records"] += sent
            if loose:
                world.advance(200)
            else:
                rests = world.settle()
                _tools(world)
                if not rests:
                    faults.append(f"{what}: it does not come to rest")
                faults += [f"{what}: {each}" for each in world.differences()]
        except ErrataError as error:
            if loose:
                counts[f"ended: {type(error).__name__}: {str(error)[:60]}"] += 1
            else:
                faults.append(f"{what}: {type(error).__name__}: {error}")
        counts += world.seen
        world.close()
    return counts, faults


def _tools(world: AtWork) -> None:
    """Read the topics as the commands do."""
    for letter in dead_letters.committed(world.cluster, world.plan):
        dead_letters.as_plain(letter)
    read_plan(world.cluster, world.plan.network)
    restore_records(world.cluster, world.plan.network)
    registry = SchemaRegistry(world.cluster)
    for schema_id in (1, 2**31):
        with suppress(ErrataError):
            registry.schema(schema_id)
