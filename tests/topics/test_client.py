"""Reaching a cluster that has not started yet, has just lost a broker, or speaks another protocol.

Ports that take connections and close them are waited for; brokers of another protocol are not.
Docker's proxy listens before its broker does.
"""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from threading import Thread, Timer

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from errata.topics import client
from errata.topics.client import Connection, responds
from errata.topics.cluster import ClusterError, MovingLeaderError, SilentClusterError
from errata.topics.refused import RefusedError

METADATA, API_VERSIONS = 3, 18
HOST = "127.0.0.1"


class StartingBroker:
    """Speaks just enough of Kafka's protocol to tell of brokers: of itself, or of none.

    Args:
        listed: Whether each answer lists it; the last one stays.
    """

    def __init__(self, *listed: bool) -> None:
        self.server, self.listed = socket.create_server((HOST, 0)), list(listed)
        self.port = self.server.getsockname()[1]
        self.leads = True
        """Else another one, at a port that nobody listens to, is the controller."""

    @property
    def settings(self) -> dict[str, str | int]:
        return {"bootstrap.servers": f"{HOST}:{self.port}", "reconnect.backoff.ms": 10}

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return  # closed
            Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with suppress(ConnectionError), client, client.makefile("rb") as requests:
            while head := requests.read(4):
                body = requests.read(*struct.unpack(">i", head))
                api, version, correlation = struct.unpack(">hhi", body[:8])
                told = self.metadata() if api == METADATA else self.versions(version)
                answer = struct.pack(">i", correlation) + told
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def versions(self, version: int) -> bytes:
        """It knows the first version of this question only, and the second of the other."""
        refused = 35 if version else 0
        return struct.pack(">hi6h", refused, 2, API_VERSIONS, 0, 0, METADATA, 0, 1)

    def metadata(self) -> bytes:
        listed = self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]
        brokers = [(0, self.port)] * listed + [(1, 1)] * (not self.leads)
        host = HOST.encode()
        answer = struct.pack(">i", len(brokers))
        for node, port in brokers:
            answer += struct.pack(f">ih{len(host)}sih", node, len(host), host, port, -1)
        topics = struct.pack(">ihh1s?i", 1, 0, 1, b"t", False, 0) if listed else b"\0" * 4
        return answer + struct.pack(">i", int(not self.leads)) + topics


@contextmanager
def started(*listed: bool) -> Iterator[StartingBroker]:
    broker = StartingBroker(*listed)
    Thread(target=broker.accept, daemon=True).start()
    try:
        yield broker
    finally:
        broker.server.close()


def test_a_broker_that_lists_no_brokers_yet_is_asked_again_until_it_does() -> None:
    with started(False, False, True) as broker:
        Connection(broker.settings)


def test_a_broker_that_never_lists_any_is_no_answer() -> None:
    with started(True, False) as broker, pytest.raises(ClusterError, match="no broker answers"):
        Connection(broker.settings, reach_s=0.5)


def test_a_question_for_a_broker_that_was_lost_goes_to_another_one() -> None:
    with started(True) as broker:
        broker.leads = False
        connection = Connection(broker.settings)
        answer = connection.admin.describe_topics(TopicCollection(["t"]))["t"]
        assert not wait([answer], 0.5).done
        broker.leads = True
        assert connection.wait_for("topic 't'", answer).name == "t"


MISMATCH_S = 0.5
ALERT = bytes.fromhex("15030300020228")
HELLO = b"\x16"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MISMATCH_S", MISMATCH_S)


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
        assert responds(f"{HOST}:{peer.port}") == says
        assert responds(f" PLAINTEXT://{HOST}:{peer.port}") == says
    assert not responds(f"{HOST}:1")
    assert not responds("[::1]:1")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", [Proxy, Resetting])
def test_a_proxy_whose_broker_is_still_to_come_is_waited_for(kind: type[Proxy]) -> None:
    proxy = kind(True)
    comes = Timer(5 * MISMATCH_S, setattr, (proxy, "there", True))
    comes.start()
    with listening(proxy) as settings:
        Connection(settings, reach_s=30.0)
    assert proxy.there


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_proxy_whose_broker_never_comes_is_no_answer(protocol: str) -> None:
    with (
        listening(Proxy(True), security_protocol=protocol) as settings,
        pytest.raises(SilentClusterError, match=r"within 2 s \(.*; start it"),
    ):
        Connection(settings, reach_s=2.0)


@pytest.mark.usefixtures("impatient")
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


def test_a_group_or_transaction_without_a_coordinator_is_told_from_a_fault() -> None:
    with started(True) as broker:
        connection = Connection(broker.settings)
        error = KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
        failure = connection.failure("group 'g'", error)
    assert isinstance(failure, MovingLeaderError)
    assert "group 'g' has no coordinator" in str(failure)
