"""`errata dev`: a network with a broker, input and its page, started anew when it is saved."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import Annotated

import typer

from errata.cli.app import NetworkArgument, command
from errata.cli.local import EpochColumnOption, OpColumnOption, source_and_file
from errata.client.input_file import CsvColumns
from errata.page import PORT
from errata.processors.windows.time_windows import duration_ms
from errata.run.dev import Session, Watched, load_again
from errata.run.stopping import Stop
from errata.run.supervisor import print_line
from errata.schemas.errors import ErrataError
from errata.settings.place import read_settings
from errata.topics.broker import EmbeddedBroker

_TURN_S = 0.1


@command("dev", example="errata dev tape.py --input trades=trades.csv")
def dev(
    net: NetworkArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SOURCE=FILE",
            help="A file to feed to a source, as `errata feed` does; may be repeated. By default a "
            "file beside the network with the name of the source, as trades.jsonl or trades.csv.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", min=0.1, help="Feed at most N records in a second.")
    ] = None,
    pause: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait after each epoch.")
    ] = "2s",
    op_column: OpColumnOption = None,
    epoch_column: EpochColumnOption = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port of the page.")
    ] = PORT,
    ui: Annotated[bool, typer.Option("--ui/--no-ui", help="Serve its page, or do not.")] = True,
) -> None:
    r"""Run a network on this machine while you write it, until Ctrl-C.

    Starts a Kafka broker of its own, makes the topics, runs all tasks in one process, serves the
    page, and feeds the sources from files with their corrections. When a Python file beside the
    network, or an input, is saved, the network begins anew with empty topics. If the network has an
    error, the message is printed, and what runs goes on.

    Nothing is kept, and no other cluster is touched. If SCHEMA_REGISTRY_URL names a registry,
    schemas are looked up and registered there. Needs Java 17 and the extra errata-streams\[broker];
    the first run downloads Kafka's jars.
    """
    given = dict[str, list[str]]()
    for text in inputs or ():
        source, file = source_and_file(text)
        given.setdefault(source, []).append(file)
    feeder = {"rate": rate, "pause_s": duration_ms(pause, what="--pause") / 1000}
    with Stop() as stop, ExitStack() as stack:
        network = load_again(net)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="errata-dev-")))
        print_line("starting a broker")
        broker = stack.enter_context(EmbeddedBroker(folder / "broker"))
        environ = os.environ | {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "ERRATA_KAFKA__SECURITY_PROTOCOL": "PLAINTEXT",
            "ERRATA_STATE": str(folder / "state"),
        }
        session = Session(
            net,
            read_settings(environ),
            environ=environ,
            port=port if ui else None,
            inputs=given or None,
            feeder=feeder,
            columns=CsvColumns(op_column, epoch_column),
            say=print_line,
        )
        stack.callback(session.close)
        stop.running = True
        session.start(network)
        print_line(
            f"in another terminal: export KAFKA_BOOTSTRAP_SERVERS={broker.bootstrap_servers}; "
            f"saving {net} starts it anew, Ctrl-C ends it"
        )
        watched = Watched(net, [file for files in given.values() for file in files])
        while not stop():
            broker.check()
            session.turn()
            if changed := watched.changed():
                _again(session, net, changed)
            sleep(_TURN_S)
        session.stop()
        print_line("all processes have ended")
    raise typer.Exit(stop.status)


def _again(session: Session, net: str, changed: list[str]) -> None:
    """Start a network anew, if it can be loaded."""
    try:
        network = load_again(net)
        print_line(f"{', '.join(changed[:3])} changed: starting anew")
        session.stop()
        session.forget()
        session.start(network)
    except ErrataError as error:
        print_line(f"{error}")
