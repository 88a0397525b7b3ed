"""`errata reset`: removes a network, so that it can start again from the beginning."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.output import for_people, print_lines, print_table
from errata.deploy.reset import Remains, delete_remains, remains
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.settings.place import read_settings
from errata.topics.kafka import KafkaCluster

_WARNING = (
    "All history, results and dead letters in these topics are lost. A new start creates them "
    "again from the records that the sources' topics still hold, and writes all results to the "
    "sinks again. State folders on other machines are not deleted."
)


class StillRunningError(ErrataError):
    """Processes of a network that is to be removed still run."""


class NotConfirmedError(ErrataError):
    """The user has not confirmed that a network is to be removed."""


@command("reset", example="errata reset tape.py --dry-run")
def reset(
    net: NetworkArgument,
    yes: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The network's name; confirms without a prompt."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    sinks: Annotated[
        bool, typer.Option("--sinks", help="Delete the topics of its sinks, too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Continue even if its processes seem to run.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a network: delete its own topics, its consumer groups and its state on this machine.

    End its processes first. Sources' topics are never deleted, and schemas are kept. `errata
    deploy` and `run` then start from the sources' beginning. If this is interrupted, run it again.
    """
    network, place = load(net), read_settings()
    cluster = KafkaCluster(place.kafka)
    try:
        remaining = remains(network, place, cluster, sinks=sinks)
    finally:
        cluster.close()
    people = for_people() and not as_json
    if people:
        _show(remaining)
    else:
        print_lines([vars(remaining) | {"folder": remaining.folder and str(remaining.folder)}])
    if dry_run or remaining.is_empty:
        return
    if remaining.running and not force:
        raise StillRunningError(
            f"processes of network {remaining.network!r} run ({'; '.join(remaining.running)}); end "
            "them first, or give --force if they have ended"
        )
    _confirm(remaining.network, yes)
    for done in delete_remains(remaining, place):
        typer.echo(done, err=True)


def _show(remaining: Remains) -> None:
    rows = [("topic", topic) for topic in remaining.topics]
    rows += [("consumer group", group) for group in remaining.groups]
    rows += [("state folder", str(remaining.folder))] if remaining.folder else []
    if not rows:
        Console().print(f"nothing is left of network {remaining.network!r}", markup=False)
        return
    print_table(f"{remaining.network}: this would be deleted", ["", "name"], rows, caption=_WARNING)


def _confirm(name: str, typed: str | None) -> None:
    """Check that the user has typed the network's name.

    Raises:
        NotConfirmedError: If they have not.
    """
    if typed is None:
        if not sys.stdin.isatty():
            raise NotConfirmedError(
                f"nothing is deleted: give --yes {name}, or run it on a terminal"
            )
        typed = typer.prompt("Type the network's name to delete all of this", default="")
    if typed != name:
        raise NotConfirmedError(f"nothing is deleted; needs the name {name!r}, found {typed!r}")
