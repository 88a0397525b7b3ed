"""`errata spark`: runs the jobs of the boxes and sources that are placed on Spark."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from errata.cli.app import NetworkArgument, command
from errata.deploy import rights as needs
from errata.deploy.deployment import prepare
from errata.observe import metrics
from errata.observe.port import serving
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared
from errata.run.beside import Beside
from errata.run.stopping import Stop
from errata.settings.loading import load
from errata.settings.logs import context
from errata.settings.place import connect, read_settings
from errata.spark_jobs.session import check_packages, open_session, pickle_by_value
from errata.topics.registry_server import registry

MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark runs, as local[4] or spark://host:7077; this machine by default.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]

MAX_RECORDS = 500_000
"""How many records a batch takes at most."""


@command("spark", example="errata spark tape.py --box bars --master local[4]")
def spark(
    net: NetworkArgument,
    box: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only the job of this box or source, which has place='spark'; may be repeated."
        ),
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Folder of the states' checkpoints, which every executor must reach; in the "
            "state folder by default.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The least time between the starts of two batches, as '10 seconds'.",
        ),
    ] = None,
    max_records: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="How many records a batch takes at most, in whole epochs. A first start takes "
            "all of its input, in parts.",
        ),
    ] = MAX_RECORDS,
    once: Annotated[
        bool, typer.Option("--once", help="Process all complete epochs, then end.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Run in this process what is not on Spark, too: sweepers, and tasks of other "
            "boxes, sources and sinks. No `errata up` may run beside it.",
        ),
    ] = False,
) -> None:
    """Run Structured Streaming jobs until SIGTERM (status 0) or Ctrl-C (status 130).

    Creates the network's topics and deploys it if it is not deployed yet. The job, or any executor,
    may be killed at any moment: the next run continues from the last report. With spark-submit,
    pass it the file that `python -m errata.submit` prints.
    """
    settings = spark_settings(conf)
    check_packages()
    from errata.spark_jobs.run import (  # these need PySpark
        DriverLock,
        Options,
        jobs_of,
        run_jobs,
    )

    with Stop() as stop, ExitStack() as port:
        network, place = load(net), read_settings()
        pulse = port.enter_context(serving(place.listen))
        cluster = connect(place)
        rights: list[DriverLock] = []
        session = beside = None
        try:
            plan = prepare(network, place, cluster)
            schemas = registry(cluster, place.registry)
            view = View(cluster, plan=plan)
            shared = Shared(cluster, plan, schemas, view, place.compaction_lag_ms, place.on_error)
            jobs = jobs_of(plan, box or ())
            for name in jobs:
                cluster.require(needs.of_scope(plan, name))
            # Join before Spark starts: the group notices a dead driver while Java starts.
            rights = [DriverLock(cluster, plan.network, name) for name in jobs]
            pickle_by_value(network)
            home = place.state / plan.network / plan.deployment.id
            session = open_session(
                master=master,
                settings=settings,
                name=f"errata {plan.network} {' '.join(jobs)}",
                log=home / f"spark.{'.'.join(jobs)}.log",
            )
            for right in rights:
                right.wait()
            folder = checkpoint or str(home / f"spark.v{plan.deployment.version}")
            names = [task for name in jobs for task in plan.placement.tasks(name)]

            beside = Beside(network, place) if alone else None

            def ended() -> bool:
                if beside is not None:
                    beside.check()
                if pulse.turn():
                    pulse.update((), metrics.work(shared, names, (), ()))
                return stop()

            context["network"], pulse.doing = plan.network, f"{', '.join(jobs)} on Spark"
            stop.running = True
            run_jobs(
                shared,
                jobs,
                session=session,
                kafka=place.kafka,
                options=Options(folder, once, every, max_records),
                stop=ended,
                registry_at=place.registry,
            )
        finally:
            pulse.stopping()
            if beside is not None:
                beside.close()
            for right in rights:
                right.close()
            if session is not None:
                session.stop()
            cluster.close()
    raise typer.Exit(stop.status)


def spark_settings(pairs: list[str] | None) -> dict[str, str]:
    """Return the settings of Spark from a command line."""
    parsed = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} needs the form KEY=VALUE", param_hint="--conf")
        parsed[key] = value
    return parsed
