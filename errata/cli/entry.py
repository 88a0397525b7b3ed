"""The command `errata`: all commands together."""

from __future__ import annotations

import ast
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

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


def declare(words: Sequence[str] | None = None) -> None:
    """Import the commands that a command line needs: the one that it names, or else all.

    Args:
        words: The command line; without a command, all are declared, but only to be listed. None:
            all are imported.
    """
    named = None
    if words is not None and _COMPLETING not in os.environ:
        if not _MODULES.keys() & {*words}:
            return _declare_to_be_listed()
        named = _MODULES.get(words[0])
    for module in dict.fromkeys(_MODULES.values() if named is None else [named]):
        importlib.import_module(f"errata.cli.{module}")
    order = list(_MODULES)  # a command may import others before their turn
    app.registered_commands.sort(key=lambda each: order.index(str(each.name)))
    groups = {str(each.typer_instance.info.name): each for each in app.registered_groups
              if each.typer_instance is not None}  # fmt: skip
    app.registered_groups = [groups[name] for name in order if name in groups]


def _declare_to_be_listed() -> None:
    """Declare all commands with their names and help, which are read from their modules' source.

    To import them all would take a second.
    """
    found = dict[str, str]()
    for module in dict.fromkeys(_MODULES.values()):
        for node in ast.parse((Path(__file__).parent / f"{module}.py").read_text()).body:
            match node:
                case ast.FunctionDef(decorator_list=[ast.Call(ast.Name("command"), [word], more)]):
                    about: Any = ast.get_docstring(node)
                case ast.Assign(value=ast.Call(ast.Name("group"), [word], more)):
                    about = next(ast.literal_eval(o.value) for o in more if o.arg == "about")
                case _:
                    continue
            if all(option.arg != "of" for option in more):
                found[ast.literal_eval(word)] = about
    for name in _MODULES:
        app.command(name, help=prose(found[name]))(lambda: None)


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
