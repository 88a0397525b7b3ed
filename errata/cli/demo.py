"""`errata demo`: runs the demo."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.cli.app import command


@command("demo", example="errata demo --fast")
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Play the tape in seconds.")] = False,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With bars of a day on Spark, or without.")
    ] = True,
) -> None:
    r"""Play a real tape of trades on an embedded Kafka, with corrections, and audit the results.

    Aggregates run in both modes. Needs the extras errata-streams\[broker,spark]; the first run
    downloads Kafka's jars. All processes end with the command.
    """
    from errata.demo.run import main

    raise typer.Exit(main(fast=fast, spark=spark) or 0)
