"""When a process is told to end."""

import signal

import pytest

from errata.stopping import Stop


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
