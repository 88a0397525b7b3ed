"""`errata end`: declares that a source ends."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Annotated

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, deployed, source_names
from errata.cli.output import print_lines
from errata.processors.plan.deployed import declare_end
from errata.processors.reports.progress_view import View
from errata.topics.cluster import ClusterError

_LIMIT_S, _PAUSE_S = 30.0, 0.02


@command("end", example="errata end tape.py trades")
def end(
    net: NetworkArgument,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="The source that ends.", autocompletion=source_names),
    ],
    as_json: JsonOption = False,
) -> None:
    """Declare that a source ends where its topic ends now: once read, all its windows close.

    Records that are written to the topic later are still ingested, as revisions of closed windows.
    """
    with deployed(net) as deployment:
        cluster, plan = deployment.cluster, deployment.plan
        ends = declare_end(cluster, plan, deployment.require_own_source(source))
        view, deadline = View(cluster, plan=plan), monotonic() + _LIMIT_S
        while view.ends.get(source) != ends:  # the end counts once it can be read
            view.poll()
            sleep(_PAUSE_S)
            if monotonic() > deadline:
                raise ClusterError(
                    f"the end of source {source!r} was sent, but is not on the plan topic after "
                    f"{_LIMIT_S:g} s; try again"
                )
        if as_json:
            print_lines([{"source": source, "ends": {str(p): o for p, o in ends.items()}}])
        else:
            positions = ", ".join(f"partition {p} at offset {o}" for p, o in ends.items())
            typer.echo(f"source {source!r} ends: {positions}")
