"""The state of a process, and the HTTP port that shows it: `/healthz`, `/readyz` and `/metrics`.

The main loop writes the state (`Pulse`) and the port's threads read it, so each field is set by one
assignment.
"""

from __future__ import annotations

import logging
import platform
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import ClassVar

from confluent_kafka import libversion
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, PROCESS_COLLECTOR

from errata.observe.metric_catalogue import COUNTER, GAUGE, Metric, Samples, text_of
from errata.schemas.errors import ErrataError
from errata.version import VERSION

log = logging.getLogger("errata")

STUCK_S = 120.0
"""A step that takes longer is stuck. The longest regular step waits a minute for brokers."""
REFRESH_S = 1.0
"""Interval at which a process with a port refreshes its state."""
_TEXT = "text/plain; charset=utf-8"
_TIMEOUT_S = 5.0

Address = tuple[str, int]
Response = tuple[int, str, str]
"""Status, media type and content."""


class PortError(ErrataError):
    """The process can't listen on the address."""


class Pulse:
    """The state of one process, as its port shows it.

    Args:
        watched: Whether a port serves it.
    """

    def __init__(self, *, watched: bool = False) -> None:
        self.watched = watched
        self.doing = "starting"
        """The current step of the loop."""
        self.turned_s: float | None = None
        """When the loop last turned; None before the first time."""
        self.wait_reasons: Sequence[str] = ("it is starting",)
        """Why the process is not ready; empty if it is."""
        self.metrics = Samples()
        """Metrics of the process's work."""
        self._refreshed_s = float("-inf")

    def turn(self) -> bool:
        """Record that the loop turns; return whether it is time to call `update`."""
        self.turned_s = now = monotonic()
        if not self.watched or now - self._refreshed_s < REFRESH_S:
            return False
        self._refreshed_s = now
        return True

    def update(self, wait_reasons: Sequence[str], metrics: Samples) -> None:
        """Store why the process is not ready, and its metrics."""
        self.wait_reasons, self.metrics = wait_reasons, metrics

    def stopping(self) -> None:
        """Record that the process is about to end."""
        self.doing, self.wait_reasons = "stopping", ("it is stopping",)

    @property
    def age_s(self) -> float:
        """Seconds since the loop last turned; 0 before the first time."""
        return 0.0 if self.turned_s is None else monotonic() - self.turned_s

    def stuck(self) -> str:
        """Return the step that the loop is stuck at; "" if the loop turns."""
        age_s = self.age_s
        if age_s <= STUCK_S:
            return ""
        return f"its loop has not turned for {age_s:.0f} s: {self.doing}"

    def not_ready(self) -> Sequence[str]:
        """Return why the process can't do its work now; empty if it can."""
        if self.turned_s is not None and self.age_s > 5 * REFRESH_S:
            return (
                *self.wait_reasons,
                f"its loop has not turned for {self.age_s:.0f} s: {self.doing}",
            )
        return self.wait_reasons


BUILD = Metric(
    "errata_build_info",
    GAUGE,
    ("version", "python", "librdkafka"),
    "Always 1; its labels are the versions.",
)
READY = Metric("errata_ready", GAUGE, (), "1 if the process is ready (`/readyz`), else 0.")
TURN_AGE = Metric(
    "errata_turn_age_seconds", GAUGE, (), "Time since the main loop last turned; far below 1 s."
)

PROCESS_METRICS = (BUILD, READY, TURN_AGE)
LIBRARY_METRICS = (
    Metric(
        "process_cpu_seconds_total", COUNTER, (), "Total user and system CPU time spent in seconds."
    ),
    Metric(
        "process_start_time_seconds",
        GAUGE,
        (),
        "Start time of the process since unix epoch in seconds.",
    ),
    Metric("process_resident_memory_bytes", GAUGE, (), "Resident memory size in bytes."),
    Metric("process_virtual_memory_bytes", GAUGE, (), "Virtual memory size in bytes."),
    Metric("process_open_fds", GAUGE, (), "Number of open file descriptors."),
    Metric("process_max_fds", GAUGE, (), "Maximum number of open file descriptors."),
)
"""Metrics that Prometheus' client library adds on Linux; listed here for the page of metrics."""


def process_metrics(pulse: Pulse) -> Samples:
    """Return the current metrics of this process, without those of the client library."""
    samples = Samples()
    samples.add(BUILD, 1, VERSION, platform.python_version(), libversion()[0])
    samples.add(READY, int(not pulse.not_ready()))
    samples.add(TURN_AGE, pulse.age_s)
    return samples


def respond(pulse: Pulse, path: str) -> Response:
    """Return the response of a process to a request path."""
    if path == "/healthz":
        stuck = pulse.stuck()
        return (503, _TEXT, f"{stuck}\n") if stuck else (200, _TEXT, f"ok: {pulse.doing}\n")
    if path == "/readyz":
        return ready(pulse.not_ready())
    if path == "/metrics":
        return metrics_of(pulse, pulse.metrics)
    return 404, _TEXT, "no such path; the port has /healthz, /readyz and /metrics\n"


def metrics_of(pulse: Pulse, work: Samples) -> Response:
    """Return the metrics of a process's work and of the process itself."""
    text = text_of(work, process_metrics(pulse), PROCESS_COLLECTOR)
    return 200, CONTENT_TYPE_PLAIN_0_0_4, text


def ready(reasons: Sequence[str]) -> Response:
    """Return the `/readyz` response for a list of reasons to wait; empty means ready."""
    if not reasons:
        return 200, _TEXT, "ready\n"
    return 503, _TEXT, "".join(f"{reason}\n" for reason in reasons)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: Callable[[str], Response]

    def handle_error(self, request: object, client_address: object) -> None:
        """Log clients that disconnected at debug level only."""
        log.debug("a client of the port went away", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = _TIMEOUT_S
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
def listening(
    address: Address | None, answer: Callable[[str], Response]
) -> Iterator[Address | None]:
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
        reason = getattr(error, "strerror", None) or error
        raise PortError(
            f"http.listen needs an address to listen on, found {host}:{port}: {reason}; give "
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
def serving(address: Address | None) -> Iterator[Pulse]:
    """Yield the pulse of a process, served at an address for as long as the block runs."""
    pulse = Pulse(watched=address is not None)
    with listening(address, lambda path: respond(pulse, path)):
        yield pulse
