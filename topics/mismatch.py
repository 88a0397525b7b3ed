"""Telling a broker that speaks another protocol from a port whose broker is still to come."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from struct import pack
from time import monotonic
from urllib.parse import urlsplit

LASTS_S = 5.0
"""Who speaks, and yet ends every connection for so long, speaks another protocol, as TLS."""

_MISMATCH = re.compile(r"connecting to a |Invalid response size|SSL.* alert")
_UNREACHED = re.compile(r"Connect to|timed out|resolve")
_PROBE_S = 0.5
_PORT = 9092

_API_VERSIONS = pack(">ihhih", 10, 18, 0, 0, -1)
"""Length, question, version, number, no client: what every broker answers, to anybody."""


class Mismatch:
    """What hints at brokers that speak another protocol: they end all connections.

    Others end them too: a proxy, as Docker's, takes connections before its broker is there. So it
    counts only while who listens says something, in Kafka's words or in TLS's.

    Args:
        servers: The `bootstrap.servers`.

    Attributes:
        told: What hints at it; "" if nothing does.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._spoken_since: float | None = None
        self.told = ""

    def hear(self, trouble: str) -> None:
        """Take note of what a client reports; "" if no connection lasts and nothing says why."""
        if _UNREACHED.search(trouble):
            self.told, self._spoken_since = "", None
        elif not self.told and (not trouble or _MISMATCH.search(trouble)):
            self.told = trouble or "it takes and closes them"

    def lasts(self) -> bool:
        """Return whether it has been so for too long; to be asked again and again."""
        if not self.told or not any(map(speaks, self._servers.split(","))):
            self._spoken_since = None
            return False
        self._spoken_since = self._spoken_since or monotonic()
        return monotonic() - self._spoken_since > LASTS_S


def speaks(server: str) -> bool:
    """Return whether a server says anything at all, when it is asked as Kafka or TLS would.

    Args:
        server: ``HOST``, ``HOST:PORT`` or ``PROTOCOL://HOST:PORT``.
    """
    place = urlsplit(f"//{server.strip().rpartition('://')[2]}")
    return any(
        _answers((place.hostname or "", place.port or _PORT), question)
        for question in (_API_VERSIONS, _client_hello())
    )


def _answers(address: tuple[str, int], question: bytes) -> bool:
    try:
        with socket.create_connection(address, _PROBE_S) as asking:
            asking.sendall(question)
            return asking.recv(1) != b""
    except OSError:
        return False


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()
