"""The command `errata`: all commands together."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.app import app, prose
from errata.run.exit_status import reported
from errata.schemas.errors import ErrataError
from errata.settings import logs
from errata.settings.place import read_log_settings
from errata.version import VERSION

_MODULES = {
    "demo": "start",
    "init": "start",
    "infer": "infer",
    "dev": "dev",
    "broker": "broker",
    "local": "local",
    "feed": "feed",
    "study": "study",
    "advise": "advise",
    "explain": "explain",
    "acls": "acls",
    "plan": "plan",
    "schemas": "plan",
    "deploy": "deploy",
    "render": "render",
    "backfill": "backfill",
    "connection-point": "connection_point",
    "up": "run",
    "run": "run",
    "sweep": "run",
    "spark": "spark",
    "status": "status",
    "dashboard": "dashboard",
    "tail": "tail",
    "print": "print",
    "revise": "revise",
    "why": "why",
    "reconcile": "reconcile",
    "end": "end",
    "watermark": "watermark",
    "settle": "settle",
    "dead-letters": "dead_letters",
    "reset": "reset",
}
"""By command, in the order of the help: the module that declares it."""
_COMPLETING = "_ERRATA_COMPLETE"
"""A variable that is set when a shell asks for completions."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"errata {VERSION}")
        raise typer.Exit


_HELP = """Streams that stay right after the fact.

    A network of boxes over Kafka topics, in which every result that a correction invalidates is
    revised, however old it is. Begin with [bold]errata demo[/bold], or, without Kafka, with
    [bold]errata init[/bold] and [bold]errata local[/bold].

    Settings: errata.toml, KAFKA_BOOTSTRAP_SERVERS, SCHEMA_REGISTRY_URL, ERRATA_STATE, and
    ERRATA_KAFKA__SASL_PASSWORD for sasl.password and so on (with _FILE: a file that holds it).
    Exit status 0 only on success.
"""


@app.callback(help=prose(_HELP))
def _errata(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of `errata` itself."""


def declare(words: Sequence[str] = ()) -> None:
    """Import the commands that a command line needs: the one that it names, or else all."""
    named = _MODULES.get(words[0]) if words and _COMPLETING not in os.environ else None
    if list(words) == ["--version"]:
        return
    for module in dict.fromkeys(_MODULES.values() if named is None else [named]):
        importlib.import_module(f"errata.cli.{module}")
    order = list(_MODULES)  # a command may import others before their turn
    app.registered_commands.sort(key=lambda each: order.index(str(each.name)))
    groups = {str(each.typer_instance.info.name): each for each in app.registered_groups
              if each.typer_instance is not None}  # fmt: skip
    app.registered_groups = [groups[name] for name in order if name in groups]


def main() -> None:
    """Run the command line."""
    logs.set_up()
    with suppress(ErrataError):  # a command that needs settings reports the error
        logs.set_up(*read_log_settings(os.environ, folder=Path.cwd()))
    with reported("errata"):
        declare(sys.argv[1:])
        # Polars, which the commands have loaded, has a signal handler that restarts interrupted
        # reads; Ctrl-C must end a read from a silent pipe.
        signal.siginterrupt(signal.SIGINT, True)
        app(prog_name="errata")
