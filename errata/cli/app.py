"""What all commands share: how they are declared, and how they end.

Exit status: 0 only on success; 1 a fault that the message explains; 2 wrong usage; 70 a fault of
Errata's own; 130 after Ctrl-C; 141 if whoever reads the output stopped reading.
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
"""The command of a group that is meant when none is named."""


class _GroupWithDefault(TyperGroup):
    """A group in which `DEFAULT` may be left out: what is no command is its argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


def group(name: str, *, about: str, has_default: bool = True) -> typer.Typer:
    """Return a new group of commands.

    Args:
        name: Its name.
        about: Its help.
        has_default: Whether the command named `DEFAULT` need not be named.
    """
    kind = _GroupWithDefault if has_default else TyperGroup
    made = typer.Typer(name=name, cls=kind, help=prose(about), no_args_is_help=True, **_STYLE)
    app.add_typer(made)
    return made


def command(
    name: str, *, example: str, of: typer.Typer = app
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a function as a command; its docstring is the help, its faults end as told above.

    Args:
        name: Its name.
        example: A command line that shows it; the last lines of its help.
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
    """Return a docstring with a line a paragraph: the terminal's width decides where they break."""
    return "\n\n".join(" ".join(p.split()) for p in (docstring or "").split("\n\n"))
