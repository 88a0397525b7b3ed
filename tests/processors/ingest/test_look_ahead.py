"""While a commit waits for the brokers, the next batch is read and decoded if it is a full one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.plan.deployed import topic_specs
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.topics.cluster import LostOffsetError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

FIELDS = {"key": "string", "at": "timestamp-millis"}
ROWS = 4


class World:
    """An ingest task, and brokers that answer only when they are told to."""

    def __init__(self, folder: Path) -> None:
        net = Network("ahead")
        net.source(
            "trades", topic="feed", format="json", fields=FIELDS, identity=["key"],
            event_time="at", keep="1d",
        )  # fmt: skip
        plan = compile_network(net).placed({"trades": 1})
        self.now, self.answers = 0, True
        self.cluster = MemoryCluster(clock_ms=lambda: self.now)
        for spec in topic_specs(plan, compaction_lag_ms=2**60):
            self.cluster.create(spec.name, spec.partitions)
        self.cluster.create("feed", 1)
        shared = Shared(
            self.cluster, plan, SchemaRegistry(self.cluster), View(self.cluster, plan=plan), 2**60,
            run=self._run,
        )  # fmt: skip
        self.task = IngestTask(
            shared, plan.topology.sources["trades"], partition=0, folder=folder,
            clock_ms=lambda: self.now,
        )  # fmt: skip
        self.task.rows_a_batch = ROWS
        self.steps = self.task.steps()
        self.sent, self.decoded = 0, list[int]()
        decode = self.task.intake.decode

        def counted(values: list[bytes], *keys: Any) -> Any:
            self.decoded.append(len(values))
            return decode(values, *keys)

        self.task.intake.decode = counted  # type: ignore[method-assign]

    def _run(self, call: Any) -> Iterator[bool]:
        while not self.answers:
            yield False
        return call()

    def send(self, count: int) -> None:
        for _ in range(count):
            after = {"key": f"k{self.sent}", "at": self.sent}
            line = json.dumps({"op": "insert", "after": after}).encode()
            self.cluster.send("feed", partition=0, key=None, value=line)
            self.sent += 1

    def advance(self, count: int) -> None:
        for _ in range(count):
            self.now += 20
            next(self.steps)

    def keys(self) -> list[bytes | None]:
        """Return the keys of the arc's records."""
        reader = self.cluster.reader({TopicPartition("ahead.trades", 0): 0})
        return [key for records in reader.poll() for key in records.keys]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    found.advance(20)
    yield found
    found.task.close()


def test_a_full_batch_is_decoded_once_while_the_commit_before_it_waits(world: World) -> None:
    world.send(3 * ROWS)
    world.answers = False
    world.advance(20)
    assert world.decoded == [ROWS, ROWS]
    assert world.task.report.counts.get("read", 0) == 0  # the first one is not committed yet
    world.answers = True
    world.advance(40)
    assert world.decoded == [ROWS, ROWS, ROWS]
    assert world.task.report.counts["read"] == 3 * ROWS
    assert len(world.keys()) == len({*world.keys()}) == 3 * ROWS


def test_less_than_a_batch_waits_for_its_epoch(world: World) -> None:
    world.send(ROWS + 1)
    world.answers = False
    world.advance(20)
    assert world.decoded == [ROWS]
    world.send(1)
    world.answers = True
    world.advance(40)
    assert world.decoded == [ROWS, 2]
    assert world.task.report.counts["read"] == ROWS + 2


def test_a_reader_that_fails_meanwhile_does_not_break_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(ROWS)
    world.answers = False
    world.advance(2)
    assert world.task.reader is not None
    lost = LostOffsetError(world.task.place, ROWS)

    def poll(**_: Any) -> Any:
        raise lost

    monkeypatch.setattr(world.task.reader, "poll", poll)
    world.advance(5)
    world.answers = True
    with pytest.raises(LostOffsetError):
        world.advance(40)
    assert world.task.report.counts["read"] == ROWS
