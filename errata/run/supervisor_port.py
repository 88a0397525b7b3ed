"""The ports of `errata up`: its own, and one for each of its processes."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from errata.observe.metric_catalogue import COUNTER, GAUGE, Metric, Samples
from errata.observe.port import Address, PortError, Pulse, Response, metrics_of, ready, respond
from errata.run.supervisor import Supervisor

RUNNING = Metric("errata_process_running", GAUGE, ("process",), "1 if the process runs, else 0.")
RESTARTS = Metric(
    "errata_process_restarts_total",
    COUNTER,
    ("process",),
    "How often it was restarted.",
    since_start=True,
)
UP_METRICS = (RUNNING, RESTARTS)

_REQUEST_TIMEOUT_S = 1.0
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def ports_after(first: Address | None, names: Collection[str]) -> dict[str, Address]:
    """Return an address for each process: the ports after the first, or free ones if that is 0.

    Raises:
        PortError: If there are not enough ports.
    """
    if first is None:
        return {}
    host, port = first
    if port + len(names) > 65_535:
        raise PortError(
            f"http.listen needs {len(names)} ports after {port}, one a process; give a lower port"
        )
    numbers = range(port + 1, port + 1 + len(names)) if port else _free(host, len(names))
    return {name: (host, number) for name, number in zip(names, numbers, strict=True)}


def _free(host: str, count: int) -> list[int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def shown(address: Address) -> str:
    """Return an address as text."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class UpPort:
    """Serves the port of a supervisor.

    Args:
        pulse: The pulse of the supervisor.
        supervisor: The supervisor.
        ports: The addresses of its processes.
    """

    def __init__(self, pulse: Pulse, supervisor: Supervisor, ports: Mapping[str, Address]) -> None:
        self.pulse, self.supervisor, self.ports = pulse, supervisor, ports

    def answer(self, path: str) -> Response:
        """Return the response for a path; the supervisor is ready when all of its processes are."""
        if path == "/readyz":
            return ready([*self.pulse.not_ready(), *self._wait_reasons()])
        if path == "/metrics":
            return metrics_of(self.pulse, self._metrics())
        return respond(self.pulse, path)

    def _metrics(self) -> Samples:
        samples, running = Samples(), self.supervisor.pids
        for name, count in self.supervisor.restarts.items():
            samples.add(RUNNING, int(name in running), name)
            samples.add(RESTARTS, count, name)
        return samples

    def _wait_reasons(self) -> Iterator[str]:
        running = self.supervisor.pids
        with ThreadPoolExecutor(max_workers=8) as pool:
            responses = pool.map(_wait_reasons_of, self.ports.values())
            for name, lines in zip(self.ports, list(responses), strict=True):
                if name not in running:
                    yield f"{name}: does not run"
                else:
                    yield from (f"{name}: {line}" for line in lines)


def _wait_reasons_of(address: Address) -> list[str]:
    """Return why a process is not ready; empty if it is."""
    host, port = address
    url = f"http://{shown((_EVERYWHERE.get(host, host), port))}/readyz"
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=_REQUEST_TIMEOUT_S):
            return []
    except HTTPError as error:
        with error:
            return error.read().decode(errors="replace").splitlines()
    except OSError:
        return ["does not respond yet"]
