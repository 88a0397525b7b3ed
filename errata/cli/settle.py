"""`errata settle`: boxes emit the revisions that they keep back, so that all results are exact."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, deployed
from errata.cli.output import print_lines
from errata.observe.network_progress import current
from errata.processors.plan import deployed as plans
from errata.processors.plan.arc_name import owner_of
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import CountKey
from errata.schemas.errors import ErrataError

LIMIT_S, PAUSE_S = 60.0, 0.02
"""How long the tasks may take."""


class SettleError(ErrataError):
    """Results were not settled."""


@command("settle", example="errata settle tape.py")
def settle(net: NetworkArgument, as_json: JsonOption = False) -> None:
    """Emit all revisions that boxes with significance= keep back: all results are exact then.

    Each task does so in one epoch, while the network runs. Later revisions are kept back as before.
    """
    with deployed(net) as deployment:
        topology = deployment.plan.topology
        if not any(map(topology.keeps_back, topology.scopes)):
            raise SettleError(
                f"network {topology.network!r} has no box with significance=: all of its results "
                "are exact"
            )
        view = current(deployment.cluster, deployment.plan)
        try:
            before = _settled(view)
            number = view.settles + 1
            plans.settle(deployment.cluster, deployment.plan, number)
            _wait(view, number)
            after = _settled(view)
        finally:
            view.close()
    found = {box: count - before.get(box, 0) for box, count in after.items()}
    if as_json:
        print_lines([{"settled": found}])
        return
    told = ", ".join(f"{box} {count}" for box, count in found.items())
    typer.echo(f"all results are exact; emitted again: {told}")


def _wait(view: View, number: int) -> None:
    deadline = monotonic() + LIMIT_S
    while view.settles < number or _unsettled(view):
        if monotonic() > deadline:
            raise SettleError(
                f"{', '.join(_unsettled(view))} did not settle within {LIMIT_S:g} s: is it "
                "running? It settles once it runs"
            )
        sleep(PAUSE_S)
        view.poll()


def _unsettled(view: View) -> list[str]:
    scopes = view.plan.topology.scopes
    return [task for scope in scopes for task in view.tasks(scope) if view.unsettled(scope, task)]


def _settled(view: View) -> Mapping[str, int]:
    """Return by box how many results have become exact so far."""
    found: dict[str, int] = {}
    for scope in view.plan.topology.scopes:
        for task in view.tasks(scope):
            for key, count in view.of(task).counts.items():
                total = CountKey.parse(key)
                if total.what == "settled":
                    box = owner_of(total.box)
                    found[box] = found.get(box, 0) + count
    return found
