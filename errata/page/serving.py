"""Runs the page's server until it is told to end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable

import uvicorn

from errata.deploy.deployment import DeployedNetwork
from errata.page.desk import Desk
from errata.page.guard import hosts_of
from errata.page.live import Live
from errata.page.server import Page, watching
from errata.schemas.errors import ErrataError

_TURN_S = 0.1
_GRACE_S = 2
_EVERYWHERE = {"0.0.0.0", "::"}


class ListenError(ErrataError):
    """The page can't listen on its address."""


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        ListenError: If it can't.
    """
    found = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(found[0], socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
    except OSError as error:
        raise ListenError(
            f"the page can't listen on {host}, port {port}: {error.strerror}; give another one "
            "with --host and --port (0: a free one)"
        ) from error
    return listening


def serve(
    listening: socket.socket,
    deployments: tuple[DeployedNetwork, DeployedNetwork, DeployedNetwork],
    *,
    host: str,
    token: str,
    allow_writes: bool,
    since_ms: int,
    stop: Callable[[], bool],
    ready: Callable[[str], None],
) -> None:
    """Serve the page until `stop` returns true.

    Args:
        listening: A bound socket.
        deployments: Three connections to the network: to watch it, to answer what is quick, and
            what may take long.
        host: The address, as it was given.
        token: The token that each request needs; "": none.
        allow_writes: Whether requests may write.
        since_ms: Show corrections of epochs after this time, in ms since 1970.
        stop: Returns whether to end.
        ready: Called with the page's address once it answers.

    Raises:
        NewVersionError: If another version of the network's plan is deployed.
    """
    watched, tables, reasons = deployments
    live = Live(watched, since_ms=since_ms)
    page = Page(live, tables=Desk(tables), reasons=Desk(reasons), allow_writes=allow_writes)
    config = uvicorn.Config(
        page.app(hosts=hosts_of(host), token=token),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
    )
    # What the application raises it tells itself; connections that break off are nobody's concern.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    server = uvicorn.Server(config)
    # In a thread of its own it leaves signals to the main thread.
    serving = threading.Thread(target=server.run, args=([listening],), name="serve", daemon=True)
    threads = watching(live), serving
    serving.start()
    is_told = False
    while not stop() and live.failure is None and serving.is_alive():
        if server.started and not is_told:
            is_told = True
            at, port = listening.getsockname()[:2]
            shown = "localhost" if at in _EVERYWHERE else f"[{at}]" if ":" in at else at
            ready(f"http://{shown}:{port}/")
        time.sleep(_TURN_S)
    live.end()
    server.should_exit = True
    for thread in threads:
        thread.join()
    if live.failure is not None:
        raise live.failure
