"""`errata tail`: an arc's revisions as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.text import Text

from errata import rows
from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.completion import arcs
from errata.cli.deployed import deployed
from errata.cli.output import as_time, cell, for_people, print_lines
from errata.progress import current
from errata.stopping import Stop
from errata.tailing import Tail
from schemas.arc import Arc

_COLOURS = {"insert": "green", "replace": "yellow", "delete": "red"}
_TIMES = {"timestamp-millis"}


@command("tail", example="errata tail tape.py totals --from-beginning --no-follow")
def tail(
    net: NetworkArgument,
    arc: Annotated[
        str, typer.Argument(metavar="ARC", help="An arc that has a topic.", autocompletion=arcs)
    ],
    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="Begin with what the topic holds; else with now."),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N epochs with revisions.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N revisions.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, or end with what is there.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Print an arc's revisions as they become certain, epoch by epoch, with before and after.

    Only revisions that exist are shown: those that a report of their task covers. The topic of a
    connection point is compacted: of what is long past it holds each tuple's last revision.

    JSON lines, or on a terminal a line a revision: what it names, then what has changed.
    """
    with Stop() as stop, deployed(net) as found:
        kind = found.plan.arcs[found.written(arc)]
        progress = current(found.cluster, found.plan)
        reading = Tail(progress, found.codec(arc), from_beginning=from_beginning)
        stop.running = True  # a KeyboardInterrupt is lost if it comes amidst a callback
        try:
            frames = reading.until(stop) if follow else reading.upto_now()
            for revisions in limited(kind, frames, epochs=epochs, limit=limit):
                if as_json or not for_people():
                    print_lines(revisions)
                else:
                    print_coloured(kind, revisions)
        finally:
            reading.close()
            progress.close()
    if stop():
        raise typer.Exit(stop.status)


def limited(
    kind: Arc, frames: Iterator[pl.DataFrame], *, epochs: int | None, limit: int | None
) -> Iterator[list[dict[str, Any]]]:
    """Yield revisions as plain values until there are as many, or of as many epochs, as wanted."""
    left, seen = limit, set[int]()
    for frame in frames:
        shown: list[dict[str, Any]] = []
        for revision in rows.revisions(kind, frame):
            seen.add(revision["epoch"])
            if epochs is not None and len(seen) > epochs:
                break
            shown.append(revision)
        yield shown if left is None else shown[:left]
        left = None if left is None else left - len(shown)
        # That an epoch is over shows only by its being complete, which it is here.
        if (left is not None and left <= 0) or (epochs is not None and len(seen) >= epochs):
            return


def print_coloured(kind: Arc, revisions: list[dict[str, Any]]) -> None:
    """Print a line a revision for people."""
    console = Console(soft_wrap=True, highlight=False)
    for revision in revisions:
        console.print(told(kind, revision))


def told(kind: Arc, revision: dict[str, Any]) -> Text:
    """Return a revision as a line: its epoch if known, op, the identity, and what was and is.

    Example:
        >>> from schemas.fields import FieldType
        >>> kind = Arc("a", {"k": FieldType("string"), "n": FieldType("long")}, ("k",), "k", ())
        >>> replace = {"op": "replace", "before": {"k": "x", "n": 1}, "after": {"k": "x", "n": 2}}
        >>> print(told(kind, replace | {"epoch": 7}))
        7 replace k=x  n 1 -> 2
    """
    op = revision["op"]
    before, after = revision.get("before"), revision.get("after")
    names = after or before or {}

    def value(side: dict[str, Any], name: str) -> str:
        found = side[name]
        if found is None:
            return "null"
        return as_time(found) if kind.fields[name].kind in _TIMES else str(found)

    identity = " ".join(f"{name}={value(names, name)}" for name in kind.identity)
    if before is not None and after is not None:
        changes = [
            f"{name} {value(before, name)} -> {value(after, name)}"
            for name in after
            if before[name] != after[name]
        ]
    else:
        changes = [f"{n} {value(names, n)}" for n in names if n not in kind.identity]
    line = Text(f"{revision['epoch']} " if "epoch" in revision else "", style="dim")
    line.append(f"{op:<7} ", style=_COLOURS[op])
    line.append_text(cell(f"{identity}  {', '.join(changes)}"))
    return line
