"""A switch to the next version: what it refuses, what tasks begin with, and a grown topic."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

import polars as pl
import pytest

from errata import Network, tumbling
from errata.client import rows
from errata.deploy.versions import next_version
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import (
    PlanMismatchError,
    changes,
    declare_end,
    deploy,
    read_plan,
    require_same,
    topic_specs,
)
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.tasks import lost_records
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import FOREVER, Report
from errata.processors.wire.task_id import TaskId
from errata.run.parts import Parts
from errata.run.switch import FirstReports, Switch
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

LAG_MS = 2**60


def plan(topic_partitions: int, *, keep: str | None = "1h", rekey: bool = False, **more) -> Plan:
    net = Network("grown")
    trades = net.source(
        "trades",
        topic="in",
        format="json",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep=keep,
        rekey=rekey,
        **more,
    )
    if keep is not None:
        trades.aggregate("sums", by=["key"], window=tumbling("1m"), total="sum(price)", keep=keep)
    return compile_network(net).placed({"trades": topic_partitions})


def test_a_source_whose_topic_has_grown_is_refused_unless_it_is_rekeyed():
    with pytest.raises(PlanMismatchError, match="may be in another partition now"):
        next_version(plan(2), plan(3))
    assert next_version(plan(2, rekey=True), plan(3, rekey=True)).deployment.version == 2


def test_a_source_without_history_is_refused():
    with pytest.raises(PlanMismatchError, match="keeps no history"):
        next_version(plan(2, keep=None, partitions=2), plan(2, keep=None, partitions=3))


def test_arcs_whose_partitions_change_get_new_topics_and_no_others():
    old, new = plan(2, partitions=2), plan(2, partitions=3)
    new = next_version(old, new)
    assert (new.deployment.topic("trades"), new.deployment.topic("sums")) == (
        "grown.trades.v2",
        "grown.sums.v2",
    )
    assert new.deployment.requests("trades") == "grown.trades.requests.v2"
    assert new.fingerprint != old.fingerprint
    assert new.shape == old.shape
    assert [str(change) for change in changes(old, new)] == [
        "arc 'trades': 2 -> 3",
        "arc 'sums': 2 -> 3",
    ]
    back = next_version(new, plan(2, partitions=2))
    assert (back.deployment.topic("trades"), back.deployment.version) == ("grown.trades.v3", 3)
    assert back.fingerprint != old.fingerprint


class Running:
    """All tasks of a plan in one process, in memory."""

    def __init__(self, cluster: MemoryCluster, plan: Plan, folder: Path) -> None:
        registry, view = SchemaRegistry(cluster), View(cluster, plan=plan)
        self.shared = Shared(cluster, plan, registry, view, LAG_MS)
        self.parts = Parts(self.shared, folder)
        self.parts.beside.update(plan.topology.scopes)

    def scopes(self):
        plan = self.shared.plan
        return self.actors(
            task for scope in plan.topology.scopes for task in plan.placement.tasks(scope)
        )

    def actors(self, tasks):
        own = map(TaskId.parse, tasks)
        return [a for task in own for a in self.parts.tasks(str(task.scope), task.partition)]

    def lives(self) -> Iterator[None]:
        """Run all tasks, one step each at a time, until the generator is closed."""
        plan = self.shared.plan
        actors = self.actors(plan.placement.ingest_tasks()) + self.scopes()
        lives = [actor.steps() for actor in actors]
        try:
            while True:
                for life in lives:
                    next(life)
                yield
        finally:
            for actor in actors:
                actor.close()

    def run(self, until: Callable[[], bool]) -> None:
        lives = self.lives()
        while not until():
            next(lives)
        lives.close()

    def sums(self) -> dict[str, int]:
        """Let the source end, run all tasks to the end, and return the sums."""
        plan = self.shared.plan
        self.end(["trades"])
        tasks = plan.placement.tasks(plan.topology.scope_of("sums"))
        self.run(lambda: self.have_ended(tasks))
        return dict(self.table("sums").select("key", "total").iter_rows())

    def end(self, sources: Iterable[str]) -> None:
        """Let sources end."""
        for source in sources:
            declare_end(self.shared.cluster, self.shared.plan, source)

    def have_ended(self, tasks: Iterable[str]) -> bool:
        """Whether tasks have processed the ends of all that they read."""
        return all(self.shared.view.of(task).watermark == FOREVER for task in tasks)

    def table(self, arc: str) -> pl.DataFrame:
        shared, plan = self.shared, self.shared.plan
        shared.view.poll()
        parts = []
        for partition in range(plan.placement.partitions[arc]):
            source = ArcInput(shared.view, shared.codec(arc), partition, done=-1, resume=0)
            source.poll()
            parts.append(rows.fold(plan.topology.arcs[arc], source.take(2**62)))
        return pl.concat(parts)


@pytest.mark.parametrize("hides", [False, True], ids=["", "a transaction hides reports"])
def test_a_rekeyed_source_takes_on_new_partitions_of_its_topic(tmp_path: Path, hides: bool):
    ticks = count(1_000_000, 60)
    cluster = MemoryCluster(clock_ms=lambda: next(ticks))
    old = plan(2, rekey=True)
    for spec in topic_specs(old, compaction_lag_ms=LAG_MS):
        cluster.create(spec.name, spec.partitions)
    cluster.create("in", 3)
    old = require_same(old, deploy(cluster, old))
    prices = dict[str, int]()

    def send(key: str, price: int, *, partition: int, op: str = "insert") -> None:
        before = {"key": key, "at": 5, "price": prices.get(key)}
        prices[key] = price
        line = {"op": op, "after": before | {"price": price}}
        line |= {"before": before} if op == "replace" else {}
        value = json.dumps(line).encode()
        cluster.send("in", partition=partition, key=None, value=value)

    for number in range(20):
        send(f"k{number}", number, partition=number % 2)
    before = Running(cluster, old, tmp_path / "old")
    before.run(lambda: before.table("trades").height == 20)
    if hides:  # all processes have ended, and the brokers have lost the end of a transaction
        reports = before.shared.view.source
        cluster.lose(reports, cluster.end(reports) - 1)
        before = Running(cluster, old, tmp_path / "old")
    new = next_version(old, plan(3, rekey=True))
    for spec in topic_specs(new, compaction_lag_ms=LAG_MS):
        cluster.create(spec.name, spec.partitions)
    after = Running(cluster, new, tmp_path / "new")
    switch = Switch(before.shared, after.shared, before.scopes)
    for _ in switch.run():
        pass
    found = read_plan(cluster, "grown")
    assert found is not None
    assert (found.deployment.version, found.switching_to) == (2, None)
    assert switch.copied == {"trades": 20, "sums": 0}

    for number in range(20):  # corrections come in any partition, also the new one
        send(f"k{number}", 100 + number, partition=number % 3, op="replace")
    assert after.sums() == {f"k{number}": 100 + number for number in range(20)}


class Moving:
    """A network of one source, with tuples, that moves to other numbers of partitions."""

    def __init__(self, folder: Path) -> None:
        ticks = count(1_000_000, 60)
        self.folder = folder
        self.cluster = MemoryCluster(clock_ms=lambda: next(ticks))
        made = plan(2, partitions=2)
        self.create(made)
        self.cluster.create("in", 2)
        self.old = require_same(made, deploy(self.cluster, made))
        for number in range(20):
            after = {"key": f"k{number}", "at": 5, "price": number}
            value = json.dumps({"op": "insert", "after": after}).encode()
            self.cluster.send("in", partition=number % 2, key=None, value=value)
        self.before = self.running("old", self.old)
        self.before.run(lambda: self.before.table("trades").height == 20)
        self.new = next_version(self.old, plan(2, partitions=3))
        self.create(self.new)
        self.after = self.running("new", self.new)
        self.switch = Switch(self.before.shared, self.after.shared, self.before.scopes)

    def create(self, made: Plan) -> None:
        for spec in topic_specs(made, compaction_lag_ms=LAG_MS):
            self.cluster.create(spec.name, spec.partitions)

    def running(self, folder: str, plan: Plan) -> Running:
        return Running(self.cluster, plan, self.folder / folder)

    def lose(self, arc: str) -> None:
        place = TopicPartition(self.old.deployment.topic(arc), 0)
        self.cluster.lose(place, self.cluster.end(place) // 2)

    def version(self) -> tuple[int, int | None]:
        found = read_plan(self.cluster, "grown")
        assert found is not None
        return found.deployment.version, found.switching_to

    def complete(self, life: Iterator[bool]) -> None:
        """Start tasks of the old version, let the switch end, and check the results."""
        at_work = self.running("old", self.old).lives()  # they notice a loss when they start
        while self.version() == (1, None):
            next(at_work)
            next(life)
        at_work.close()
        assert list(life)
        assert self.version() == (2, None)
        assert self.after.sums() == {f"k{number}": number for number in range(20)}


def test_a_switch_waits_until_lost_records_are_written_again(tmp_path: Path, caplog):
    moving = Moving(tmp_path)
    moving.lose("trades")
    life = moving.switch.run()
    for _ in range(200):
        next(life)
    assert moving.version() == (1, None), "it has begun although only the old version can do that"
    moving.complete(life)
    assert "waiting until version 1 has written them again" in caplog.text


@pytest.mark.parametrize("step", ["reads the reports", "processes the remaining input"])
def test_the_old_version_goes_on_if_records_are_lost_in_a_switch(tmp_path: Path, step, monkeypatch):
    moving = Moving(tmp_path)
    life = moving.switch.run()
    while moving.switch.step != step:
        next(life)
    assert moving.version() == (1, 2)
    monkeypatch.setattr(lost_records, "CHECKED_S", 0)
    moving.lose("trades")
    while moving.version() != (1, None):
        next(life)
    moving.complete(life)


def shrunk_plan(partitions: int) -> Plan:
    net = Network("shrunk")
    trades = net.source(
        "trades",
        topic="in",
        format="json",
        fields={"key": "string", "at": "timestamp-millis", "price": "long"},
        identity=["key"],
        event_time="at",
        keep="1h",
        rekey=True,
        partitions=partitions,
    )
    trades.aggregate("sums", by=["key"], window=tumbling("1m"), total="sum(price)", keep="1h")
    return compile_network(net).placed({"trades": 3})


def views(*partitions: int) -> Iterator[View]:
    cluster = MemoryCluster()
    cluster.create("in", 3)
    for spec in topic_specs(shrunk_plan(3), compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    return (View(cluster, plan=shrunk_plan(count)) for count in partitions)


def test_totals_of_tasks_that_end_are_added_and_event_times_are_not():
    old, new = views(3, 1)
    for partition in range(3):
        report = Report(
            f"trades.{partition}",
            attempt=1,
            done=9,
            counts={"sums.revised": 2},
            settled_ms=1_000 + partition,
        )
        old.note(report)
    first = FirstReports(old, new, 9).report("trades.0", filled={})
    assert first.counts == {"sums.revised": 6}
    assert first.settled_ms == 1_000


def test_totals_of_a_task_that_had_ended_before_are_not_added_again():
    old, new = views(1, 3)
    old.note(Report("trades.0", attempt=2, done=9, counts={"sums.revised": 6}))
    old.note(Report("trades.1", attempt=1, done=5, plan="moves to 1", counts={"sums.revised": 2}))
    firsts = FirstReports(old, new, 9)
    assert firsts.report("trades.0", filled={}).counts == {"sums.revised": 6}
    assert firsts.report("trades.1", filled={}).counts == {}
