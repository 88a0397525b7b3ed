"""The command `errata`: all commands together."""

from __future__ import annotations

import importlib
import os
import signal
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

_COMMANDS = (
    "start",
    "broker",
    "local",
    "study",
    "advise",
    "explain",
    "acls",
    "plan",
    "deploy",
    "render",
    "backfill",
    "connection_point",
    "run",
    "spark",
    "status",
    "dashboard",
    "tail",
    "print",
    "revise",
    "why",
    "reconcile",
    "end",
    "watermark",
    "settle",
    "dead_letters",
    "reset",
)


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


for _name in _COMMANDS:
    importlib.import_module(f"errata.cli.{_name}")


def main() -> None:
    """Run the command line."""
    # Polars' signal handler restarts interrupted reads; Ctrl-C must end a read from a silent pipe.
    signal.siginterrupt(signal.SIGINT, True)
    logs.set_up()
    with suppress(ErrataError):  # a command that needs settings reports the error
        logs.set_up(*read_log_settings(os.environ, folder=Path.cwd()))
    with reported("errata"):
        app(prog_name="errata")
