"""`errata backfill`: fills the history of boxes that were added to a deployed network."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.deploy import move, spark_session
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.progress import waiting
from errata.cli.spark import ConfOption, MasterOption, spark_settings
from errata.deploy.deployment import DeployedNetwork, UnknownNameError, make_topics, place_plan
from errata.deploy.source_fields import resolve_deployed
from errata.deploy.versions import check_requested, deployed_part, new_arcs, next_version
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.network import Network
from errata.processors.plan import deployed
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.tasks import subjects
from errata.settings.loading import load
from errata.settings.place import connect, read_settings
from errata.spark_jobs.backfill import Backfill, check
from errata.topics.registry_server import registry


@command("backfill", example="errata backfill tape.py bars --master local[4]")
def backfill(
    net: NetworkArgument,
    box: Annotated[
        list[str],
        typer.Argument(
            metavar="BOX...", help="Boxes that are new in the network.", show_default=False
        ),
    ],
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill the history of boxes that were added to a network, on Spark, and deploy them.

    Running processes of the network end by themselves, and input that has arrived is processed. The
    results that the new boxes, and those that they need, would have written by now are recomputed
    from connection points. Processes of the new version continue from there, as if the boxes had
    been deployed from the start. If this is interrupted, run it again.
    """
    settings = spark_settings(conf)
    place = read_settings()
    cluster = connect(place)
    try:
        schemas = registry(cluster, place.registry)
        network = resolve_deployed(load(net), schemas, cluster)
        whole = place_plan(compile_network(network), cluster)
        remedy = f"`errata deploy {net}` deploys all of it; there is no history to fill"
        deployed_plan = deployed.require_plan(cluster, network.name, remedy=remedy)
        _check_known(network, box)
        added = deployed.added(whole, deployed_plan)
        if not set(box) & set(added):
            _print_filled(
                deployed.as_deployed(whole, deployed_plan),
                deployed_plan.deployment.first_epoch,
                {},
                as_json=as_json,
            )
            return
        check_requested(whole, requested=box, added=added)
        part = place_plan(compile_network(deployed_part(network, deployed_plan)), cluster)
        old = deployed.as_deployed(part, deployed_plan)
        new = next_version(old, whole)
        for arc in new_arcs(old, new):
            check(old, new, arc)
        names = ", ".join(new_arcs(old, new))
        with (
            waiting(f"filling the history of {names}"),
            spark_session(net, old, place, master=master, settings=settings) as session,
        ):
            subjects.check(new, schemas)
            make_topics(new, place, cluster)
            subjects.register(new, schemas)
            switch = move(
                DeployedNetwork(cluster, old, schemas, place.kafka),
                old,
                new,
                place=place,
                session=session,
                fill=lambda view: Backfill.of(
                    session, view, old, new, kafka=place.kafka, registry=schemas
                ),
            )
        stored = deployed.read_plan(cluster, network.name)
        assert stored is not None  # it was acknowledged
        _print_filled(new, stored.deployment.first_epoch, switch.filled, as_json=as_json)
    finally:
        cluster.close()


def _check_known(network: Network, boxes: list[str]) -> None:
    for box in boxes:
        if box not in network.declarations:
            known = ", ".join(network.declarations)
            raise UnknownNameError(f"network {network.name!r} has no box {box!r}: it has {known}")


def _print_filled(
    plan: CompiledPlan, first_epoch: int, filled: dict[str, int], *, as_json: bool
) -> None:
    epoch = first_epoch - 1
    lines = [{"arc": arc, "tuples": count, "epoch": epoch} for arc, count in filled.items()]
    if as_json or not for_people():
        print_lines(
            [{"network": plan.network, "version": plan.deployment.version, "filled": lines}]
        )
        return
    title = f"{plan.network}: version {plan.deployment.version} is deployed"
    if lines:
        print_table(title, ["arc", "tuples", "epoch"], [list(row.values()) for row in lines])
    else:
        Console().print(title)
