"""`errata broker`: a Kafka broker on this machine, to try a network with."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import Annotated

import typer

from errata.cli.app import command
from errata.cli.output import for_people
from errata.run.dev import source_topics
from errata.run.exit_status import complain
from errata.run.stopping import Stop
from errata.settings.loading import load
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker

_CHECK_S = 0.2


@command("broker", example="errata broker tape.py")
def broker(
    net: Annotated[
        str | None,
        typer.Argument(
            metavar="[NET]", help="A network: the topics of its sources are made, if not there."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = 9092,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of its data, which is kept.")
    ] = Path("broker-data"),
) -> None:
    r"""Run an Apache Kafka of one node on this machine, until Ctrl-C.

    It listens on 127.0.0.1 only, without security: it is for trying things, not for production. The
    data stays in the folder, and is there again with the next start. Needs Java 17 and the extra
    errata-streams\[broker]; the first run downloads Kafka's jars.

    Prints its address as HOST:PORT once it answers.
    """
    specs = [] if net is None else source_topics(load(net))
    with Stop() as stop, EmbeddedBroker(folder, port=port) as running:
        made = create_topics(running.settings, specs) if specs else []
        typer.echo(running.bootstrap_servers)
        if for_people():
            topics = f"made topic {', '.join(made)}. " if made else ""
            start = f"errata up {net or 'NET'}"
            complain(
                f"{topics}In another terminal: export "
                f"KAFKA_BOOTSTRAP_SERVERS={running.bootstrap_servers}, then {start}. "
                "Ctrl-C ends the broker"
            )
        stop.running = True
        while not stop():
            running.check()
            sleep(_CHECK_S)
    raise typer.Exit(stop.status)
