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
    "All history, results and dead letters in these topics are lost. A new start makes them again "
    "from what the sources' topics still hold, and writes all results to the sinks again. State "
    "folders of other machines are not seen from here."
)


class StillRunningError(ErrataError):
    """Processes of a network that is to be removed still run."""


class NotConfirmedError(ErrataError):
    """The user has not confirmed that a network is to be removed."""


@command("reset", example="errata reset tape.py --dry-run")
def reset(
    net: NetworkArgument,
    yes: Annotated[
        str | None, typer.Option(metavar="NAME", help="The network's name: it is not asked for.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    sinks: Annotated[
        bool, typer.Option("--sinks", help="Delete the topics of its sinks, too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on though processes of it seem to run.")
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
        found = remains(network, place, cluster, sinks=sinks)
    finally:
        cluster.close()
    people = for_people() and not as_json
    if people:
        _show(found)
    else:
        print_lines([vars(found) | {"folder": found.folder and str(found.folder)}])
    if dry_run or found.is_empty:
        return
    if found.running and not force:
        raise StillRunningError(
            f"processes of network {found.network!r} run ({'; '.join(found.running)}); end them "
            "first, or give --force if they are gone"
        )
    _confirm(found.network, yes)
    for done in delete_remains(found, place):
        typer.echo(done, err=True)


def _show(found: Remains) -> None:
    rows = [("topic", topic) for topic in found.topics]
    rows += [("consumer group", group) for group in found.groups]
    rows += [("state folder", str(found.folder))] if found.folder else []
    if not rows:
        Console().print(f"nothing is left of network {found.network!r}", markup=False)
        return
    print_table(f"{found.network}: this would be deleted", ["", "name"], rows, caption=_WARNING)


def _confirm(name: str, given: str | None) -> None:
    """Check that the user has typed the network's name.

    Raises:
        NotConfirmedError: If they have not.
    """
    if given is None:
        if not sys.stdin.isatty():
            raise NotConfirmedError(
                f"nothing is deleted: give --yes {name}, or run it on a terminal"
            )
        given = typer.prompt("Type the network's name to delete all of this", default="")
    if given != name:
        raise NotConfirmedError(f"nothing is deleted; needs the name {name!r}, found {given!r}")
