"""`errata status`: frontiers, lags, and the task that holds each one back, since when."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from errata.cli.status import status_tables
from errata.client.status_text import as_data, why_held, why_watermark
from errata.observe.diagnosis import NAMED_MS
from errata.observe.network_progress import NetworkStatus, Progress, status
from errata.processors.compile.compiler import compile_network
from errata.processors.reports.progress_view import DELETED
from errata.processors.wire import report as reports
from errata.processors.wire.report import FOR_ROOM, FOREVER, IDLE, Report
from errata.schemas import framing
from errata.settings.loading import load
from errata.testing import Driver
from errata.topics.cluster import MovingLeaderError, TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.names import SCHEMAS_TOPIC
from errata.topics.registry import SchemaRegistry
from tests.errata.conftest import Errata
from tests.errata.network_file import write_network

SECOND, HOUR = 1_000, 3_600_000
NOW_MS = 1_000 * SECOND
ARC = "figure.prices"


class Leaderless(MemoryCluster):
    """A cluster in which some partitions have no leader."""

    without: frozenset[TopicPartition] = frozenset()

    def ends(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if places := self.without & set(sources):
            raise MovingLeaderError("a partition has no leader yet; try again", places)
        return {source: super(Leaderless, self).end(source) for source in sources}

    def end(self, source: TopicPartition) -> int:
        return self.ends([source])[source]


class World:
    """Reports as they might lie on the progress topic of a network with two partitions."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = NOW_MS
        self.cluster = Leaderless(clock_ms=lambda: self.now_ms)
        network = load(str(write_network(folder)))
        self.plan = compile_network(network).placed({"prices": 2})
        for topic, count in (
            ("figure.progress", 1),
            ("figure.plan", 1),
            ("figure-prices", 2),
            (ARC, 2),
        ):
            self.cluster.create(topic, count)
        for partition in (0, 1):
            for _ in range(10):
                self.cluster.send(ARC, partition=partition, key=b"k", value=b"")

    def report(self, task: str, done: int, **more) -> None:
        more = {"attempt": 1, "committed": {1: done}} | more
        value = framing.frame([reports.encode(replace(Report(task, done=done), **more))], 1)[0]
        self.cluster.send("figure.progress", partition=0, key=task.encode(), value=value)

    def ingest(self, partition: int, done: int, watermark: int, *, at: int | None = None) -> None:
        """An ingest task that wrote its last record, and set its watermark, in an epoch."""
        at = done if at is None else at
        place = TopicPartition(ARC, partition)
        self.report(
            f"ingest.prices.{partition}",
            done,
            watermark=watermark,
            watermarks=((at, watermark),),
            ends={place: (10, at)},
            counts={"read": 10, "dead_letters": 2, "late": 1},
        )

    def status(self) -> NetworkStatus:
        progress = Progress(self.cluster, plan=self.plan, believes=True)
        progress.catch_up()
        return status(progress, now_ms=self.now_ms)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def by_task(found: NetworkStatus) -> dict:
    return {task.task: task for task in found.tasks}


def scope(world: World, partition: int, done: int, resume: int = 10, **more: Any) -> None:
    at = {TopicPartition(ARC, partition): resume}
    world.report(f"prices.{partition}", done, resume=at, **{"closes": FOREVER} | more)


def test_nothing_is_held_back_when_all_have_done_the_newest_epoch(world: World) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
        scope(world, partition, 100, resume=9)  # what lies behind is of epochs it has done
    found = world.status()
    assert found.newest_epoch == 100
    assert [(t.frontier, t.lag_ms, t.held_by) for t in found.tasks] == [(100, 0, None)] * 4
    assert {t.waiting for t in found.tasks} == {0}
    assert found.holds == []
    ingest = by_task(found)["ingest.prices.0"]
    assert (ingest.total("read"), ingest.total("dead_letters"), ingest.total("late")) == (10, 2, 1)


def test_a_task_with_complete_input_holds_itself_back_since_its_last_report(world: World) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
    scope(world, 1, 100)
    scope(world, 0, 60, resume=4)
    found = world.status()
    held = by_task(found)["prices.0"]
    assert (held.frontier, held.lag_ms, held.waiting) == (60, 2_000, 6)
    assert (held.held_by, held.held_since_ms) == ("prices.0", NOW_MS)
    assert by_task(found)["prices.1"].held_by is None
    assert why_held(held) == (
        "holds itself back: 6 records wait for it, its last report is of 1970-01-01 00:16:40; it "
        "is busy, or needs `errata run --scope prices`"
    )


def test_a_task_waits_for_the_ingest_task_that_is_behind(world: World) -> None:
    world.ingest(1, 40, 5_000)
    world.now_ms += 7 * SECOND
    world.ingest(0, 100, 5_000)
    for partition in (0, 1):
        scope(world, partition, 40)
    found = by_task(world.status())
    assert {name: task.held_by for name, task in found.items()} == {
        "ingest.prices.0": None,
        "ingest.prices.1": "ingest.prices.1",
        "prices.0": "ingest.prices.1",
        "prices.1": "ingest.prices.1",
    }
    assert why_held(found["prices.0"]) == (
        "waits for ingest.prices.1; its last report is of 1970-01-01 00:16:40"
    )


def test_a_task_that_never_reported_is_told_to_be_started(world: World) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
    scope(world, 1, 100)
    held = by_task(world.status())["prices.0"]
    assert (held.attempt, held.done, held.frontier, held.lag_ms) == (0, None, None, None)
    assert (held.held_by, held.held_since_ms, held.reported_ms) == ("prices.0", None, None)
    assert "it has never reported" in why_held(held)


def test_records_that_wait_in_a_users_topic_are_held_back_by_their_ingest(world: World) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
        scope(world, partition, 100)
    for _ in range(3):
        world.cluster.send("figure-prices", partition=1, key=None, value=b"{}")
    found = by_task(world.status())
    assert (found["ingest.prices.1"].waiting, found["ingest.prices.1"].held_by) == (
        3,
        "ingest.prices.1",
    )
    assert found["ingest.prices.0"].held_by is None


def test_the_mark_of_a_transactions_end_is_nothing_that_waits(world: World) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
    producer = world.cluster.transactions("somebody")
    producer.begin()
    producer.produce("figure-prices", partitions=[0], keys=[None], values=[b"{}"])
    producer.commit()
    place = TopicPartition("figure-prices", 0)
    assert world.cluster.end(place) == 2
    assert by_task(world.status())["ingest.prices.0"].waiting == 1
    world.report("ingest.prices.0", 101, resume={place: 1})
    found = by_task(world.status())["ingest.prices.0"]
    assert (found.waiting, found.held_by) == (0, None)


def test_a_filter_that_let_nothing_pass_is_told(world: World) -> None:
    for partition in (0, 1):
        world.report(f"prices.{partition}", 10, counts={"plain.judged": 4, "plain.passed": 0})
    assert world.status().silent == ["filter 'plain' has passed none of 8 revisions: price > 0"]
    world.report("prices.1", 11, counts={"plain.judged": 5, "plain.passed": 1})
    assert world.status().silent == []


def complaints(world: World) -> dict[str, str]:
    return {each.task: each.reason for each in world.status().complaints}


@pytest.mark.parametrize("topic", [ARC, "figure-prices"])
def test_a_partition_without_a_leader_is_named_and_the_rest_is_shown(
    world: World, topic: str
) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
        scope(world, partition, 100, resume=9)
        world.cluster.send("figure-prices", partition=partition, key=None, value=b"{}")
    world.cluster.without = frozenset([TopicPartition(topic, 1)])
    found = world.status()
    assert [(each.task, each.reason) for each in found.complaints] == [
        (
            topic,
            "partition 1 has no leader: whoever reads or writes it waits until the brokers that "
            "have its replicas are back",
        )
    ]
    assert {task.task: task.done for task in found.tasks} == dict.fromkeys(by_task(found), 100)
    waiting = [by_task(found)[f"ingest.prices.{partition}"].waiting for partition in (0, 1)]
    assert waiting == [1, int(topic == ARC)]
    world.cluster.without = frozenset()
    assert world.status().complaints == []


def test_status_can_say_nothing_while_the_reports_have_no_leader(world: World) -> None:
    world.cluster.without = frozenset([TopicPartition("figure.progress", 0)])
    with pytest.raises(MovingLeaderError):
        world.status()


def test_records_of_the_schemas_topic_that_are_skipped_are_named(world: World) -> None:
    world.cluster.create(SCHEMAS_TOPIC, 1)
    schemas = SchemaRegistry(world.cluster)
    progress = Progress(world.cluster, plan=world.plan)
    schemas.register("s", {"type": "string"})
    schemas.read()
    assert status(progress, schemas=schemas).complaints == []
    stolen = {"id": 5, "subject": "s", "schema": {"type": "long"}}
    for key, value in ((b"a", b"\xff"), (b"b", json.dumps(stolen).encode())):
        world.cluster.send(SCHEMAS_TOPIC, partition=0, key=key, value=value)
    schemas.read()
    (complaint,) = status(progress, schemas=schemas).complaints
    assert complaint.task == SCHEMAS_TOPIC
    assert complaint.reason.startswith(
        "2 of its records are skipped, the last in partition 0 at offset 2: malformed, or with an"
    )


def test_who_has_passed_over_records_of_strangers_is_named(world: World) -> None:
    world.report("sweep.prices.0", 1, counts={"foreign": 3})
    assert complaints(world) == {
        "sweep.prices.0": "it has passed over 3 records that no task can have written (its log "
        "names topic, partition and offset): check who may write there"
    }


def test_a_task_that_rebuilds_tells_how_far_it_has_come_and_is_not_wrong(world: World) -> None:
    world.ingest(0, 100, 5_000)
    world.ingest(1, 100, 5_000)
    scope(world, 1, 100)
    scope(world, 0, 99, resume=9, again=(450_000, 1_000_000))
    world.now_ms += 20_000
    found = world.status()
    assert found.complaints == []
    task = by_task(found)["prices.0"]
    assert (task.read_again, task.read_again_of) == (450_000, 1_000_000)
    told = "holds itself back: it rebuilds what it keeps, 45% of 1,000,000 records read; its last"
    assert why_held(task).startswith(told)
    world.now_ms += 11_000  # it has ended
    assert complaints(world) == {
        "prices.0": "it has something to do and has not reported for 31000 ms"
    }


def test_a_sweeper_that_waits_for_room_is_named(world: World) -> None:
    world.report("sweep.prices.0", 1, waits=FOR_ROOM)
    assert complaints(world) == {
        "sweep.prices.0": "it answers no replay requests until the disk of its process has room"
    }


def test_the_deletion_of_a_report_is_named_and_does_not_count(world: World) -> None:
    world.ingest(0, 100, 5_000)
    world.cluster.send("figure.progress", partition=0, key=b"ingest.prices.0", value=None)
    found = world.status()
    assert by_task(found)["ingest.prices.0"].done == 100
    assert ("ingest.prices.0", f"its report is invalid: {DELETED}") in [
        (each.task, each.reason) for each in found.complaints
    ]


@pytest.mark.parametrize("value", [b'{"0": 5}', b'{"time_ms": 5, "resent": 0}'])
def test_an_end_or_a_watermark_of_no_source_is_named(world: World, value: bytes) -> None:
    key = b"end.elsewhere" if b"time_ms" not in value else b"watermark.elsewhere"
    world.cluster.send("figure.plan", partition=0, key=key, value=value)
    assert complaints(world) == {
        "figure.plan": f"record '{key.decode()}' of the plan topic names no source of the network, "
        "and does not count; check who may write to topic 'figure.plan'"
    }


def test_a_process_that_never_reports_is_named_within_two_seconds(world: World) -> None:
    world.ingest(0, 100, 5_000)
    world.ingest(1, 100, 5_000)
    scope(world, 1, 100)
    assert complaints(world) == {"prices.0": "it has something to do and has never reported"}
    scope(world, 0, 99, resume=9)
    assert complaints(world) == {}
    world.now_ms += 2_000
    told = "it has something to do and has not reported for 2000 ms"
    assert complaints(world) == {"prices.0": told}


@pytest.mark.parametrize(
    ("task", "done", "more", "reason"),
    [
        ("prices.0", 99, {}, "it goes back from epoch 100 to 99"),
        ("prices.0", 200, {"attempt": 0}, "its attempt 0 follows attempt 1"),
        ("prices.7", 200, {}, "the plan has no task 'prices.7'"),
        ("sweep.nothing.0", 200, {}, "the plan has no task 'sweep.nothing.0'"),
        (
            "prices.0",
            200,
            {"ends": {TopicPartition("figure.sums", 1): (5, 200)}},
            "it names partition 1 of figure.sums, which its task does not write",
        ),
        (
            "prices.0",
            200,
            {"resume": {TopicPartition(ARC, 1): 10}},
            f"it names partition 1 of {ARC}, which its task does not read",
        ),
    ],
)
def test_a_report_that_can_not_be_true_is_named_and_not_believed(
    world: World, task: str, done: int, more: dict, reason: str
) -> None:
    for partition in (0, 1):
        world.ingest(partition, 300, 5_000, at=100)
        scope(world, partition, 100)
    before = by_task(world.status())["prices.0"]
    world.report(task, done, **more)
    assert complaints(world) == {task: f"its report is invalid: {reason}"}
    assert by_task(world.status())["prices.0"] == before
    world.now_ms += NAMED_MS
    if task == "prices.0":
        assert task in complaints(world)
        world.report(task, 150)
    assert complaints(world) == {}


@pytest.mark.parametrize(("watermark", "is_named"), [(NOW_MS + HOUR, False), (4 * 10**12, True)])
def test_a_watermark_far_ahead_of_the_clock_is_named(world, watermark, is_named) -> None:
    world.ingest(0, 100, watermark)
    world.ingest(1, 100, 5_000)
    for partition in (0, 1):
        scope(world, partition, 100)
    named = complaints(world)
    assert list(named) == ["ingest.prices.0"] * is_named
    assert all("is 46296 d ahead of the clock" in reason for reason in named.values())


def test_a_source_that_refuses_most_records_is_named_with_the_reason(world: World) -> None:
    for partition, refused in ((0, 50), (1, 51)):
        scope(world, partition, 100)
        counts = {"read": 100, "dead_letters": refused, "refused.older than keep": refused - 1}
        counts["refused.undecodable"] = 1
        world.report(f"ingest.prices.{partition}", 100, counts=counts)
    assert complaints(world) == {
        "ingest.prices.1": "it has refused 51 of 100 records, 50 of them since: older than keep "
        "(see `errata dead-letters`)"
    }


def test_a_report_that_is_not_believed_is_named_for_a_while_though_better_ones_follow(
    world: World,
) -> None:
    for partition in (0, 1):
        world.ingest(partition, 300, 5_000, at=100)
        scope(world, partition, 100)
    world.report("prices.0", 99)
    world.report("prices.0", 150)
    assert list(complaints(world)) == ["prices.0"]
    world.now_ms += NAMED_MS - 1
    assert list(complaints(world)) == ["prices.0"]
    world.now_ms += 1
    assert complaints(world) == {}


def test_what_is_no_report_is_named_by_its_key(world: World) -> None:
    world.cluster.send("figure.progress", partition=0, key=b"prices.0", value=b"\0\0\0\0\1 what")
    assert "not a report" in complaints(world)["prices.0"]


def test_a_report_of_records_that_are_not_there_is_named_and_the_one_before_it_goes(
    world: World,
) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
        scope(world, partition, 100)
    honest = by_task(world.status())["ingest.prices.0"]
    place = TopicPartition(ARC, 0)
    world.report("ingest.prices.0", 200, watermark=9_000, ends={place: (1_000, 200)})
    reason = f"it has written up to offset 1000 of partition 0 of {ARC}, which ends at 10"
    assert complaints(world) == {"ingest.prices.0": f"its report is invalid: {reason}"}
    assert by_task(world.status())["ingest.prices.0"] == honest
    world.report("ingest.prices.0", 110, watermark=6_000, ends={place: (10, 100)})
    assert by_task(world.status())["ingest.prices.0"].done == 110


def test_an_arc_is_as_far_as_its_slowest_writer_which_is_named(world: World) -> None:
    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
    scope(world, 1, 100)
    scope(world, 0, 60, resume=4)
    arcs = {arc.arc: arc for arc in world.status().arcs}
    assert (arcs["prices"].frontier, arcs["prices"].held_by) == (100, None)
    assert (arcs["prices"].lag_ms, arcs["prices"].watermark_ms) == (0, 5_000)
    assert (arcs["sums"].frontier, arcs["sums"].lag_ms) == (60, 2_000)
    assert (arcs["sums"].held_by, arcs["sums"].held_since_ms) == ("prices.0", NOW_MS)


def test_a_partition_that_stands_still_holds_the_watermark_of_its_peers(world: World) -> None:
    world.ingest(0, 1_000, 90_000)
    world.ingest(1, 1_000, 30_000, at=500)
    (hold,) = world.status().holds
    assert (hold.source, hold.task) == ("prices", "ingest.prices.1")
    assert (hold.watermark_ms, hold.since_ms, hold.peers_ms) == (30_000, 25_000, 90_000)
    assert why_watermark(hold) == (
        "ingest.prices.1 is at 1970-01-01 00:00:30 and has had no newer event since "
        "1970-01-01 00:00:25, while its peers are at 1970-01-01 00:01:30: no window of 'prices' "
        "closes beyond; set idle_after=, or run `errata end NET prices`"
    )


def test_a_partition_that_never_had_a_record_holds_the_watermark(world: World) -> None:
    world.ingest(0, 10, 90_000)
    world.report("ingest.prices.1", 10)
    (hold,) = world.status().holds
    assert (hold.task, hold.watermark_ms, hold.since_ms) == ("ingest.prices.1", None, None)
    assert "has never had a record" in why_watermark(hold)


def test_an_idle_partition_holds_nothing_and_nothing_is_held_back_from_it(world: World) -> None:
    world.ingest(0, 1_000, 90_000, at=500)
    world.report("ingest.prices.1", 1_000, watermark=7, watermarks=((500, IDLE),))
    found = world.status()
    task = by_task(found)["ingest.prices.1"]
    assert (task.idle, task.ended, task.watermark_ms) == (True, False, 7)
    assert found.holds == []


def test_a_partition_that_has_not_ended_is_held_against_one_that_has(world: World) -> None:
    world.ingest(0, 1_000, 90_000, at=500)
    world.report("ingest.prices.1", 1_000, watermark=7, watermarks=((500, FOREVER),))
    found = world.status()
    assert (by_task(found)["ingest.prices.1"].idle, by_task(found)["ingest.prices.1"].ended) == (
        False,
        True,
    )
    (hold,) = found.holds
    assert (hold.task, hold.peers_ms) == ("ingest.prices.0", None)
    assert "while its peers have ended" in why_watermark(hold)


def test_a_partition_that_was_slow_for_a_moment_is_not_blamed(world: World) -> None:
    world.ingest(0, 1_000, 90_000)
    world.ingest(1, 1_000, 30_000, at=950)
    assert world.status().holds == []


def test_a_network_of_which_nothing_runs_can_be_told(world: World) -> None:
    found = world.status()
    assert found.newest_epoch is None
    assert {task.attempt for task in found.tasks} == {0}
    assert json.loads(json.dumps(as_data(found)))["newest_epoch"] is None


def test_people_are_told_only_of_what_is_stale(world: World) -> None:
    from rich.console import Console

    for partition in (0, 1):
        world.ingest(partition, 100, 5_000)
    scope(world, 1, 100)
    scope(world, 0, 60, closes=4_000)

    def shown(after_ms: int) -> str:
        console = Console(width=250)
        with console.capture() as told:
            console.print(status_tables(world.status(), now_ms=NOW_MS + after_ms))
        return told.get()

    assert "held back" not in shown(1_000)
    assert "held back: prices.0: holds itself back" in shown(9_000)
    assert "9.00 s ago" in shown(9_000)


@pytest.mark.parametrize("rows", [12, 24, 40])
def test_what_a_screen_can_not_show_is_what_lags_least(world: World, rows: int) -> None:
    from rich.console import Console

    one = world.status()
    many = replace(
        one,
        tasks=[replace(one.tasks[0], task=f"t.{n}", lag_ms=n, held_by=None) for n in range(100)],
        arcs=[replace(one.arcs[0], arc=f"a{n}", lag_ms=n, held_by=None) for n in range(100)],
        complaints=[],
    )
    console = Console(width=250, height=rows)
    with console.capture() as told:
        console.print(status_tables(many, now_ms=NOW_MS, rows=rows))
    lines = told.get().splitlines()
    assert len(lines) <= max(rows, 16)
    assert "t.99" in told.get()
    assert "a99" in told.get()
    assert "t.0 " not in told.get()
    assert "that lag less" in told.get()
    with console.capture() as told:
        console.print(status_tables(many, now_ms=NOW_MS))
    assert "t.0 " in told.get()


def test_the_command_tells_it_all_as_json_or_as_a_table(
    driver: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"key": "a", "at": 60_000, "symbol": "IBM", "price": 2}
    driver.send("prices", {"op": "insert", "after": row})
    driver.close_epoch()
    done = errata("status", "tape.py", "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["network"], found["newest_epoch"], found["holds"]) == ("figure", 1, [])
    (ingest,) = (t for t in found["tasks"] if t["task"] == "ingest.prices.0")
    assert (ingest["attempt"], ingest["done"], ingest["lag_ms"]) == (1, 1, 0)
    assert (ingest["watermark_ms"], ingest["counts"]["inserted"]) == (60_000, 1)
    assert [t["held"] for t in found["tasks"]] == [None] * len(found["tasks"])

    monkeypatch.setattr("errata.cli.output.for_people", lambda: True)
    table = errata("status", "tape.py")
    assert table.status == 0
    assert "ingest.prices.0" in table.out


@pytest.mark.parametrize("is_terminal", [False, True])
def test_watching_goes_on_until_ctrl_c(
    driver: Driver, errata: Errata, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    turns = iter([None, None])

    def stop_at_last() -> None:
        try:
            next(turns)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("errata.cli.status._wait", stop_at_last)
    monkeypatch.setattr("errata.cli.output.for_people", lambda: is_terminal)
    done = errata("status", "tape.py", "--watch")
    assert (done.status, done.err) == (130, "")
    assert next(turns, "all were taken") == "all were taken"
    if not is_terminal:
        assert len(done.out.splitlines()) == 3
    assert "ingest.prices.0" in done.out
