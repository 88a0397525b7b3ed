"""How the attempts of a task follow one another."""

from dataclasses import replace

import pytest

from errata import Network
from errata.processors.tasks.scope_task import ScopeTask
from errata.sweepers.sweeper import LocalSweepers
from errata.testing import Driver
from errata.topics.cluster import DoubtfulCommitError, FencedError
from tests.processors.tasks.trades import trades_of
from tests.steps import first_step


@pytest.fixture
def driver():
    net = Network("following")
    trades_of(net).where("cheap", "price < 2", keep="30d", scope="cheap")
    with Driver(net) as driver:
        yield driver


def test_a_task_that_was_replaced_does_not_fence_its_replacement(driver):
    old = next(task for task in driver.tasks if task.name == "cheap.0")
    new = ScopeTask(driver.shared, old.scope, partition=0, replays=LocalSweepers({}))
    steps = new.steps()
    first_step(steps, new)
    assert new.report.attempt == old.report.attempt + 1
    with pytest.raises(FencedError, match="a newer attempt has taken over"):
        first_step(old.steps(), old)
    driver.send("trades", {"op": "insert", "after": {"key": "k", "at": 1, "price": 1}})
    driver.epoch += 1
    for _ in range(20):
        next(driver.attempts[0])
        next(steps)
    assert new.report.ends  # it has written
    steps.close()


def test_a_task_does_not_fence_one_that_has_claimed_the_same_attempt(driver, monkeypatch):
    old = next(task for task in driver.tasks if task.name == "cheap.0")
    driver.attempts[driver.tasks.index(old)].close()
    new = ScopeTask(driver.shared, old.scope, partition=0, replays=LocalSweepers({}))
    finish, of_new = old.attempt.finish, new.steps()

    def overtaken(report):
        assert report.attempt == old.report.attempt + 1
        first_step(of_new, new)  # while the old one stands still
        yield from finish(report)

    monkeypatch.setattr(old.attempt, "finish", overtaken)
    with pytest.raises(FencedError):
        first_step(old.steps(), old)
    assert new.report.attempt == old.report.attempt + 1
    assert old.is_superseded
    with pytest.raises(FencedError, match="a newer attempt has taken over"):
        first_step(old.steps(), old)
    assert next(of_new) in {False, True}  # it was not fenced
    of_new.close()


def test_a_process_takes_back_what_one_that_began_before_has_claimed(driver, monkeypatch):
    old = next(task for task in driver.tasks if task.name == "cheap.0")
    later = replace(driver.shared, process=0)
    new = ScopeTask(later, old.scope, partition=0, replays=LocalSweepers({}))
    first_step(new.steps(), new)
    assert later.process > driver.shared.process > 0
    with monkeypatch.context() as patch:  # it has not seen that it was replaced
        patch.setattr(old, "_require_current", lambda: iter([]))
        first_step(old.steps(), old)
    assert old.report.attempt == new.report.attempt + 1
    new.view.catch_up()
    assert not new.is_superseded
    first_step(new.steps(), new)
    assert new.report.attempt == old.report.attempt + 1
    with pytest.raises(FencedError, match="a newer attempt has taken over"):
        first_step(old.steps(), old)


def test_a_task_that_does_not_know_whether_it_has_claimed_an_attempt_claims_the_next(
    driver, monkeypatch
):
    task = next(task for task in driver.tasks if task.name == "cheap.0")
    driver.attempts[driver.tasks.index(task)].close()
    attempt, finish = task.report.attempt, task.attempt.finish

    def doubtful(report):
        before = task.attempt.report
        yield from finish(report)
        task.attempt.report = before
        raise DoubtfulCommitError("the outcome is not known")

    with monkeypatch.context() as patch:
        patch.setattr(task.attempt, "finish", doubtful)
        with pytest.raises(DoubtfulCommitError):
            first_step(task.steps(), task)
    first_step(task.steps(), task)
    assert task.report.attempt == attempt + 2
