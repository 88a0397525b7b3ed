"""`errata tail`: prints an arc's revisions as they become complete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.text import Text

from errata.cli.app import JsonOption, NetworkArgument, arc_names, command, deployed
from errata.cli.output import cell, for_people, print_lines
from errata.client import rows
from errata.client.reading import Tail
from errata.client.texts import as_time
from errata.deploy.deployment import DeployedNetwork
from errata.observe.network_progress import current
from errata.processors.wire.report import INTERVAL_MS
from errata.run.stopping import Stop
from errata.schemas.arc import Arc

_COLOURS = {"insert": "green", "replace": "yellow", "delete": "red"}
_TIMES = {"timestamp-millis"}


@command("tail", example="errata tail tape.py totals --from-beginning --no-follow")
def tail(
    net: NetworkArgument,
    arc: Annotated[
        str,
        typer.Argument(metavar="ARC", help="An arc that has a topic.", autocompletion=arc_names),
    ],
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Begin at the start of the topic, not with new epochs."
        ),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N epochs with revisions.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N revisions.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", help="Wait for more, or end at the topic's current end."
        ),
    ] = True,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="Also print when an epoch is complete in all partitions."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print an arc's revisions as epochs become complete, with before and after.

    Only committed revisions are printed: those that a report of their task covers. The topic of a
    connection point is compacted: for old epochs it holds only the last revision of each tuple.

    Epochs come in order, with deletes first in each epoch. With --complete, a line {"epoch": 7,
    "complete": true} follows the last revision of each epoch whose revisions are all still in the
    topic. From the beginning, the lines up to it give the content of the arc after that epoch.

    Prints JSON lines, or on a terminal a line for each revision: the identity, then what has
    changed.
    """
    with Stop() as stop, deployed(net) as deployment:
        kind = deployment.plan.topology.arcs[deployment.require_topic(arc)]
        over_from = _intact_from(deployment, arc, from_beginning) if complete else None
        progress = current(deployment.cluster, deployment.plan)
        reading = Tail(progress, deployment.codec(arc), from_beginning=from_beginning)
        stop.running = True  # a KeyboardInterrupt inside a callback would be lost
        try:
            frames = reading.until(stop) if follow else reading.upto_now()
            for lines in limited(kind, frames, epochs=epochs, limit=limit, over_from=over_from):
                if as_json or not for_people():
                    print_lines(lines)
                else:
                    print_coloured(kind, lines)
        finally:
            reading.close()
            progress.close()
    if stop():
        raise typer.Exit(stop.status)


def _intact_from(deployment: DeployedNetwork, arc: str, from_beginning: bool) -> int:
    """Return the epoch since which an arc's topic still has all revisions."""
    is_compacted, kept_ms = deployment.retention(arc) if from_beginning else (False, 0)
    return (time.time_ns() // 1_000_000 - kept_ms) // INTERVAL_MS if is_compacted else 0


def limited(
    kind: Arc,
    frames: Iterator[pl.DataFrame],
    *,
    epochs: int | None,
    limit: int | None,
    over_from: int | None,
) -> Iterator[list[dict[str, Any]]]:
    """Yield revisions as plain values until the limit of revisions or epochs is reached.

    Args:
        kind: The arc.
        frames: Its revisions, each frame with whole epochs.
        epochs: The number of epochs; None for all.
        limit: The number of revisions; None for all.
        over_from: From this epoch on, a line follows the last revision of each epoch; None for
            never.
    """
    left, seen = limit, 0
    for frame in frames:
        lines: list[dict[str, Any]] = []
        for epoch, of_epoch in groupby(rows.revisions(kind, frame), key=itemgetter("epoch")):
            revisions = list(of_epoch)
            lines += revisions[:left]
            is_cut = left is not None and left < len(revisions)
            if over_from is not None and epoch >= over_from and not is_cut:
                lines.append({"epoch": epoch, "complete": True})
            left = None if left is None else max(0, left - len(revisions))
            seen += 1
            if left == 0 or seen == epochs:
                yield lines
                return
        yield lines


def print_coloured(kind: Arc, lines: list[dict[str, Any]]) -> None:
    """Print a line for each revision and each complete epoch."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        over = "complete" in line
        console.print(
            Text(f"{line['epoch']} complete", style="dim") if over else revision_line(kind, line)
        )


def revision_line(kind: Arc, revision: dict[str, Any]) -> Text:
    """Return a revision as a line: its epoch if known, op, the identity, and the changed values.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> kind = Arc("a", {"k": FieldType("string"), "n": FieldType("long")}, ("k",), "k", ())
        >>> replace = {"op": "replace", "before": {"k": "x", "n": 1}, "after": {"k": "x", "n": 2}}
        >>> print(revision_line(kind, replace | {"epoch": 7}))
        7 replace k=x  n 1 -> 2
    """
    op = revision["op"]
    before, after = revision.get("before"), revision.get("after")
    names = after or before or {}

    def value(side: dict[str, Any], name: str) -> str:
        content = side[name]
        if content is None:
            return "null"
        return as_time(content) if kind.fields[name].kind in _TIMES else str(content)

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
