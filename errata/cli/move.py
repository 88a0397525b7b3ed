"""Runs the switch to a plan's next version in a command, and shows its progress."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from errata.deploy.deployment import Deployment
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.takeover import Fill
from errata.run.parts import Actor, Parts
from errata.run.switch import Jobs, Switch
from errata.run.worker import IDLE_S
from errata.settings.loading import load
from errata.settings.place import Place
from errata.topics.kafka import KafkaCluster


@contextmanager
def spark_session(
    net: str, plan: Plan, place: Place, *, master: str | None, settings: Mapping[str, str]
) -> Iterator[Any]:
    """Open a Spark session for the jobs of a network."""
    from errata.spark_jobs.session import (  # pyspark may be missing
        by_value,
        check_packages,
        open_session,
    )

    check_packages()
    by_value(load(net))
    log = _home(plan, place) / "spark.deploy.log"
    name = f"errata deploy {plan.network}"
    session = open_session(master=master, settings=settings, name=name, log=log)
    try:
        yield session
    finally:
        session.stop()


def move(
    found: Deployment,
    old: Plan,
    new: Plan,
    *,
    place: Place,
    session: Any = None,
    fill: Callable[[View], Fill] | None = None,
) -> Switch:
    """Switch a network to its next version; return the switch, with what it copied and filled.

    Args:
        found: The network on its cluster.
        old: The deployed plan.
        new: The next version.
        place: The settings of this process.
        session: A Spark session, if the old version has jobs on Spark.
        fill: Returns a writer of new arcs for a view of the old version's reports.
    """
    cluster = found.cluster
    was, comes = (
        Shared(cluster, plan, found.registry, View(cluster, plan=plan), place.compaction_lag_ms)
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
        switch = Switch(
            was,
            comes,
            lambda: _parts(parts),
            jobs=_jobs(was, version=new.version, session=session, place=place),
            fill=None if fill is None else fill(was.view),
        )
        shown = bar.add_task("")
        for busy in switch.run():
            bar.update(shown, description=switch.now)
            if not busy:
                time.sleep(IDLE_S)
    return switch


def _parts(parts: Parts) -> list[Actor]:
    """Return the tasks of a version, and the sweepers that its jobs on Spark ask over topics."""
    plan = parts.plan
    jobs = [scope for scope in plan.scopes.values() if scope.on_spark]
    ours = [scope for scope in plan.scopes.values() if not scope.on_spark]
    asked = dict.fromkeys(arc for scope in jobs for arc in plan.asked_by(scope))
    tasks = [(scope.name, p) for scope in ours for p in range(len(plan.tasks(scope.name)))]
    return [actor for task in tasks for actor in parts.tasks(*task)] + parts.services([*asked])


def _jobs(shared: Shared, *, version: int, session: Any, place: Place) -> Jobs:
    """Return a function that runs jobs on Spark with the checkpoints of `errata spark`."""

    def run(boxes: Sequence[str], meanwhile: Callable[[], bool]) -> None:
        from errata.spark_jobs.run import Options, Sole, run_jobs

        assert isinstance(shared.cluster, KafkaCluster)
        plan = replace(shared.plan, version=version)  # the old version would end
        own = replace(shared, plan=plan, view=View(shared.cluster, plan=plan), codecs={}, sinks={})
        folder = _home(plan, place) / f"spark.v{shared.plan.version}"
        rights = [Sole(shared.cluster, plan.network, plan.scope_of(box)) for box in boxes]
        try:
            for right in rights:  # wait until drivers of the old version have ended
                right.wait()
            run_jobs(
                own,
                boxes,
                session=session,
                kafka=place.kafka,
                options=Options(str(folder), once=True),
                stop=meanwhile,
            )
        finally:
            for right in rights:
                right.close()

    return run


def _home(plan: Plan, place: Place) -> Path:
    return place.state / plan.network / plan.deployment
