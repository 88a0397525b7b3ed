"""When a process is told to end."""

import signal
import subprocess
import sys
import time

import pytest

from errata.run import stopping
from errata.run.stopping import OVERDUE, Stop

HANGS = """
from confluent_kafka.admin import AdminClient
from errata.run import stopping
stopping.LIMIT_S = 0.5
with stopping.Stop() as stop:
    stop.running = {running}
    print("at it", flush=True)
    AdminClient({{"bootstrap.servers": "127.0.0.1:1", "logger": None}}).list_topics(timeout=100)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_loop_and_gives_the_status(number: int, status: int) -> None:
    with Stop() as stop:
        stop.running = True
        assert not stop()
        signal.raise_signal(number)
        assert stop()
        assert stop.status == status


def test_before_the_loop_a_signal_ends_the_process() -> None:
    with pytest.raises(SystemExit, match="130"), Stop():
        signal.raise_signal(signal.SIGINT)


def test_a_second_signal_does_not_wait_for_the_loop() -> None:
    with Stop() as stop:
        stop.running = True
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit, match="0"):
            signal.raise_signal(signal.SIGTERM)


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stop():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("running", [True, False])
def test_a_call_that_does_not_come_back_does_not_hold_the_end_up(running: bool) -> None:
    """Such a call is in C: no handler of Python's runs until it comes back."""
    script = HANGS.format(running=running)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at it\n"
    time.sleep(0.2)  # it is in the call
    process.terminate()
    try:
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == OVERDUE
    assert "did not end within 0.5 s" in err


def test_who_has_ended_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(stopping, "LIMIT_S", 0.05)
    monkeypatch.setattr(stopping.os, "_exit", ended.append)
    with Stop() as stop:
        stop.running = True
        signal.raise_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert ended == []
