"""`errata deploy`: a network's first plan, or its next one with other numbers of partitions."""

from __future__ import annotations

from contextlib import nullcontext

from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.deployed import open_deployment
from errata.cli.move import move, spark_session
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.spark import ConfOption, MasterOption, given_settings
from errata.settings import read_settings
from errata.versions import next_version
from errata.worker import make_topics
from processors import deployed, subjects
from processors.plan import Plan
from topics.create import create_topics


@command("deploy", example="errata deploy tape.py")
def deploy(
    net: NetworkArgument,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy a network, or move one that is deployed to other numbers of partitions.

    What runs the old version ends by itself; what has come in is processed; what connection points
    hold is copied into new topics, and processes of the new version go on from there. If this is
    cut off, run it again. The old topics are left as they are. Boxes that are not deployed yet are
    added by `errata backfill`.
    """
    settings = given_settings(conf)
    place, found = read_settings(), open_deployment(net)
    cluster, plan = found.cluster, found.plan
    try:
        create_topics(place.kafka, [deployed.plan_spec(plan)])
        there = deployed.read_plan(cluster, plan.network)
        if there is None:
            make_topics(plan, place, cluster)
            subjects.register(plan, found.registry)
            there = deployed.deploy(cluster, plan)
        old = deployed.as_deployed(plan, there)
        changes, copied = deployed.changes(old, plan), dict[str, int]()
        if changes:
            plan = next_version(old, plan)
            has_jobs = spark_session(net, old, place, master=master, settings=settings)
            with has_jobs if old.spark else nullcontext() as session:
                make_topics(plan, place, cluster)
                subjects.register(plan, found.registry)
                copied = move(found, old, plan, place=place, session=session).copied
        _tell(plan if changes else old, changes, copied, as_json=as_json)
    finally:
        cluster.close()


def _tell(
    plan: Plan, changes: list[deployed.Change], copied: dict[str, int], *, as_json: bool
) -> None:
    found = [vars(change) | {"copied": copied.get(change.name)} for change in changes]
    if as_json or not for_people():
        print_lines([{"network": plan.network, "version": plan.version, "changes": found}])
        return
    title = f"{plan.network}: version {plan.version} is deployed"
    columns = ["", "name", "partitions before", "now", "tuples copied"]
    if found:
        print_table(title, columns, [list(row.values()) for row in found])
    else:
        Console().print(title)
