"""`errata.read` and `errata tail --complete`: an arc after an epoch, never in the midst of one.

The network is in memory, and its tasks are played by hand: one is behind, dies, says things twice.
Two ingest tasks write both partitions of `trades`; what one of them pays, the other one gets.
"""

import json
import random
from collections.abc import Iterator

import pytest

import errata as front_door
from errata import Network, Stream
from errata.client import reading
from errata.client.reading import Tail
from errata.deploy.deployment import DeployedNetwork, UnknownNameError
from errata.observe.network_progress import current
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.deployed import NotDeployedError, deploy, topic_specs, write_plan
from errata.settings.loading import load
from errata.spark_jobs.reading import EpochAheadError, HistoryLostError
from errata.testing import LAG_MS, Driver
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry
from tests.errata.cli.test_tail import figure
from tests.errata.conftest import Errata
from tests.plans import with_deployment
from tests.spark_jobs.by_hand import ONE, TWO, World, begin, go_on, insert, trade

TAIL = ("--complete", "--json", "--from-beginning", "--no-follow")


def is_found(
    monkeypatch: pytest.MonkeyPatch, found: DeployedNetwork, *, lag_ms: int = LAG_MS
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "memory")
    monkeypatch.setattr("errata.client.reading.open_network", lambda network, place: found)
    monkeypatch.setattr("errata.cli.app.open_deployment", lambda net: found)
    monkeypatch.setattr(
        "errata.deploy.deployment.log_settings", lambda kafka, topic: (True, lag_ms)
    )


def deployment(world: World) -> DeployedNetwork:
    return DeployedNetwork(world.cluster, world.plan, world.registry, {})


@pytest.fixture
def world(errata: Errata, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(MemoryCluster(), {"bootstrap.servers": "memory"}, "by-hand")
    is_found(monkeypatch, deployment(made))
    yield made
    made.close()


def read(
    world: World, epoch: int | None = None, *, arc: str = "trades", wait_s: float = 0
) -> reading.Table:
    as_of = None if epoch is None else world.epoch + epoch
    return front_door.read(Stream(world.network, arc), as_of, wait_s=wait_s)


def held(table: reading.Table) -> dict[str, int]:
    return {row["zone"]: row["n"] for row in table.tuples}


def pay(world: World, task: str, epoch: int, zone: str, partition: int, was: int, now: int) -> None:
    revision = world.revisions("trades", (trade(zone, was), trade(zone, now)))
    world.commit(task, epoch, ("trades", partition, revision))


def opened(world: World) -> None:
    """Epoch 1: one has ten, the other one owes ten."""
    world.commit(ONE, 1, ("trades", 0, world.revisions("trades", insert("a", 10))))
    world.commit(TWO, 1, ("trades", 1, world.revisions("trades", insert("b", -10))))


def test_half_of_an_epoch_is_not_seen_while_one_partition_is_behind(world: World) -> None:
    opened(world)
    pay(world, ONE, 2, "a", 0, 10, 9)
    now = read(world)
    assert (now.arc, now.epoch, now.watermark_ms) == ("trades", world.epoch + 1, None)
    assert held(now) == {"a": 10, "b": -10}
    pay(world, TWO, 2, "b", 1, -10, -9)
    assert held(read(world)) == {"a": 9, "b": -9}
    assert held(read(world, 1)) == {"a": 10, "b": -10}


def test_what_is_ahead_is_waited_for_then_refused_with_who_holds_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(world)
    pay(world, ONE, 2, "a", 0, 10, 9)
    told = rf"complete up to epoch {world.epoch + 1} only, .* {TWO} still holds it back"
    with pytest.raises(EpochAheadError, match=told):
        read(world, 2)
    monkeypatch.setattr(reading.time, "sleep", lambda s: pay(world, TWO, 2, "b", 1, -10, -9))
    assert held(read(world, 2, wait_s=60)) == {"a": 9, "b": -9}


def test_what_the_dead_wrote_is_not_there_nor_their_epoch_nor_is_a_copy_that_comes_later(
    world: World,
) -> None:
    begin(world)  # epoch 2 is the dead one's
    go_on(world)
    again = world.revisions("trades", insert("a", 1))
    world.commit(ONE, 1, ("trades", 0, again), reported=False)
    world.commit(ONE, 6, ("trades", 0, world.revisions("trades", insert("d", 4))), attempt=3)
    world.commit(TWO, 6)
    for epoch in (1, 2, 3):
        assert held(read(world, epoch)) == {"a": 1, "b": 2}
    assert held(read(world, 4)) == {"a": 1, "b": 2, "c": 3}
    assert held(read(world, 5)) == {"a": 7, "b": 2, "c": 3}
    assert held(read(world)) == {"a": 7, "b": 2, "c": 3, "d": 4}


def test_before_the_first_epoch_there_is_nothing(world: World) -> None:
    before = read(world)
    assert (before.arc, before.epoch, before.watermark_ms) == ("trades", -1, None)
    assert before.tuples == []
    opened(world)
    assert front_door.read(Stream(world.network, "trades"), -1).tuples == []


def test_what_compaction_may_have_taken_is_refused_and_never_short(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(world)
    is_found(monkeypatch, deployment(world), lag_ms=1)
    assert held(read(world, 1)) == {"a": 10, "b": -10}  # long ago, but nothing came since
    pay(world, ONE, 2, "a", 0, 10, 9)
    pay(world, TWO, 2, "b", 1, -10, -9)
    with pytest.raises(HistoryLostError, match="superseded since then are kept for 1 ms only"):
        read(world, 1)
    assert held(read(world)) == {"a": 9, "b": -9}
    for partition in (0, 1):  # tombstones leave nothing behind
        place = TopicPartition(world.plan.deployment.topic("trades"), partition)
        world.cluster.delete_before(place, world.cluster.end(place))
    with pytest.raises(HistoryLostError, match=f"as of epoch {world.epoch + 1}"):
        read(world, 1)


def test_what_was_before_a_new_version_is_refused(world: World) -> None:
    opened(world)
    pay(world, ONE, 2, "a", 0, 10, 9)
    pay(world, TWO, 2, "b", 1, -10, -9)
    write_plan(world.cluster, with_deployment(world.plan, version=2), first_epoch=world.epoch + 3)
    assert held(read(world, 2)) == {"a": 9, "b": -9}
    with pytest.raises(HistoryLostError, match=f"version 2 .* begins with epoch {world.epoch + 3}"):
        read(world, 1)


def test_an_arc_without_topic_is_refused_with_those_that_have_one_and_so_is_a_network_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network("inner")
    fields = {"zone": "string", "at": "timestamp-millis"}
    trades = net.source("trades", fields=fields, identity=["zone"], event_time="at")
    inside = trades.where("inside", "zone <> 'a'")
    inside.where("outside", "zone <> 'b'")
    cluster, plan = MemoryCluster(), compile_network(net).placed({"trades": 1})
    for spec in topic_specs(plan, compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    is_found(monkeypatch, DeployedNetwork(cluster, plan, SchemaRegistry(cluster), {}))
    with pytest.raises(NotDeployedError, match="network 'inner' is not deployed"):
        front_door.read(inside)
    deploy(cluster, plan)
    with pytest.raises(UnknownNameError, match=r"'inside' stays inside .* one of trades, outside"):
        front_door.read(inside)


def test_after_every_epoch_it_is_what_the_driver_tells_and_the_watermark_was(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = SchemaRegistry(driver.cluster)
    is_found(monkeypatch, DeployedNetwork(driver.cluster, driver.plan, schemas, {}))
    figure(driver)
    later = {"op": "insert", "after": {"key": "z", "at": 400 * 60_000, "symbol": "A", "price": 2}}
    tables = {driver.epoch: driver.table("sums")}
    for line in (later, {"op": "delete", "before": later["after"]}):
        driver.send("prices", line)
        epoch = driver.close_epoch()
        tables[epoch] = driver.table("sums")
    net = load("tape.py")
    for epoch, tuples in tables.items():
        assert front_door.read(Stream(net, "sums"), epoch).tuples == tuples
    for arc in ("sums", "prices"):  # a source's is that of a scope that reads it
        wms = [front_door.read(Stream(net, arc), e).watermark_ms for e in (1, 2, 3, 4)]
        assert wms == [300 * 60_000, 300 * 60_000, 400 * 60_000, 400 * 60_000]


# -------------------------------------------------------------------- epochs that are over


def complete(errata: Errata, *arguments: str, arc: str = "trades") -> dict[int, dict[str, int]]:
    """Return what the lines of the command say is there at the end of each epoch."""
    done = errata("tail", "net.py", arc, *TAIL, *arguments)
    assert (done.status, done.err) == (0, "")
    zones, found = dict[str, int](), dict[int, dict[str, int]]()
    for line in map(json.loads, done.out.splitlines()):
        if "complete" in line:
            found[line["epoch"]] = dict(zones)
        elif line["op"] == "delete":
            del zones[line["before"]["zone"]]
        else:
            zones[line["after"]["zone"]] = line["after"]["n"]
    return found


def test_an_epoch_is_marked_whose_revisions_are_all_there_and_told(
    world: World, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(world)
    pay(world, ONE, 2, "a", 0, 10, 9)
    assert complete(errata) == {world.epoch + 1: {"a": 10, "b": -10}}
    assert complete(errata, "--limit", "1") == {}
    assert list(complete(errata, "--limit", "2")) == [world.epoch + 1]
    is_found(monkeypatch, deployment(world), lag_ms=1)
    assert complete(errata) == {}  # of what is superseded since then some may be gone


def test_what_moves_between_partitions_goes_before_it_comes(world: World, errata: Errata) -> None:
    world.commit(ONE, 1, ("trades", 1, world.revisions("trades", insert("a", 1))))
    gone = world.revisions("trades", (trade("a", 1), None))
    come = world.revisions("trades", insert("a", 5))
    world.commit(ONE, 2, ("trades", 0, come), ("trades", 1, gone))
    world.commit(TWO, 2)
    assert complete(errata) == {world.epoch + 1: {"a": 1}, world.epoch + 2: {"a": 5}}


def test_whoever_begins_now_gets_no_half_of_an_epoch(world: World) -> None:
    opened(world)
    pay(world, ONE, 2, "a", 0, 10, 9)
    progress = current(world.cluster, world.plan)
    tail = Tail(progress, deployment(world).codec("trades"), from_beginning=False)
    pay(world, TWO, 2, "b", 1, -10, -9)
    pay(world, ONE, 3, "a", 0, 9, 8)
    pay(world, TWO, 3, "b", 1, -9, -8)
    progress.poll()
    (found,) = tail.upto_now()
    both = [(world.epoch + 3, 8), (world.epoch + 3, -8)]
    assert found.select("epoch", "after.n").rows() == both
    tail.close()
    progress.close()


class Paying:
    """Two tasks that pay each other, move tuples between partitions if they may, lag, and die."""

    def __init__(self, world: World, seed: int, arc: str) -> None:
        self.world, self.chance, self.arc = world, random.Random(seed), arc
        self.tasks = [ONE, TWO] if arc == "trades" else ["trades.0", "trades.1"]
        self.lives = dict.fromkeys(self.tasks, 1)
        self.held: dict[str, tuple[int, int]] = {}  # by zone: partition and n
        self.due: dict[str, list[tuple[int, str, int]]] = {task: [] for task in self.tasks}

    def agree(self, epoch: int) -> None:
        """Have one pay the other one in an epoch that each of them commits when it comes to it."""
        amount = self.chance.randrange(1, 9)
        for task, paid, zones in zip(self.tasks, (amount, -amount), ("ab", "cd"), strict=True):
            self.due[task].append((epoch, self.chance.choice(zones), paid))

    def step(self, task: str) -> None:
        """Commit the next epoch of a task, perhaps after a life that dies over it."""
        epoch, zone, paid = self.due[task].pop(0)
        shared = self.arc == "trades"
        partition = self.chance.randrange(2) if shared else self.tasks.index(task)
        after = partition, paid + self.held.get(zone, (0, 0))[1]
        if self.chance.random() < 0.3:
            self.write(task, epoch, zone, (partition, 99), reported=False)
            self.lives[task] += 1
        self.write(task, epoch, zone, after)
        self.held[zone] = after

    def write(
        self, task: str, epoch: int, zone: str, after: tuple[int, int], *, reported: bool = True
    ) -> None:
        was, is_ = self.held.get(zone), trade(zone, after[1])
        sides = {after[0]: (None, is_)}
        if was is not None:
            sides = {after[0]: sides[after[0]], was[0]: (trade(zone, was[1]), None)}
            if was[0] == after[0]:
                sides = {was[0]: (trade(zone, was[1]), is_)}
        made = [(self.arc, p, self.world.revisions(self.arc, pair)) for p, pair in sides.items()]
        self.world.commit(task, epoch, *made, attempt=self.lives[task], reported=reported)


@pytest.mark.parametrize("arc", ["trades", "few"])  # partitions of many writers, or of one each
@pytest.mark.parametrize("seed", range(2))
def test_the_total_is_nothing_after_every_epoch_for_both_whoever_lags_moves_or_dies(
    world: World, errata: Errata, arc: str, seed: int
) -> None:
    paying, totals = Paying(world, seed, arc), list[int]()
    for epoch in range(1, 21):
        paying.agree(epoch)
        for task in paying.chance.sample(paying.tasks, paying.chance.randrange(3)):
            for _ in range(paying.chance.randrange(len(paying.due[task]) + 1)):
                paying.step(task)
                totals.append(sum(held(read(world, arc=arc)).values()))
    behind = complete(errata, arc=arc)
    for task, due in paying.due.items():
        while due:
            paying.step(task)
    assert set(totals) == {0}
    told = complete(errata, arc=arc)
    assert list(told) == [world.epoch + epoch for epoch in range(1, 21)]
    assert behind.items() < told.items()
    for epoch, zones in told.items():
        assert sum(zones.values()) == 0
        assert held(read(world, epoch - world.epoch, arc=arc)) == zones
