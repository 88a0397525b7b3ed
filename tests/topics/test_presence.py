"""Brokers that are not there yet are waited for, with one message and a limit."""

import socket
from threading import Thread, Timer

import pytest

from errata.topics import present as presence
from errata.topics.cluster import SilentClusterError
from errata.topics.present import await_brokers
from tests.topics.test_client import HOST, StartingBroker, started


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "AT_ONCE_S", 0.3)


def test_brokers_that_are_there_are_not_waited_for() -> None:
    said: list[str] = []
    with started(True) as broker:
        await_brokers(broker.settings, limit_s=10.0, say=said.append)
    assert said == []


def test_brokers_that_come_later_are_waited_for_and_that_is_said_once() -> None:
    said: list[str] = []
    late = StartingBroker(True)
    late.server.close()  # its port is free until it comes

    def come() -> None:
        late.server = socket.create_server((HOST, late.port))
        late.accept()

    timer = Timer(1.0, lambda: Thread(target=come, daemon=True).start())
    timer.start()
    try:
        settings = {"bootstrap.servers": f"{HOST}:{late.port}", "reconnect.backoff.ms": 20}
        await_brokers(settings, limit_s=30.0, say=said.append)
    finally:
        timer.join()
        late.server.close()
    assert said == [f"no broker answers at {HOST}:{late.port} yet; waits for one, 30 s at most"]


def test_brokers_that_never_come_are_given_up() -> None:
    said: list[str] = []
    with pytest.raises(SilentClusterError, match=r"no broker answers at 127.0.0.1:1 within 0.6 s"):
        await_brokers({"bootstrap.servers": "127.0.0.1:1"}, limit_s=0.6, say=said.append)
    assert len(said) == 1
