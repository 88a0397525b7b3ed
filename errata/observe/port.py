"""The HTTP port of a process: `/healthz`, `/readyz` and `/metrics`, for probes and Prometheus."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, PROCESS_COLLECTOR

from errata.observe.process_metrics import process_metrics
from errata.observe.pulse import Pulse
from errata.observe.samples import Samples, text_of
from errata.schemas.errors import ErrataError

log = logging.getLogger("errata")

Address = tuple[str, int]
Answer = tuple[int, str, str]
"""Status, media type and content."""

_TEXT = "text/plain; charset=utf-8"
_PATIENCE_S = 5.0


class PortError(ErrataError):
    """The process can't listen on the address."""


def told_of(pulse: Pulse, path: str) -> Answer:
    """Return the response of a process to a request path."""
    if path == "/healthz":
        stuck = pulse.stuck()
        return (503, _TEXT, f"{stuck}\n") if stuck else (200, _TEXT, f"ok: {pulse.doing}\n")
    if path == "/readyz":
        return ready(pulse.not_ready())
    if path == "/metrics":
        return metrics_of(pulse, pulse.metrics)
    return 404, _TEXT, "there are /healthz, /readyz and /metrics\n"


def metrics_of(pulse: Pulse, work: Samples) -> Answer:
    """Return the metrics of a process's work and of the process itself."""
    text = text_of(work, process_metrics(pulse), PROCESS_COLLECTOR)
    return 200, CONTENT_TYPE_PLAIN_0_0_4, text


def ready(waits: Sequence[str]) -> Answer:
    """Return the `/readyz` response for a list of reasons to wait; empty means ready."""
    return (503, _TEXT, "".join(f"{why}\n" for why in waits)) if waits else (200, _TEXT, "ready\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: Callable[[str], Answer]

    def handle_error(self, request: object, client_address: object) -> None:
        """Log clients that disconnected at debug level only."""
        log.debug("a client of the port went away", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = _PATIENCE_S
    server: _Server
    server_version, sys_version = "errata", ""

    def do_GET(self) -> None:
        status, kind, text = self.server.answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes come every few seconds."""


@contextmanager
def listening(address: Address | None, answer: Callable[[str], Answer]) -> Iterator[Address | None]:
    """Serve HTTP at an address for as long as the block runs.

    Args:
        address: Host and port; port 0 picks a free one, which is logged. None: no port is opened.
        answer: Returns the response for a path; runs in the server's threads.

    Yields:
        The address that it listens on.

    Raises:
        PortError: If it can't listen there.
    """
    if address is None:
        yield None
        return
    host, port = address
    try:
        server = (_Server6 if ":" in host else _Server)((host, port), _Handler)
    except (OSError, OverflowError) as error:
        told = getattr(error, "strerror", None) or error
        raise PortError(
            f"http.listen needs an address to listen on, found {host}:{port}: {told}; give "
            "another, or none"
        ) from error
    server.answer = answer
    bound: Address = (host, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, name="port", daemon=True)
    thread.start()
    log.log(
        logging.INFO if port else logging.WARNING,
        "/healthz, /readyz and /metrics are at http://%s:%d",
        f"[{host}]" if ":" in host else host or "0.0.0.0",
        bound[1],
    )
    try:
        yield bound
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def told(address: Address | None) -> Iterator[Pulse]:
    """Yield the pulse of a process, served at an address for as long as the block runs."""
    pulse = Pulse(watched=address is not None)
    with listening(address, lambda path: told_of(pulse, path)):
        yield pulse
