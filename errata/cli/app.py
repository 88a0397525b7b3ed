"""The declaration of commands, and their exit status.

Exit status: 0 only on success; 1 an error that the message explains; 2 wrong usage; 70 an internal
error of Errata; 130 after Ctrl-C; 141 if the reader of the output stopped reading.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from errata.run.exit_status import reported

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


DEFAULT = "list"
"""The command of a group that runs when none is named."""


class _GroupWithDefault(TyperGroup):
    """A group in which `DEFAULT` may be left out: a word that is no command is its argument."""

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
    made = typer.Typer(name=name, cls=kind, help=prose(about), no_args_is_help=True, **_STYLE)
    app.add_typer(made)
    return made


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
