"""Reaching a cluster: a broker that has just started answers, but lists no brokers yet."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from topics.client import Connection
from topics.cluster import ClusterError

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
        host = HOST.encode()
        own = (
            struct.pack(f">ih{len(host)}sih", 0, len(host), host, self.port, -1) if listed else b""
        )
        return struct.pack(">i", int(listed)) + own + struct.pack(">ii", 0, 0)


@contextmanager
def started(*listed: bool) -> Iterator[dict[str, str | int]]:
    broker = StartingBroker(*listed)
    Thread(target=broker.accept, daemon=True).start()
    try:
        yield {"bootstrap.servers": f"{HOST}:{broker.port}", "reconnect.backoff.ms": 10}
    finally:
        broker.server.close()


def test_a_broker_that_lists_no_brokers_yet_is_asked_again_until_it_does() -> None:
    with started(False, False, True) as settings:
        Connection(settings)


def test_a_broker_that_never_lists_any_is_no_answer() -> None:
    with started(True, False) as settings, pytest.raises(ClusterError, match="no broker answers"):
        Connection(settings, reach_s=0.5)
