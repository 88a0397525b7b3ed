"""`errata deploy`: deploys a network's first plan, or its next version."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.move import move, spark_session
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.plan import show
from errata.cli.spark import ConfOption, MasterOption, given_settings
from errata.deploy.deployment import Deployment
from errata.deploy.next_plan import Coming, coming
from errata.deploy.preparation import deploy_first, make_topics
from errata.deploy.preview import look, users_of
from errata.processors.plan import deployed
from errata.processors.tasks import subjects
from errata.settings.loading import load
from errata.settings.place import connect
from errata.settings.settings import read_settings
from errata.topics.admin import present_topics
from errata.topics.registry_server import registry


@command("deploy", example="errata deploy tape.py")
def deploy(
    net: NetworkArgument,
    master: MasterOption = None,
    conf: ConfOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Don't ask before what is deployed is changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Deploy a network, or change a deployed one: other numbers of partitions, or more fields.

    Processes of the old version end by themselves, and input that has arrived is processed. The
    content of connection points is copied into new topics, and processes of the new version
    continue from there. If this is interrupted, run it again. The old topics are kept. New fields
    of sources are null in existing tuples. `errata backfill` adds boxes that are not deployed yet.

    On a terminal it shows what `errata plan` shows, and asks before it changes what is deployed. It
    recreates missing topics of the network.

    If the schema registry would refuse a schema, nothing is created: see `errata schemas check`.
    """
    settings = given_settings(conf)
    network, place = load(net), read_settings()
    cluster = connect(place)
    try:
        schemas = registry(cluster, place.registry)
        found, copied = coming(network, cluster, schemas), dict[str, int]()
        old, plan = found.old, found.plan
        if for_people() and not as_json:
            there = present_topics(place.kafka)
            show(look(found, users_of(network, there), there, place, schemas))
        subjects.check(plan, schemas)
        if found.changes and not yes and for_people() and sys.stdin.isatty():
            typer.confirm(f"Move network {plan.network!r} to version {plan.version}?", abort=True)
        if old is None:
            plan = deployed.as_deployed(plan, deploy_first(plan, place, cluster, schemas))
        elif found.changes:
            has_jobs = spark_session(net, old, place, master=master, settings=settings)
            with has_jobs if old.spark else nullcontext() as session:
                make_topics(plan, place, cluster)
                subjects.register(plan, schemas)
                where = Deployment(cluster, old, schemas, place.kafka)
                copied = move(where, old, plan, place=place, session=session).copied
        else:  # recreate what has been lost
            make_topics(plan, place, cluster)
            subjects.register(plan, schemas)
        _tell(Coming(old, plan, found.changes), copied, as_json=as_json)
    finally:
        cluster.close()


def _tell(found: Coming, copied: dict[str, int], *, as_json: bool) -> None:
    plan = found.plan
    changes = []
    for change in found.changes:
        arc = change.name.partition(".")[0] if change.kind == "field" else change.name
        changes.append(vars(change) | {"copied": copied.get(arc)})
    if as_json or not for_people():
        print_lines([{"network": plan.network, "version": plan.version, "changes": changes}])
        return
    title = f"{plan.network}: version {plan.version} is deployed"
    columns = ["", "name", "before", "now", "tuples copied"]
    if changes:
        print_table(title, columns, [list(row.values()) for row in changes])
    else:
        Console().print(title)
