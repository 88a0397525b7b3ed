"""How long the start of a process waits for a cluster that can't serve it yet."""

import logging
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from errata.cli import run
from errata.processors.tasks.task import Task
from errata.run.patience import AGAIN_S, Patience
from errata.run.worker import ReplacedError, Worker
from errata.topics.cluster import ClusterError, FencedError, MovingLeaderError, SilentClusterError

MOVING = MovingLeaderError("partition 0 of topic 't' has no leader yet; try again")
SILENT = SilentClusterError("no broker answers")


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def patience(clock: Clock, limit_ms: int = 10_000) -> Patience:
    return Patience(limit_ms, clock_s=clock, sleep=clock.sleep)


def test_a_step_is_repeated_until_the_cluster_can_serve_it_and_logged_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    step = Mock(side_effect=[MOVING, SILENT, MOVING, "done"])
    with caplog.at_level(logging.WARNING):
        assert patience(clock).through(step) == "done"
    assert caplog.messages == [f"waiting for at most 10 s to start: {MOVING}"]
    assert clock.now_s == 100.0 + 3 * AGAIN_S


def test_a_cluster_that_never_can_ends_the_start_when_the_time_is_over(clock: Clock) -> None:
    step = Mock(side_effect=MOVING)
    with pytest.raises(MovingLeaderError, match="partition 0 of topic 't'"):
        patience(clock).through(step)
    assert clock.now_s == 110.0


def test_the_time_of_all_steps_counts_together(clock: Clock) -> None:
    waiting = patience(clock)
    waiting.through(Mock(side_effect=[MOVING, "done"]))
    clock.now_s = 111.0
    with pytest.raises(MovingLeaderError):
        waiting.through(Mock(side_effect=MOVING))


def test_a_fault_that_does_not_pass_is_raised_at_once(clock: Clock) -> None:
    with pytest.raises(ClusterError, match="refused"):
        patience(clock).through(Mock(side_effect=ClusterError("refused")))
    assert clock.now_s == 100.0


def test_what_a_failed_start_had_opened_is_closed_before_the_next_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [Mock(name="first"), Mock(name="second")]
    monkeypatch.setattr(run, "Worker", Mock(side_effect=workers))
    take_on, arguments = Mock(side_effect=[MOVING, None]), [Mock(), Mock(), Mock()]
    waiting = patience(clock)
    begun = waiting.through(lambda: run._begun(*arguments, waiting, take_on))
    assert begun is workers[1]
    assert [worker.close.called for worker in workers] == [True, False]


class Starting:
    """An actor whose first attempts meet an error; it is no task."""

    name = "sweep.trades.0"

    def __init__(self, *errors: ClusterError) -> None:
        self.errors = list(errors)

    def steps(self) -> Iterator[bool]:
        while self.errors:
            raise self.errors.pop(0)
        while True:
            yield False


def worker(clock: Clock, actor: Any) -> Worker:
    """A worker that has taken on one actor, without a cluster."""
    it = object.__new__(Worker)
    it.pulse, it.patience, it.steps = Mock(), patience(clock), {actor: actor.steps()}
    return it


@pytest.mark.parametrize("started", [False, True])
def test_an_attempt_that_has_not_begun_its_work_starts_again_others_end_the_process(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    actor = Starting(MOVING, SILENT)
    it = worker(clock, actor)
    monkeypatch.setattr("errata.run.worker._has_started", lambda actor: started)
    if started:
        with pytest.raises(MovingLeaderError):
            it._advance(actor)
        return
    assert [it._advance(actor) for _ in range(3)] == [True, True, False]


class Fenced(Task):
    """A task that was fenced, and whose reports take some steps to read."""

    name = "totals.0"

    def __init__(self, *, is_replaced: bool) -> None:
        self.is_replaced = is_replaced

    def steps(self) -> Generator[bool, None, None]:
        raise FencedError("it was fenced")
        yield

    def read_reports(self) -> Iterator[bool]:
        return iter([False, False])

    @property
    def is_superseded(self) -> bool:
        return self.is_replaced


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_fenced_task_looks_step_by_step_whether_it_was_replaced(
    clock: Clock, is_replaced: bool
) -> None:
    task = Fenced(is_replaced=is_replaced)
    it = worker(clock, task)
    it.shares, it.shared = [], Mock()
    it.shared.meter.doubtful = Counter()
    assert [it._advance(task) for _ in range(3)] == [True, False, False]
    if is_replaced:
        with pytest.raises(ReplacedError, match="it was fenced"):
            it._advance(task)
    else:
        assert it._advance(task)  # the next attempt is fenced, too
