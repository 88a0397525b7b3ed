"""`errata demo`."""

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
    r"""A real tape of trades on an embedded Kafka, corrected in both modes, audited at the end.

    Needs the extras errata-streams\[broker,spark]; the first run fetches Kafka's jars. Nothing is left
    running.
    """
    from errata.demo.run import main

    raise typer.Exit(main(fast=fast, spark=spark) or 0)
