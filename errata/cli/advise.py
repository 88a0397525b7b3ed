"""`errata advise`: which boxes should be connection points."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated

import typer

from errata.cli.app import JsonOption, NetworkArgument, command, deployed
from errata.cli.output import for_people, print_lines, print_table
from errata.client.texts import as_duration
from errata.observe.advice import Advice, advise
from errata.observe.costs import Load, assumed_load, counted_load
from errata.processors.compile.compiler import compile_network
from errata.processors.plan.topology import ingest_scope
from errata.render.figures import number
from errata.schemas.errors import ErrataError
from errata.settings.loading import load

if TYPE_CHECKING:  # what reaches a cluster takes time to import, and is not always needed
    from errata.deploy.deployment import DeployedNetwork

KIB = 1024


class AdviceError(ErrataError):
    """There is nothing that advice could come from."""


@command("advise", example="errata advise tape.py --rate 1000 --revisions 1% --groups 50")
def advise_(
    net: NetworkArgument,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Assume so many tuples of each source in a second; needs no cluster."
        ),
    ] = None,
    revisions: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="The share of them that is corrected, as 1%."),
    ] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="Groups of each aggregate; 1.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which boxes should have keep=: what each would save as a connection point, and cost.

    The best comes first. What it saves is what corrections read: tuples that are replayed, results
    that are fetched, and the time of replays, each of which some box waits for. What it costs is
    what is written more, and kept on disk. Both come from what the running network has counted
    since it started, or, with --rate, from what you assume: amounts are of a second then. Sizes of
    records are estimated from their fields.

    `errata connection-point add` adds one to a running network.
    """
    if rate is None and (revisions is not None or groups is not None):
        raise typer.BadParameter("--revisions and --groups need --rate")
    network = load(net)
    if rate is not None:
        plan = compile_network(network)
        share = _share("1%" if revisions is None else revisions)
        found = advise(
            network, plan, assumed_load(plan, rate=rate, corrected=share, groups=groups or 1)
        )
    else:
        from errata.deploy.source_fields import resolve_deployed

        with deployed(net) as deployment:
            network = resolve_deployed(network, deployment.registry, deployment.cluster)
            plan, counted = deployment.plan, running_load(deployment)
        if not sum(counted.corrections.values()):
            raise AdviceError(
                f"network {plan.network!r} has counted no corrections yet; run it on its input, or "
                "give --rate and --revisions"
            )
        found = advise(network, plan, counted)
    _print(plan.network, found, of="a second" if rate else "so far", as_json=as_json)


def running_load(deployment: DeployedNetwork) -> Load:
    """Return the load of a running network."""
    from errata.observe.network_progress import current

    topology = deployment.plan.topology
    view = current(deployment.cluster, deployment.plan)
    try:
        counts = {
            str(task): view.of(task).counts
            for scope in (*map(ingest_scope, topology.sources), *topology.scopes)
            for task in view.tasks(scope)
        }
    finally:
        view.close()
    return counted_load(deployment.plan, counts)


def _share(text: str) -> float:
    """Return a share of tuples, as ``1%`` or ``0.01``."""
    try:
        share = Decimal(text.removesuffix("%").strip())
    except InvalidOperation:
        share = Decimal(-1)
    share = share / 100 if text.endswith("%") else share
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"needs a share of 0% to 100%, found {text!r}")
    return float(share)


def _print(name: str, found: Sequence[Advice], *, of: str, as_json: bool) -> None:
    if as_json or not for_people():
        print_lines(
            {
                "arc": each.arc,
                "keep_ms": each.keep_ms,
                "users": list(each.users),
                "before": each.before._asdict(),
                "after": each.after._asdict(),
                "saved_bytes": each.saved_bytes,
                "written": each.written,
                "written_bytes": each.written_bytes,
            }
            for each in found
        )
        return
    if not found:
        typer.echo(f"no other box of network {name!r} would be of use as a connection point")
        return
    print_table(
        f"{name}: boxes that could be connection points, the best first; KiB {of}",
        ["arc", "keep", "used by", "a correction reads", "would read", "saves", "writes more"],
        (
            (
                each.arc,
                as_duration(each.keep_ms),
                ", ".join(each.users),
                *(
                    f"{number(cost.tuples)} tuples in {number(cost.replays)} replays, "
                    f"{number(cost.results)} results"
                    for cost in (each.before, each.after)
                ),
                number(each.saved_bytes / KIB),
                number(each.written_bytes / KIB),
            )
            for each in found
        ),
    )
