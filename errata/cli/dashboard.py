"""`errata dashboard`: the page of a network, for a browser."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.app import NetworkArgument, command, deployed
from errata.page import PORT
from errata.run.stopping import Stop
from errata.schemas.errors import ErrataError

_MINUTE_MS = 60_000


class TokenError(ErrataError):
    """The file of a token has none."""


@command("dashboard", example="errata dashboard tape.py")
def dashboard(
    net: NetworkArgument,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = PORT,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let it send dead letters again.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the token that every request needs. By default one is made, unless "
            "the address can be reached from this machine only.",
        ),
    ] = None,
    since: Annotated[
        int, typer.Option(metavar="MINUTES", min=0, help="Show corrections of the last minutes.")
    ] = 10,
) -> None:
    """Show a running network in the browser, until SIGTERM (status 0) or Ctrl-C (status 130).

    The page has the graph with rates, frontiers and lag, who holds what back, corrections as they
    come, the content and the history of arcs, why a result has its values, and dead letters. It
    also answers programs: GET /arcs/ARC?key=FIELD=VALUE&as_of=EPOCH, as JSON or as Arrow.

    It reads topics only, and can be started, ended and run several times at any moment. Behind a
    proxy, give it a token file.

    Prints its address once it answers.
    """
    from errata.page.guard import is_loopback
    from errata.page.serving import bound, serve

    token = "" if is_loopback(host) and token_file is None else _token(token_file)
    with Stop() as stop, deployed(net) as live, deployed(net) as tables, deployed(net) as reasons:
        socket = bound(host, port)
        stop.running = True

        def ready(address: str) -> None:
            typer.echo(f"{address}?token={token}" if token else address)

        since_ms = time.time_ns() // 1_000_000 - since * _MINUTE_MS
        serve(
            socket,
            (live, tables, reasons),
            host=host,
            token=token,
            allow_writes=allow_writes,
            since_ms=since_ms,
            stop=stop,
            ready=ready,
        )
    raise typer.Exit(stop.status)


def _token(file: Path | None) -> str:
    """Return the token in a file, or a new one.

    Raises:
        TokenError: If the file is empty.
    """
    if file is None:
        return secrets.token_urlsafe(24)
    token = file.read_text().strip()
    if not token:
        raise TokenError(f"{str(file)!r} needs a token, and is empty")
    return token
