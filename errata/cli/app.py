"""What all commands share: how they are declared, and the network that they work on.

Exit status: 0 only on success; 1 an error that the message explains; 2 wrong usage; 70 an internal
error of Errata; 130 after Ctrl-C; 141 if the reader of the output stopped reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from errata.run.exit_status import reported

if TYPE_CHECKING:
    from errata.deploy.deployment import DeployedNetwork
    from errata.processors.declare.network import Network

_STYLE: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(name="errata", no_args_is_help=True, **_STYLE)

NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="NET",
        help="The network: module:name, file.py:name, or file.py if it has one network only.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs, not a table.")]
TextOption = Annotated[
    bool, typer.Option("--text", help="The text for people, also where output is not a terminal.")
]


DEFAULT = "list"
"""The command of a group that runs when none is named."""


class _GroupWithDefault(TyperGroup):
    """A group whose command `DEFAULT` runs if the first word is not a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


def group(name: str, *, about: str, has_default: bool = True) -> typer.Typer:
    """Return a new group of commands.

    Args:
        name: Its name.
        about: Its help.
        has_default: Whether the command `DEFAULT` may be left out.
    """
    kind = _GroupWithDefault if has_default else TyperGroup
    subcommands = typer.Typer(
        name=name, cls=kind, help=prose(about), no_args_is_help=True, **_STYLE
    )
    app.add_typer(subcommands)
    return subcommands


def command(
    name: str, *, example: str, of: typer.Typer = app
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a function as a command; its docstring is the help, its errors end as listed above.

    Args:
        name: Its name.
        example: An example command line; it ends the help.
        of: The group that it belongs to.
    """

    def declare(body: Callable[..., None]) -> Callable[..., None]:
        @wraps(body)
        def run(*args: Any, **options: Any) -> None:
            with reported(f"errata {name}"):
                body(*args, **options)

        help_ = prose(body.__doc__)
        of.command(name, help=help_, epilog=f"Example: [bold]{example}[/bold]")(run)
        return body

    return declare


def prose(docstring: str | None) -> str:
    """Return a docstring with one line for each paragraph; the terminal wraps them."""
    return "\n\n".join(" ".join(p.split()) for p in (docstring or "").split("\n\n"))


@contextmanager
def deployed(net: str) -> Iterator[DeployedNetwork]:
    """Open the cluster that a network runs on, and compile the network's plan.

    Raises:
        NotDeployedError: If it doesn't run there.
        PlanMismatchError: If another network of that name runs there.
    """
    from errata.deploy.deployment import as_it_runs

    with as_it_runs(open_deployment(net), start=f"errata up {net}") as deployment:
        yield deployment


@contextmanager
def opened(net: str) -> Iterator[DeployedNetwork]:
    """Open the cluster that the settings name with a network's plan, whether or not it runs."""
    deployment = open_deployment(net)
    try:
        yield deployment
    finally:
        deployment.cluster.close()


def open_deployment(net: str) -> DeployedNetwork:
    """Return a network on the cluster that the settings name, whether or not it runs there."""
    from errata.deploy.deployment import open_network
    from errata.settings.loading import load
    from errata.settings.place import read_settings

    return open_network(load(net), read_settings())


def moment_ms(text: str, *, hint: str) -> int:
    """Return an ISO time in ms since 1970; without a zone it is UTC.

    Args:
        text: The time.
        hint: The option that it is given with, for the message.

    Raises:
        BadParameter: If it is none.
    """
    from errata.client import reading

    try:
        return reading.moment_ms(text)
    except ValueError as error:
        need = f"{text!r} needs the form 2026-07-15T09:30:00Z"
        raise typer.BadParameter(need, param_hint=hint) from error


def _completing(names: Callable[[Network], Iterable[str]]) -> Callable[..., list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from errata.settings.loading import load

        try:
            candidates = names(load(str(context.params.get("net"))))
        except BaseException:  # noqa: BLE001  a file that can't be loaded completes nothing
            return []
        return [name for name in candidates if name.startswith(incomplete)]

    return complete


arc_names = _completing(lambda network: network.declarations)
"""Completes the name of an arc of the network NET."""


def _sources(network: Network) -> list[str]:
    from errata.processors.declare.declarations import Source

    return [name for name, each in network.declarations.items() if isinstance(each, Source)]


source_names = _completing(_sources)
"""Completes the name of a source of the network NET."""
