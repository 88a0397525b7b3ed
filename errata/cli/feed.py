"""`errata feed`: sends a file of revisions to a source's topic."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from typing import Annotated

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, opened, source_names
from errata.cli.local import EpochColumnOption, OpColumnOption, tracked
from errata.cli.output import for_people, print_lines
from errata.cli.progress import Bars
from errata.client.feeding import Fed, Feeder
from errata.client.input_file import CsvColumns, open_input, read_input
from errata.processors.windows.time_windows import duration_ms
from errata.run.exit_status import complain
from errata.run.stopping import Stop
from errata.schemas.errors import ErrataError


class RefusedFileError(ErrataError):
    """No line of the files is a revision of the source."""


@command("feed", example="errata feed tape.py trades trades.csv --rate 1000")
def feed(
    net: NetworkArgument,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A source of the network.", autocompletion=source_names
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="JSON lines or CSV, as `errata local` reads them; - is standard input. Each file "
            "begins a new epoch.",
        ),
    ],
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.1, help="At most N records in a second."),
    ] = None,
    pause: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait after each epoch.")
    ] = "200ms",
    op_column: OpColumnOption = None,
    epoch_column: EpochColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a file of revisions to the topic of a source, as its producer would.

    Records are made in the source's envelope and format, with the identity as their key. Where the
    file ends an epoch, it waits, so that what comes next is a correction of what was there. The
    network need not run; the topic has to exist.

    A line that is no revision of the source is left out and reported; if all are, the status is 1.
    """
    pause_s = duration_ms(pause, what="--pause") / 1000
    columns = CsvColumns(op_column, epoch_column)
    with Stop() as stop, ExitStack() as stack:
        deployment = stack.enter_context(opened(net))
        kind = deployment.plan.topology.sources[deployment.require_own_source(source)]
        streams = [(file, stack.enter_context(open_input(file))) for file in files]
        progress = stack.enter_context(Bars())
        stop.running = True
        feeder = Feeder(
            kind,
            deployment.cluster,
            deployment.registry,
            rate=rate,
            pause_s=pause_s,
            stop=stop,
        )
        fed = feeder.feed(
            chain.from_iterable(
                chain(
                    tracked(
                        read_input(stream, file=file, arc=kind.arc, columns=columns),
                        stream,
                        progress,
                        file,
                    ),
                    [None],
                )
                for file, stream in streams
            )
        )
    tell(fed, topic=kind.topic, as_json=as_json)
    raise typer.Exit(stop.status)


def tell(fed: Fed, *, topic: str, as_json: bool) -> None:
    """Print what was sent.

    Raises:
        RefusedFileError: If nothing was, since every line was refused.
    """
    if as_json or not for_people():
        print_lines(
            [{"topic": topic, "sent": fed.sent, "epochs": fed.epochs, "refused": fed.refused}]
        )
    else:
        typer.echo(f"{fed.sent} records sent to {topic} in {fed.epochs} epochs")
    if fed.first is not None:
        reasons = ", ".join(f"{count} {reason}" for reason, count in fed.refused.items())
        number, detail = fed.first
        text = f"left out: {reasons}; the first is line {number}: {detail}"
        if not fed.sent:
            raise RefusedFileError(text)
        complain(text)
