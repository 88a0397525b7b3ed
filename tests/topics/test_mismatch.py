"""Ports that take connections and close them are waited for; brokers of another protocol are not.

Docker's proxy listens before its broker does.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread, Timer

import pytest

from errata.topics import mismatch
from errata.topics.client import Connection
from errata.topics.cluster import SilentClusterError
from errata.topics.mismatch import speaks
from errata.topics.refused import RefusedError
from tests.topics.test_client import HOST, METADATA, StartingBroker

LASTS_S = 0.5
ALERT = bytes.fromhex("15030300020228")
HELLO = b"\x16"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatch, "LASTS_S", LASTS_S)


class Proxy(StartingBroker):
    """Closes every connection at once, until its broker is there."""

    there = False

    def serve(self, client: socket.socket) -> None:
        if self.there:
            super().serve(client)
        else:
            self.close(client)

    def close(self, client: socket.socket) -> None:
        client.close()


class Resetting(Proxy):
    """Sends a reset instead."""

    def close(self, client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


class Plain(StartingBroker):
    """Ends the connection of who asks for TLS, as a request of some hundred megabytes."""

    def serve(self, client: socket.socket) -> None:
        if client.recv(1, socket.MSG_PEEK) == HELLO:
            client.close()
        else:
            super().serve(client)


class Tls(StartingBroker):
    """Answers to nothing but TLS, and to that with an alert."""

    def serve(self, client: socket.socket) -> None:
        with suppress(ConnectionError), client:
            if client.recv(4096).startswith(HELLO):
                client.sendall(ALERT)


class Guarded(StartingBroker):
    """Ends the connection of who asks for more than its versions, as one that wants a password."""

    def serve(self, client: socket.socket) -> None:
        with suppress(ConnectionError), client:
            while head := client.recv(4):
                body = client.recv(*struct.unpack(">i", head))
                api, version, correlation = struct.unpack(">hhi", body[:8])
                if api == METADATA:
                    return
                answer = struct.pack(">i", correlation) + self.versions(version)
                client.sendall(struct.pack(">i", len(answer)) + answer)


@contextmanager
def listening(peer: StartingBroker, **settings: str) -> Iterator[dict[str, str | int]]:
    Thread(target=peer.accept, daemon=True).start()
    try:
        yield {
            "bootstrap.servers": f"{HOST}:{peer.port}",
            "reconnect.backoff.ms": 20,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    finally:
        peer.server.close()


@pytest.mark.parametrize(
    ("kind", "says"), [(Proxy, False), (Resetting, False), (Tls, True), (Plain, True)]
)
def test_who_answers_as_kafka_or_tls_speaks(kind: type[StartingBroker], says: bool) -> None:
    peer = kind(True)
    with listening(peer):
        assert speaks(f"{HOST}:{peer.port}") == says
        assert speaks(f" PLAINTEXT://{HOST}:{peer.port}") == says
    assert not speaks(f"{HOST}:1")
    assert not speaks("[::1]:1")


@pytest.mark.parametrize("kind", [Proxy, Resetting])
def test_a_proxy_whose_broker_is_still_to_come_is_waited_for(kind: type[Proxy]) -> None:
    proxy = kind(True)
    comes = Timer(5 * LASTS_S, setattr, (proxy, "there", True))
    comes.start()
    with listening(proxy) as settings:
        Connection(settings, reach_s=30.0)
    assert proxy.there


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_proxy_whose_broker_never_comes_is_no_answer(protocol: str) -> None:
    with (
        listening(Proxy(True), security_protocol=protocol) as settings,
        pytest.raises(SilentClusterError, match=r"within 2 s \(.*; start it"),
    ):
        Connection(settings, reach_s=2.0)


@pytest.mark.parametrize(
    ("kind", "protocol"), [(Tls, "PLAINTEXT"), (Guarded, "PLAINTEXT"), (Plain, "SSL")]
)
def test_a_broker_that_speaks_another_protocol_is_told(
    kind: type[StartingBroker], protocol: str
) -> None:
    with (
        listening(kind(True), security_protocol=protocol) as settings,
        pytest.raises(RefusedError, match=r"ends every connection: .*check security\.protocol"),
    ):
        Connection(settings, reach_s=30.0)
