"""`errata deploy`: a network's first plan, or its next one with other numbers of partitions."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.deployed import open_deployment
from errata.cli.output import for_people, print_lines, print_table
from errata.parts import Actor, Parts
from errata.settings import read_settings
from errata.switch import Switch, next_version
from errata.worker import IDLE_S, Place, make_topics
from processors import deployed, subjects
from processors.plan import Plan
from processors.task import Shared
from processors.view import View
from topics.cluster import Cluster
from topics.create import create_topics
from topics.registry import Registry


@command("deploy", example="errata deploy tape.py")
def deploy(net: NetworkArgument, as_json: JsonOption = False) -> None:
    """Deploy a network, or move one that is deployed to other numbers of partitions.

    What runs the old version ends by itself; what has come in is processed; what connection points
    hold is copied into new topics, and processes of the new version go on from there. If this is
    cut off, run it again. The old topics are left as they are.
    """
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
            make_topics(plan, place, cluster)
            subjects.register(plan, found.registry)
            copied = _switch(cluster, old, plan, registry=found.registry, place=place)
        _tell(plan if changes else old, changes, copied, as_json=as_json)
    finally:
        cluster.close()


def _switch(
    cluster: Cluster, old: Plan, new: Plan, *, registry: Registry, place: Place
) -> dict[str, int]:
    """Move a network to its next version; return how many tuples were copied, by arc."""
    was, comes = (
        Shared(cluster, plan, registry, View(cluster, plan=plan), place.compaction_lag_ms)
        for plan in (old, new)
    )
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="errata-switch-") as state,
        Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar,
    ):
        parts = Parts(was, Path(state))
        parts.beside.update(old.scopes)

        def scopes() -> list[Actor]:
            partitions = {scope: range(len(old.tasks(scope))) for scope in old.scopes}
            return [
                a for scope, own in partitions.items() for p in own for a in parts.tasks(scope, p)
            ]

        switch = Switch(was, comes, scopes)
        shown = bar.add_task("")
        for busy in switch.run():
            bar.update(shown, description=switch.now)
            if not busy:
                time.sleep(IDLE_S)
    return switch.copied


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
