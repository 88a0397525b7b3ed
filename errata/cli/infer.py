"""`errata infer`: proposes a source for a file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from errata.cli.app import JsonOption, command
from errata.cli.output import print_lines
from errata.client.infer import infer
from errata.run.exit_status import complain


@command("infer", example="errata infer trades.csv > network.py")
def infer_(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="CSV with a header, or JSON lines; gzipped or not."),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the source; by default the file's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Propose a source for a file: a network's file to begin with.

    The types are those that hold all of the first 10,000 rows. The identity is a field that no two
    rows share, or the one whose name says so. The event time is the first field that looks like
    one, with its unit: whole numbers may count seconds, milliseconds, microseconds, nanoseconds.

    With the file beside it, under the source's name, `errata dev` runs it.
    """
    proposal = infer(file, name=name)
    if as_json:
        print_lines([asdict(proposal)])
        return
    typer.echo(proposal.code(), nl=False)
    if not proposal.identity or not proposal.event_time:
        complain("look at the notes: identity and event time are to be named")
