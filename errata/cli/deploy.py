"""`errata deploy`: deploys a network's first plan, or moves it to its next version.

`errata backfill` moves a network in the same way (`move`).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from errata.cli.app import JsonOption, NetworkArgument, command
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.plan import show
from errata.cli.spark import ConfOption, MasterOption, spark_settings
from errata.deploy.deployment import DeployedNetwork, deploy_first, make_topics
from errata.deploy.preview import preview_version, users_of
from errata.deploy.versions import NextVersion, plan_next
from errata.processors.plan import deployed
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.processors.tasks import subjects
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.takeover import Fill
from errata.run.parts import Actor, Parts
from errata.run.switch import Jobs, Switch
from errata.run.worker import IDLE_S
from errata.settings.loading import load
from errata.settings.place import Place, connect, read_settings
from errata.topics.admin import present_topics
from errata.topics.kafka import KafkaCluster
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
    settings = spark_settings(conf)
    network, place = load(net), read_settings()
    cluster = connect(place)
    try:
        schemas = registry(cluster, place.registry)
        upgrade, copied = plan_next(network, cluster, schemas), dict[str, int]()
        old, plan = upgrade.old, upgrade.plan
        if for_people() and not as_json:
            existing = present_topics(place.kafka)
            show(preview_version(upgrade, users_of(network, existing), existing, place, schemas))
        subjects.check(plan, schemas)
        if upgrade.changes and not yes and for_people() and sys.stdin.isatty():
            typer.confirm(
                f"Move network {plan.network!r} to version {plan.deployment.version}?", abort=True
            )
        if old is not None:
            for key in deployed.restore_records(cluster, plan.network):
                typer.echo(f"errata: record {key!r} of the plan topic is written again", err=True)
        if old is None:
            plan = deployed.as_deployed(plan, deploy_first(plan, place, cluster, schemas))
        elif upgrade.changes:
            session = spark_session(net, old, place, master=master, settings=settings)
            deployment = DeployedNetwork(cluster, old, schemas, place.kafka)
            copied = carry_out(deployment, old, plan, place=place, session=session)
        else:  # recreate what has been lost
            make_topics(plan, place, cluster)
            subjects.register(plan, schemas)
        _print_changes(NextVersion(old, plan, upgrade.changes), copied, as_json=as_json)
    finally:
        cluster.close()


def _print_changes(upgrade: NextVersion, copied: dict[str, int], *, as_json: bool) -> None:
    plan = upgrade.plan
    changes = []
    for change in upgrade.changes:
        arc = change.name.partition(".")[0] if change.kind == "field" else change.name
        changes.append(vars(change) | {"copied": copied.get(arc)})
    if as_json or not for_people():
        print_lines(
            [{"network": plan.network, "version": plan.deployment.version, "changes": changes}]
        )
        return
    title = f"{plan.network}: version {plan.deployment.version} is deployed"
    columns = ["", "name", "before", "now", "tuples copied"]
    if changes:
        print_table(title, columns, [list(row.values()) for row in changes])
    else:
        Console().print(title)


def carry_out(
    deployment: DeployedNetwork,
    old: CompiledPlan,
    new: CompiledPlan,
    *,
    place: Place,
    session: AbstractContextManager[Any],
) -> dict[str, int]:
    """Make what the next version of a network needs, and move to it.

    Args:
        deployment: The network on its cluster.
        old: The deployed plan.
        new: The next version, whose schemas have been checked.
        place: The settings of this process.
        session: Opens a Spark session; used if the old version has jobs on Spark.

    Returns:
        By arc, how many tuples were copied.
    """
    with session if old.topology.jobs else nullcontext() as opened:
        make_topics(new, place, deployment.cluster)
        subjects.register(new, deployment.registry)
        return move(deployment, old, new, place=place, session=opened).copied


@contextmanager
def spark_session(
    net: str, plan: CompiledPlan, place: Place, *, master: str | None, settings: Mapping[str, str]
) -> Iterator[Any]:
    """Open a Spark session for the jobs of a network."""
    from errata.spark_jobs.session import (  # pyspark may be missing
        check_packages,
        open_session,
        pickle_by_value,
    )

    check_packages()
    pickle_by_value(load(net))
    log = _home(plan, place) / "spark.deploy.log"
    name = f"errata deploy {plan.network}"
    session = open_session(master=master, settings=settings, name=name, log=log)
    try:
        yield session
    finally:
        session.stop()


def move(
    deployment: DeployedNetwork,
    old: CompiledPlan,
    new: CompiledPlan,
    *,
    place: Place,
    session: Any = None,
    fill: Callable[[View], Fill] | None = None,
) -> Switch:
    """Switch a network to its next version; return the switch, with what it copied and filled.

    Args:
        deployment: The network on its cluster.
        old: The deployed plan.
        new: The next version.
        place: The settings of this process.
        session: A Spark session, if the old version has jobs on Spark.
        fill: Returns a writer of new arcs for a view of the old version's reports.
    """
    cluster = deployment.cluster
    old_shared, new_shared = (
        Shared(
            cluster, plan, deployment.registry, View(cluster, plan=plan), place.compaction_lag_ms
        )
        for plan in (old, new)
    )
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="errata-switch-") as state,
        Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar,
    ):
        parts = Parts(old_shared, Path(state))
        parts.beside.update(old.topology.scopes)
        switch = Switch(
            old_shared,
            new_shared,
            lambda: _parts(parts),
            jobs=_jobs(old_shared, version=new.deployment.version, session=session, place=place),
            fill=None if fill is None else fill(old_shared.view),
        )
        bar_task = bar.add_task("")
        for busy in switch.run():
            bar.update(bar_task, description=switch.step)
            if not busy:
                time.sleep(IDLE_S)
    return switch


def _parts(parts: Parts) -> list[Actor]:
    """Return the tasks of a version, and the sweepers that answer its jobs on Spark."""
    plan = parts.plan
    jobs = [scope for scope in plan.topology.scopes.values() if scope.on_spark]
    task_scopes = [scope for scope in plan.topology.scopes.values() if not scope.on_spark]
    requested = dict.fromkeys(arc for scope in jobs for arc in plan.replayed_points_of(scope))
    tasks = [
        (scope.name, p)
        for scope in task_scopes
        for p in range(len(plan.placement.tasks(scope.name)))
    ]
    return [actor for task in tasks for actor in parts.tasks(*task)] + parts.services([*requested])


def _jobs(shared: Shared, *, version: int, session: Any, place: Place) -> Jobs:
    """Return a function that runs jobs on Spark with the checkpoints of `errata spark`."""

    def run(jobs: Sequence[str], meanwhile: Callable[[], bool]) -> None:
        from errata.spark_jobs.run import DriverLock, Options, run_jobs

        assert isinstance(shared.cluster, KafkaCluster)
        old = shared.plan  # jobs of this version would end
        plan = replace(old, deployment=replace(old.deployment, version=version))
        job_shared = replace(
            shared, plan=plan, view=View(shared.cluster, plan=plan), codecs={}, sinks={}
        )
        folder = _home(plan, place) / f"spark.v{shared.plan.deployment.version}"
        rights = [DriverLock(shared.cluster, plan.network, job) for job in jobs]
        try:
            for right in rights:  # wait until drivers of the old version have ended
                right.wait()
            run_jobs(
                job_shared,
                jobs,
                session=session,
                kafka=place.kafka,
                options=Options(str(folder), once=True),
                stop=meanwhile,
            )
        finally:
            for right in rights:
                right.close()

    return run


def _home(plan: CompiledPlan, place: Place) -> Path:
    return place.state / plan.network / plan.deployment.id
