"""Distinguishes a broker of another protocol from a port whose broker has not started yet."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from struct import pack
from time import monotonic
from urllib.parse import urlsplit

LASTS_S = 5.0
"""A server that responds but drops all connections for so long uses another protocol, as TLS."""

_MISMATCH = re.compile(r"connecting to a |Invalid response size|SSL.* alert")
_UNREACHED = re.compile(r"Connect to|timed out|resolve")
_PROBE_S = 0.5
_PORT = 9092

_API_VERSIONS = pack(">ihhih", 10, 18, 0, 0, -1)
"""Length, API key, version, correlation id, no client id: every broker answers it, to anybody."""


class Mismatch:
    """Detects brokers that use another protocol: they close every connection.

    Others close them too: a proxy such as Docker's accepts connections before its broker runs. So a
    closed connection counts only if the server answers something, in Kafka's protocol or in TLS.

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
        """Record an error that a client reports; "" if connections close without a reason."""
        if _UNREACHED.search(trouble):
            self.told, self._spoken_since = "", None
        elif not self.told and (not trouble or _MISMATCH.search(trouble)):
            self.told = trouble or "it takes and closes them"

    def lasts(self) -> bool:
        """Return whether the mismatch has lasted too long; to be polled."""
        if not self.told or not any(map(speaks, self._servers.split(","))):
            self._spoken_since = None
            return False
        self._spoken_since = self._spoken_since or monotonic()
        return monotonic() - self._spoken_since > LASTS_S


def speaks(server: str) -> bool:
    """Return whether a server answers anything at all to a Kafka or a TLS request.

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
