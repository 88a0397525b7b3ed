"""Reaching a cluster that has not started yet, or has just lost a broker."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from confluent_kafka import TopicCollection

from errata.topics.client import Connection
from errata.topics.cluster import ClusterError

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
        assert connection.ask("topic 't'", answer).name == "t"
