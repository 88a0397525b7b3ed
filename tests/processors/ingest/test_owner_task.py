"""A rekeyed source: records of an identity come from any partition, and meet at its owner."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata import Network, Stream, tumbling
from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError
from errata.processors.ingest.held_tuples import LostIndexError
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.ingest.owner_task import OwnerTask
from errata.processors.plan.deployed import topic_specs
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.wire.dead_letter import decode as decode_letter
from errata.processors.wire.task_id import TaskId
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.partition import partitions as hashed
from errata.testing import Driver
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry import SchemaRegistry

FIELDS = {"key": "string", "at": "timestamp-millis", "price": "long"}
OPS = {frames.INSERT: "insert", frames.DELETE: "delete", frames.REPLACE: "replace"}


def network(*, keep: int | None = 100, rekey: bool = True, partitions: int = 3, **more) -> Network:
    net = Network("tape")
    net.source(
        "trades",
        topic="feed",
        fields=FIELDS,
        identity=["key"],
        event_time="at",
        format="json",
        keep=keep,
        partitions=partitions,
        rekey=rekey,
        **more,
    )
    return net


def row(key: str, price: int = 1, at: int = 1000) -> dict:
    return {"key": key, "at": at, "price": price}


def insert(*args, **more) -> bytes:
    return json.dumps({"op": "insert", "after": row(*args, **more)}).encode()


def replace(before: dict, after: dict) -> bytes:
    return json.dumps({"op": "replace", "before": before, "after": after}).encode()


def delete(*args, **more) -> bytes:
    return json.dumps({"op": "delete", "before": row(*args, **more)}).encode()


def owner(key: str, count: int) -> int:
    return int(hashed([bytes([2 * len(key)]) + key.encode()], count)[0])


class World:
    """A user's topic of two partitions, its ingest tasks, and the owners behind them."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.plan = compile_network(net).placed({"trades": 2})
        self.cluster, self.folder, self.epoch = MemoryCluster(), folder, 0
        for spec in topic_specs(self.plan, compaction_lag_ms=2**60):
            self.cluster.create(spec.name, spec.partitions)
        self.cluster.create("feed", 2)
        self.view = View(self.cluster, plan=self.plan)
        registry = SchemaRegistry(self.cluster)
        self.shared = Shared(self.cluster, self.plan, registry, self.view, 2**60)
        self.lives: dict[str, Iterator[bool]] = {}
        self.tasks: dict[str, IngestTask | OwnerTask] = {}
        for partition in range(2):
            self.start(f"ingest.trades.{partition}")
        for name in self.plan.placement.tasks("trades-owner"):
            self.start(name)

    def start(self, name: str) -> None:
        own = TaskId.parse(name)
        source, folder = self.plan.topology.sources["trades"], self.folder / name
        if str(own.scope) == "trades-owner":
            task = OwnerTask(self.shared, source, partition=own.partition, folder=folder)
        else:
            task = IngestTask(
                self.shared,
                source,
                partition=own.partition,
                folder=folder,
                clock_ms=lambda: self.epoch * 50,
                epoch_of=lambda: self.epoch,
            )
        self.tasks[name], self.lives[name] = task, task.steps()
        while not task.started:
            next(self.lives[name])

    def end(self, name: str) -> None:
        self.lives.pop(name).close()
        del self.tasks[name]

    def send(self, partition: int, *values: bytes) -> None:
        for value in values:
            self.cluster.send("feed", partition=partition, key=b"a key", value=value)

    def close_epoch(self, *, first: int = 0) -> None:
        """Process what was sent; `first` is the ingest task that is the first to do so."""
        self.epoch += 1
        names = sorted(self.lives, key=lambda name: name != f"ingest.trades.{first}")
        quiet = 0
        while quiet < 2:
            quiet += 1
            for name in names:
                while next(self.lives[name]):
                    quiet = 0

    def revisions(self) -> list[tuple]:
        """Return (epoch, op, key, before, after) of the source's arc, with prices."""
        codec, found = self.shared.codec("trades"), []
        for partition in range(self.plan.placement.partitions["trades"]):
            source = ArcInput(self.view, codec, partition, done=-1, resume=0)
            source.poll()
            found += source.take(source.frontier()).rows(named=True)
            source.close()
        return sorted(
            (
                r["epoch"],
                OPS[r["op"]],
                r["after.key"] or r["before.key"],
                r["before.price"],
                r["after.price"],
            )
            for r in found
        )

    def letters(self) -> list:
        reader = self.cluster.reader({TopicPartition("tape.dead-letters", 0): 0})
        values = [value for records in reader.poll() for value in records.values]
        return [decode_letter(value[framing.HEAD_BYTES :]) for value in values]

    def counted(self, name: str) -> int:
        return sum(task.report.counts.get(name, 0) for task in self.tasks.values())


@contextmanager
def running(**more) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(network(**more), Path(folder))
        try:
            yield world
        finally:
            for life in world.lives.values():
                life.close()


@pytest.mark.parametrize("first", [0, 1])
def test_records_of_one_epoch_count_by_partition_and_offset_whoever_is_first(first):
    with running() as world:
        world.send(1, replace(row("a", 2), row("a", 4)))
        world.send(0, insert("a", 1), replace(row("a", 1), row("a", 2)))
        world.close_epoch(first=first)
        assert world.revisions() == [(1, "insert", "a", None, 4)]
        assert world.counted("disagreed") == 0


def test_epochs_count_before_partitions():
    with running() as world:
        world.send(1, insert("a", 1))
        world.close_epoch()
        world.send(0, replace(row("a", 1), row("a", 2)))
        world.close_epoch()
        world.send(1, delete("a", 2))
        world.close_epoch()
        assert [r[1:] for r in world.revisions()] == [
            ("insert", "a", None, 1),
            ("replace", "a", 1, 2),
            ("delete", "a", 2, None),
        ]
        assert world.letters() == []


def test_a_record_that_changes_an_identity_goes_to_the_owners_of_both():
    assert owner("a", 3) != owner("e", 3)
    with running() as world:
        world.send(0, insert("a", 1))
        world.close_epoch()
        world.send(1, replace(row("a", 1), row("e", 2)))
        world.close_epoch()
        assert world.revisions()[1:] == [(2, "delete", "a", 1, None), (2, "insert", "e", None, 2)]
        writers = {name for name, task in world.tasks.items() if task.report.counts.get("inserted")}
        assert writers == {f"trades-owner.{owner(key, 3)}" for key in "ae"}
        assert world.counted("read") == 2


@pytest.mark.parametrize("owners", [1, 3])
def test_both_halves_of_a_changed_identity_are_judged_apart_however_many_owners(owners):
    with running(partitions=owners) as world:
        world.send(0, insert("a", 1))
        world.close_epoch()
        world.send(0, replace(row("a", 1), row("e", 2, at=1)))
        world.close_epoch()
        assert world.revisions()[1:] == [(2, "delete", "a", 1, None)]
        (letter,) = world.letters()
        assert (letter.task, letter.reason) == (
            f"trades-owner.{owner('e', owners)}",
            "older than keep",
        )


def test_a_dead_letter_tells_the_record_as_it_was_whichever_task_refuses_it():
    values = [b"{", insert("a", at=5000), delete("gone", at=5000), insert("late", at=1)]
    with running() as world:
        world.send(1, *values[:2])
        world.close_epoch()
        world.send(1, *values[2:])
        world.close_epoch()
        letters = {letter.offset: letter for letter in world.letters()}
        assert {offset: (letter.reason, letter.task) for offset, letter in letters.items()} == {
            0: ("undecodable", "ingest.trades.1"),
            2: ("unknown identity", f"trades-owner.{owner('gone', 3)}"),
            3: ("older than keep", f"trades-owner.{owner('late', 3)}"),
        }
        assert len(world.letters()) == 3
        log = world.cluster.log(TopicPartition("feed", 1)).read(0, 10)[0]
        for offset, letter in letters.items():
            assert (letter.topic, letter.partition, letter.key) == ("feed", 1, b"a key")
            assert (letter.value, letter.time_ms) == (values[offset], log.times_ms[offset])
        assert world.counted("dead_letters") == 3
        assert world.counted("refused.older than keep") == 1


def test_keep_is_judged_by_what_the_records_own_partition_had_seen_before():
    with running() as world:
        world.send(0, insert("new", at=1000), insert("same epoch", at=1))
        world.send(1, insert("behind", at=500))
        world.close_epoch()
        world.send(0, insert("too old", at=899), insert("just in time", at=900))
        world.send(1, insert("other partition", at=400))
        world.close_epoch()
        refused = [json.loads(letter.value)["after"]["key"] for letter in world.letters()]
        assert refused == ["too old"]
        assert world.counted("inserted") == 5
        assert world.counted("late") == 2


def test_what_is_read_and_passed_over_is_counted_once():
    with running(envelope="debezium") as world:
        world.send(0, json.dumps({"op": "c", "after": row("a")}).encode())
        world.cluster.send("feed", partition=0, key=b"", value=None)
        world.close_epoch()
        assert {name: world.counted(name) for name in ("read", "passed", "inserted")} == {
            "read": 2,
            "passed": 1,
            "inserted": 1,
        }


def test_an_owner_with_nothing_to_do_writes_nothing_and_holds_nobody_back():
    with running() as world:
        for number in range(5):
            world.send(0, insert("a", number))
            world.close_epoch()
        idle = next(f"trades-owner.{p}" for p in range(3) if p != owner("a", 3))
        assert (world.view.of(idle).done, world.view.frontier(idle)) == (-1, 5)


def test_any_time_that_a_record_was_given_is_passed_on():
    with running() as world:
        for time_ms in (-1, 2**60):
            world.cluster.clock_ms = lambda at=time_ms: at
            world.send(0, insert(str(time_ms)), delete(f"not {time_ms}"))
        world.cluster.clock_ms = lambda: 0
        world.close_epoch()
        assert sorted(letter.time_ms for letter in world.letters()) == [-1, 2**60]
        assert world.counted("inserted") == 2


KEYS = st.sampled_from(["a", "c", "e"])
TUPLES = st.builds(row, KEYS, st.integers(0, 3), st.sampled_from([1, 850, 1000, 1120]))
LINES = st.one_of(
    st.builds(lambda t: {"op": "insert", "after": t}, TUPLES),
    st.builds(lambda t: {"op": "delete", "before": t}, TUPLES),
    st.builds(lambda b, a: {"op": "replace", "before": b, "after": a}, TUPLES, TUPLES),
)
EPOCHS = st.lists(st.lists(st.tuples(st.integers(0, 1), LINES), max_size=5), max_size=4)


@settings(max_examples=15)
@given(EPOCHS, st.integers(2, 4))
def test_the_result_does_not_depend_on_how_many_owners_there_are(epochs, owners):
    found = []
    for count in (1, owners):
        with running(partitions=count) as world:
            for lines in epochs:
                for partition, line in lines:
                    world.send(partition, json.dumps(line).encode())
                world.close_epoch()
            refused = {(x.partition, x.offset, x.reason) for x in world.letters()}
            found.append((world.revisions(), refused))
    assert found[0] == found[1]


# -------------------------------------------------------------------------------- lives


def test_a_new_life_knows_what_is_held_with_its_index_and_without():
    with running() as world:
        name = f"trades-owner.{owner('a', 3)}"
        world.send(0, insert("a", 1))
        world.close_epoch()
        for price, lost in ((2, False), (3, True)):
            world.end(name)
            if lost:
                shutil.rmtree(world.folder / name)
            world.send(1, replace(row("a", price - 1), row("a", price)))
            world.start(name)
            world.close_epoch()
        assert [r[1:] for r in world.revisions()] == [
            ("insert", "a", None, 1),
            ("replace", "a", 1, 2),
            ("replace", "a", 2, 3),
        ]


def test_a_lost_index_of_an_arc_that_keeps_no_history_stops_its_owner():
    with running(keep=None) as world:
        name = f"trades-owner.{owner('a', 3)}"
        world.send(0, insert("a"))
        world.close_epoch()
        world.end(name)
        shutil.rmtree(world.folder / name)
        with pytest.raises(LostIndexError, match=f"{name}: its index is lost"):
            world.start(name)


# -------------------------------------------------------------------------------- plan, driver


def test_owners_write_the_arc_and_ingest_its_exchange():
    plan = compile_network(network()).placed({"trades": 2})
    assert plan.placement.tasks("trades-owner") == [f"trades-owner.{p}" for p in range(3)]
    assert plan.topology.scope_of("trades") == "trades-owner"
    assert plan.topology.scope_of("trades.exchange") == "ingest.trades"
    assert plan.topology.owned("trades-owner").arc.name == "trades"
    assert plan.deployment.topic("trades.exchange") == "tape.trades.exchange"
    cluster = MemoryCluster()
    for spec in topic_specs(plan, compaction_lag_ms=1):
        cluster.create(spec.name, spec.partitions)
    view = View(cluster, plan=plan)
    assert view.writers("trades", 1) == plan.placement.tasks("trades-owner")
    assert view.writers("trades.exchange", 1) == ["ingest.trades.0", "ingest.trades.1"]


def test_a_plain_source_has_no_owners():
    plan = compile_network(network(rekey=False))
    assert plan.topology.scope_of("trades") == "ingest.trades"
    assert (list(plan.topology.scopes), list(plan.topology.arcs)) == ([], ["trades"])


def test_a_scope_can_not_have_the_name_of_a_sources_owners():
    net = network()
    Stream(net, "trades").where("wanted", "price > 0", scope="trades-owner")
    with pytest.raises(NetworkError, match="a scope name of its own"):
        compile_network(net)


def test_the_driver_runs_a_rekeyed_source_with_its_sink():
    net = network(keep=1000)
    trades = Stream(net, "trades")
    trades.sink("out", envelope="upsert", format="json")
    trades.aggregate("sums", by=[], window=tumbling("1s"), total="sum(price)", n="count(*)")
    with Driver(net) as driver:
        driver.send("trades", [json.loads(insert("a", 5, at=5)), json.loads(insert("b", 2, at=6))])
        driver.close_epoch()
        driver.send("trades", json.loads(replace(row("a", 5, at=5), row("c", 7, at=5))))
        driver.end()
        assert driver.table("sums") == [
            {"window_start": 0, "window_end": 1000, "total": 9, "n": 2},
        ]
        assert driver.counts()["trades-owner.0"]["inserted"] == 3
        (records,) = driver.cluster.reader({TopicPartition("out", 0): 0}).poll()
        assert len(records) == 4
