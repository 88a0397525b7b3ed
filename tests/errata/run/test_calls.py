"""Calls to the brokers run beside the loop of a process."""

import time
from threading import Event

import pytest

from errata.run.calls import Calls

LIMIT_S = 30.0


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


def finished(calls, life):
    """Advance a generator to its end; return what it returns."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            assert next(life) is False
        except StopIteration as stop:
            return stop.value
        calls.rest(1.0)
    raise TimeoutError


def test_others_work_until_a_call_returns(calls):
    gate = Event()
    waiting, other = calls.run(lambda: gate.wait(LIMIT_S)), calls.run(lambda: 7)
    next(waiting)
    assert finished(calls, other) == 7
    next(waiting)
    gate.set()
    assert finished(calls, waiting) is True
    assert not calls.rest(LIMIT_S)


def test_an_error_comes_out_where_its_task_waits(calls):
    def fail():
        raise ValueError("no broker")

    with pytest.raises(ValueError, match="no broker"):
        finished(calls, calls.run(fail))


def test_nothing_goes_on_before_a_call_has_returned_that_nobody_waits_for_any_more(calls):
    done = []
    life = calls.run(lambda: done.append(time.sleep(0.1)))
    next(life)
    life.close()
    assert done == [None]
    assert not calls.rest(LIMIT_S)
