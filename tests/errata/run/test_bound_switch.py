"""A switch of a network that is bound to two arcs of another one."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from errata import Network, tumbling
from errata.deploy.versions import next_version
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import deploy, read_plan, topic_specs
from errata.processors.plan.plan import Plan
from errata.processors.tasks import subjects
from errata.run.switch import Switch
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.errata.run.test_switch import LAG_MS, Running

FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long"}
OPTIONS = {"fields": FIELDS, "identity": ["key"], "event_time": "at"}
SOURCES = ("asks", "bids")


def upper() -> Plan:
    net = Network("upper")
    for name in SOURCES:
        source = net.source(name, topic=f"{name}.in", format="json", keep="1h", **OPTIONS)
        source.where(f"all_{name}", "true", keep="2h")
    return compile_network(net).placed(dict.fromkeys(SOURCES, 2))


def lower(partitions: int) -> Plan:
    net = Network("lower")
    for name in SOURCES:
        topic = f"upper.all_{name}"
        source = net.source(name, topic=topic, envelope="arc", keep="1h", **OPTIONS)
        source.aggregate(
            f"sums_of_{name}", by=["key"], window=tumbling("1m"), total="sum(price)", keep="1h",
            partitions=partitions,
        )  # fmt: skip
    return compile_network(net).placed(dict.fromkeys(SOURCES, 2))


class Both:
    """Both networks in memory, each in one process."""

    def __init__(self, folder: Path) -> None:
        ticks = count(1_000_000, 60)
        self.folder = folder
        self.cluster = MemoryCluster(clock_ms=lambda: next(ticks))
        for name in SOURCES:
            self.cluster.create(f"{name}.in", 2)
        self.upper, self.lower = self._deployed(upper()), self._deployed(lower(2))

    def _deployed(self, plan: Plan) -> Running:
        self.create(plan)
        subjects.register(plan, SchemaRegistry(self.cluster))
        deploy(self.cluster, plan)
        return self.running(plan, plan.network)

    def create(self, plan: Plan) -> None:
        for spec in topic_specs(plan, compaction_lag_ms=LAG_MS):
            self.cluster.create(spec.name, spec.partitions)

    def running(self, plan: Plan, folder: str) -> Running:
        return Running(self.cluster, plan, self.folder / folder)

    def send(self, prices: dict[str, int]) -> None:
        """Let each key have a price, in each source."""
        for source in SOURCES:
            for number, (key, price) in enumerate(prices.items()):
                after = {"key": key, "at": 5, "price": price}
                value = json.dumps({"op": "insert", "after": after}).encode()
                self.cluster.send(f"{source}.in", partition=number % 2, key=None, value=value)

    def run(self, until: Callable[[], bool]) -> None:
        """Run both networks until something holds."""
        lives = [self.upper.lives(), self.lower.lives()]
        while not until():
            for life in lives:
                next(life)
        for life in lives:
            life.close()

    def has_written(self) -> bool:
        """Whether the upper network has processed all records."""
        plan, view = self.upper.shared.plan, self.upper.shared.view
        tasks = [t for scope in plan.topology.scopes for t in plan.placement.tasks(scope)]
        read = {
            place: offset
            for task in plan.placement.ingest_tasks()
            for place, offset in view.of(task).resume.items()
        }
        return (
            len(read) == 2 * len(SOURCES)
            and all(offset == self.cluster.end(place) for place, offset in read.items())
            and min(map(view.frontier, tasks)) >= view.newest_epoch()
        )  # fmt: skip

    def has_read(self) -> bool:
        """Whether the tasks of the bound sources have read all of that, too."""
        return self.has_written() and all(
            self.pairs(source)[-1:] >= ((self._written(source), 0),) for source in SOURCES
        )

    def _written(self, source: str) -> int:
        """Return the last upstream epoch in which the arc of a source was written."""
        view, arc = self.upper.shared.view, f"all_{source}"
        reports = (view.of(task) for number in range(2) for task in view.writers(arc, number))
        return max(epoch for report in reports for _, epoch in report.ends.values())

    def pairs(self, source: str) -> tuple[tuple[int, int], ...]:
        """Return the upstream epochs that the task of a source has told, each with its own."""
        return tuple(pair[::-1] for pair in self.lower.shared.view.of(f"ingest.{source}.0").bound)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


def test_a_task_that_follows_takes_over_what_is_left_before_the_switch(both: Both):
    both.send({f"k{number}": number for number in range(10)})
    both.run(both.has_read)
    both.send({f"k{number}": number for number in range(10, 20)})
    both.upper.run(both.has_written)
    (leader,) = both.lower.actors(["ingest.asks.0"])
    known, life = both.pairs("asks")[-1], leader.steps()
    while both.pairs("asks")[-1] == known:
        next(life)
    leader.close()
    assert both.pairs("asks")[-1] > both.pairs("bids")[-1], "the other task has not followed"

    old = both.lower.shared.plan
    new = next_version(old, lower(3))
    both.create(new)
    after = both.running(new, "new")
    assert list(Switch(both.lower.shared, after.shared, both.lower.scopes).run())
    found = read_plan(both.cluster, "lower")
    assert found is not None
    assert (found.deployment.version, found.switching_to) == (2, None)

    both.lower = after
    after.shared.view.poll()
    assert both.pairs("bids")[-1] == both.pairs("asks")[-1], "one moment upstream is two here"
    both.upper.end(SOURCES)
    scopes = [new.topology.scope_of(f"sums_of_{name}") for name in SOURCES]
    tasks = [task for scope in scopes for task in new.placement.tasks(scope)]
    both.run(lambda: after.have_ended(tasks))
    for name in SOURCES:
        totals = dict(after.table(f"sums_of_{name}").select("key", "total").iter_rows())
        assert totals == {f"k{number}": number for number in range(20)}, name
