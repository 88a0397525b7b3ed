"""Whether a process is ready, from what it runs, and what it commits before it ends."""

import errno
import os
import shutil
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

from errata import Network, tumbling
from errata.processors.tasks import reading_again, replay_client
from errata.processors.tasks.attempt import Attempt
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.task_id import TaskId
from errata.run import worker
from errata.run.worker import Inspector, drain
from errata.sweepers import sweeper as sweeper_module
from errata.sweepers.sweeper import Service, Sweeper
from errata.testing import Driver
from errata.topics.cluster import MovingLeaderError, TopicPartition
from tests.processors.rogue import Rogue

MINUTE = 60_000


@pytest.fixture
def driver() -> Iterator[Driver]:
    net = Network("looked")
    fields = {"key": "string", "at": "timestamp-millis", "price": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)", mode="upstream")
    with Driver(net) as running:
        yield running


def send(driver: Driver, count: int) -> None:
    rows = ({"key": f"{n}", "at": n * MINUTE, "price": n} for n in range(count))
    driver.send("trades", [{"op": "insert", "after": row} for row in rows])
    driver.close_epoch()


def waits(driver: Driver, *actors: Any, shares: Any = ()) -> list[str]:
    return Inspector(driver.shared, shares)(actors)[0]


def sweeper(driver: Driver, folder: Any, **more: Any) -> Sweeper:
    return Sweeper(driver.shared, "trades", partition=0, folder=folder, clock_ms=lambda: 0, **more)


def test_tasks_that_work_are_ready_one_that_starts_or_waits_is_not(driver: Driver) -> None:
    ingest, scope = driver.tasks
    assert waits(driver, *driver.tasks) == []
    scope.started = False
    ingest.waits_for = "the registry gives no answer"
    assert waits(driver, *driver.tasks) == [
        "task ingest.trades.0 waits: the registry gives no answer",
        "task trades.0 is starting",
    ]


def test_a_task_is_starting_again_in_its_next_life(driver: Driver) -> None:
    scope = driver.tasks[1]
    driver.attempts[1].close()
    life = driver.attempts[1] = scope.steps()
    next(life)
    assert waits(driver, scope) == ["task trades.0 is starting"]
    while not scope.started:
        next(life)
    assert waits(driver, scope) == []


def test_a_sweeper_is_ready_once_it_has_caught_up_and_stays_so(
    driver: Driver, tmp_path: Any
) -> None:
    send(driver, 50)
    late = sweeper(driver, tmp_path)
    service = Service(driver.shared, late)
    assert waits(driver, service) == ["sweep.trades.0 has read its arc up to epoch -1 so far"]
    late.follow()
    assert waits(driver, service) == []
    send(driver, 60)
    assert waits(driver, service) == []  # behind by an epoch, as it is all the time
    service.close()


def test_a_sweeper_without_room_is_not_ready(
    driver: Driver, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = sweeper(driver, tmp_path, segment_rows=10)
    full.follow()
    send(driver, 50)

    def no_room(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_room)
        full.follow()
    (why,) = waits(driver, full)
    assert why.startswith("sweep.trades.0 replies to no request: ")
    assert "No space left on device" in why
    full.close()


def test_a_report_that_is_not_believed_is_logged_once(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    send(driver, 50)
    look = Inspector(driver.shared, [])
    Rogue(driver.cluster, driver.plan).lie("ingest.trades.0", later=-1)
    driver.shared.view.poll()
    for _second in range(3):
        look(driver.tasks)
    (line,) = caplog.messages
    assert line.startswith(
        "the report of ingest.trades.0 is invalid and is ignored: it goes back from epoch"
    )


def test_who_shares_a_scope_stands_by_once_the_group_has_spoken(driver: Driver) -> None:
    share: Any = SimpleNamespace(scope="trades", is_member=False)
    assert waits(driver, shares=[share]) == [
        "scope trades: the consumer group has not assigned partitions yet"
    ]
    share.is_member = True
    assert waits(driver, shares=[share]) == []


def test_a_task_has_started_once_its_attempt_has_begun_a_sweeper_once_it_has_caught_up(
    driver: Driver, tmp_path: Any
) -> None:
    scope = driver.tasks[1]
    assert worker._has_started(scope)
    scope.started = False
    assert not worker._has_started(scope)
    send(driver, 50)
    late = sweeper(driver, tmp_path)
    service = Service(driver.shared, late)
    assert not worker._has_started(service)
    late.follow()
    assert worker._has_started(service)
    service.close()


class Committing(Task):
    """A task that has a transaction open for some steps."""

    def __init__(self, steps: int) -> None:
        self.attempt = Attempt(create_autospec(Shared, instance=True), TaskId.parse("sums.0"))
        self.attempt.is_committing, self.step_count, self.taken = True, steps, 0

    def steps(self) -> Generator[bool, None, None]:
        while True:
            self.taken += 1
            self.attempt.is_committing = self.taken < self.step_count
            yield True


def test_a_transaction_that_is_open_is_committed_and_nothing_else_begun() -> None:
    tasks = [Committing(3), Committing(1)]
    tasks[1].attempt.is_committing = False
    lives = {task: task.steps() for task in tasks}
    drain(tasks, lambda task: next(lives[task]))
    assert [task.taken for task in tasks] == [3, 0]


def test_a_transaction_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DRAIN_S", 0.05)
    task = Committing(10**9)
    life = task.steps()
    drain([task], lambda task: next(life))
    assert task.taken > 0


def test_a_start_that_fails_leaves_no_connection_behind(monkeypatch):
    """It may be repeated for minutes."""
    cluster, place = SimpleNamespace(closed=0), SimpleNamespace(wait_ms=0)
    cluster.close = lambda: setattr(cluster, "closed", cluster.closed + 1)

    def no_leader(*_):
        raise MovingLeaderError("no leader yet")

    monkeypatch.setattr(worker, "connect", lambda _: cluster)
    monkeypatch.setattr(worker, "prepare", no_leader)
    with pytest.raises(MovingLeaderError):
        worker.Worker(Network("started"), place)
    assert cluster.closed == 1


def test_a_task_that_reads_topics_again_tells_how_far_it_has_come(
    driver: Driver,
) -> None:
    scope, inspect = driver.tasks[1], Inspector(driver.shared, ())
    with scope.again.of("is rebuilt from its inputs"):
        scope.again.note(TopicPartition("t", 0), 10, 30)
        scope.again.note(TopicPartition("t", 1), 20, 30)
        scope.started = False
        (reason,) = inspect([scope])[0]
        assert reason.startswith("task trades.0 is starting: it is rebuilt from its inputs: 50% of")
    assert inspect([scope])[0] == ["task trades.0 is starting"]


def test_an_index_that_is_read_again_tells_how_far_it_has_come(driver: Driver) -> None:
    send(driver, 40)
    shutil.rmtree(driver.tasks[0].held_tuples.folder)
    told, _ = begun_again(driver, driver.tasks[0])
    assert "task ingest.trades.0 is starting: it rebuilds its index: 0%" in told
    assert waits(driver, driver.tasks[0]) == []


def begun_again(driver: Driver, task: Task) -> tuple[set[str], set[tuple[int, int] | None]]:
    """Begin a task's next attempt; return why it was not ready, and what it has reported."""
    number = driver.tasks.index(task)
    driver.attempts[number].close()
    told, reported = set[str](), set[tuple[int, int] | None]()
    driver.attempts[number] = life = task.steps()
    next(life)
    while not task.started:
        next(life)
        told |= {reason.partition(" of ")[0] for reason in waits(driver, task)}
        reported.add(task.report.again)
    for _ in range(10):
        next(life)
    return told, reported


def test_a_task_that_reads_topics_again_reports_and_logs_how_far_it_has_come(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(driver, 40)
    monkeypatch.setattr(reading_again, "TOLD_S", 0.0)
    ingest, scope = driver.tasks
    shutil.rmtree(ingest.held_tuples.folder)
    _, reported = begun_again(driver, ingest)
    assert any(again is not None and again[1] >= 40 for again in reported)
    assert ingest.report.again is None
    assert "task ingest.trades.0 rebuilds its index: 0% of 4" in caplog.text

    monkeypatch.setattr(replay_client, "SMALLEST_PART_BYTES", 100)
    monkeypatch.setattr(replay_client, "PART_BYTES", 100)
    monkeypatch.setattr(sweeper_module, "TURN_S", 0.0)
    _, reported = begun_again(driver, scope)  # an open window has ten tuples
    counts = {again[0] for again in reported if again is not None}
    assert len(counts) > 2
    assert max(counts) == 10
    assert scope.report.again is None
    assert "task trades.0 replays its open windows: 6 records after 0 s" in caplog.text
    send(driver, 60)  # it works as before
    assert [row["total"] for row in driver.table("sums")] == [45, 145, 245, 345, 445]


def test_a_task_that_reads_nothing_again_reports_nothing_of_it(driver: Driver) -> None:
    send(driver, 40)
    for task in driver.tasks:
        _, reported = begun_again(driver, task)
        assert reported == {None}
