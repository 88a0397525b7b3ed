"""The commands to begin with: `errata demo` shows a network at work, `errata init` writes one."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from errata.cli.app import JsonOption, command
from errata.cli.output import print_lines
from errata.schemas.errors import ErrataError

_TEMPLATE = ".txt"
_FALLBACK = "prices"


@command("demo", example="errata demo --fast")
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Play the tape in seconds.")] = False,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With bars of a day on Spark, or without.")
    ] = True,
    ui: Annotated[bool, typer.Option("--ui/--no-ui", help="Serve its page, or do not.")] = True,
) -> None:
    r"""Play a real tape of trades on an embedded Kafka, with corrections, and audit the results.

    Aggregates run in both modes. A page shows it in the browser; on a terminal it stays until
    Ctrl-C. Needs the extras errata-streams\[broker,spark]; the first run downloads Kafka's jars.
    All processes end with the command.
    """
    from errata.demo.run import main

    raise typer.Exit(main(fast=fast, spark=spark, ui=ui) or 0)


class OverwriteError(ErrataError):
    """A file to be written already exists."""


@command("init", example="errata init shares")
def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[DIR]", help="The folder; it is created if it does not exist."),
    ] = Path("."),
    as_json: JsonOption = False,
) -> None:
    """Write a project that runs: a network, sample input, settings, a test and a README.

    The network gets the folder's name. Nothing is overwritten: if one of the files exists, none is
    written.
    """
    name = network_name(folder.resolve().name)
    texts = {
        folder / file: Template(text).substitute(name=name) for file, text in templates().items()
    }
    existing = [str(path) for path in texts if path.exists()]
    if existing:
        raise OverwriteError(
            f"{', '.join(existing)} would be overwritten; name another folder, or move it away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    if as_json:
        print_lines([{"network": name, "files": [str(path) for path in texts]}])
        return
    typer.echo(f"wrote {', '.join(str(path) for path in texts)}")
    change_folder = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    typer.echo(
        f"try: {change_folder}errata dev network.py    (with a Kafka of its own, and a page); or "
        "errata local network.py --input prices=prices.jsonl --table minutes"
    )


def templates() -> dict[str, str]:
    """Return the project's files by name."""
    entries = files("errata").joinpath("init").iterdir()
    texts = {entry.name: entry.read_text("utf-8") for entry in entries if entry.is_file()}
    return {
        name.removesuffix(_TEMPLATE): text
        for name, text in sorted(texts.items())
        if name.endswith(_TEMPLATE)
    }


def network_name(folder: str) -> str:
    """Return a network's name made from the name of a folder.

    Example:
        >>> network_name("my shares (2)"), network_name("2"), network_name("..")
        ('my-shares-2', '2', 'prices')
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", folder).strip("-_") or _FALLBACK
