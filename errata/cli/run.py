"""Runs the processes of a network: `errata run` and `errata sweep` one of them, `errata up` all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated

import typer

from errata.cli.app import NetworkArgument, command
from errata.deploy.deployment import prepare
from errata.deploy.processes import ALL, Part
from errata.observe.metric_catalogue import Samples
from errata.observe.port import Pulse, listening, serving
from errata.page import PORT
from errata.processors.declare.network import Network
from errata.processors.plan.compiled import CompiledPlan
from errata.run.patience import Patience
from errata.run.readiness import Readiness
from errata.run.stopping import Stop
from errata.run.supervisor import Supervisor, network_commands, page_command, print_line
from errata.run.supervisor_port import UpPort, ports_after, shown
from errata.run.up_lock import only_up
from errata.run.worker import Worker, tune_garbage_collector
from errata.settings.loading import load
from errata.settings.place import LISTEN, Place, connect, read_settings

_POLL_S = 0.1


@command("up", example="KAFKA_BOOTSTRAP_SERVERS=localhost:9092 errata up tape.py")
def up(
    net: NetworkArgument,
    apart: Annotated[
        bool,
        typer.Option("--apart", help="A process for each source and one for each scope."),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="At most so many, besides those of shared sweepers and of jobs on Spark; by "
            "default as many as this machine has processors.",
        ),
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve its page, too: see `errata dashboard`.")
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port of the page.")
    ] = PORT,
) -> None:
    """Run a whole network on this machine, in at most as many processes as it has processors.

    Each has a part of the partitions of all sources and scopes; what one of its tasks writes, the
    others need not fetch. So fewer processes do less work. Creates the topics and deploys the
    network if it is not deployed yet. A process that dies is restarted. An error that a restart
    does not fix ends all processes (status 1). SIGTERM ends them with status 0, Ctrl-C with 130. No
    process is left running, even if this one is killed.

    Tells when all tasks have begun. Only one at a time runs a network with a state folder.
    """
    if apart and processes is not None:
        raise typer.BadParameter("needs one of --apart, --processes; found both")
    with Stop() as stop, ExitStack() as stack:
        network, place = load(net), read_settings()
        stack.enter_context(only_up(place.state, network.name))
        cluster = connect(place)
        stack.callback(cluster.close)
        plan = Patience(place.wait_ms).through(lambda: prepare(network, place, cluster))
        commands, pulse = network_commands(net, plan, apart=apart, most=processes), Pulse()
        ports = ports_after(place.listen, commands)
        listen = {name: {LISTEN: shown(address)} for name, address in ports.items()}
        page = page_command(net, port, commands) if ui else {}
        readiness = Readiness(cluster, plan)
        supervisor = Supervisor(commands | page, child_environ=listen, optional=page)
        with listening(place.listen, UpPort(pulse, supervisor, ports).answer), supervisor:
            stop.running, pulse.doing = True, "supervising"
            pulse.update((), Samples())
            is_ready = False
            while not stop():
                pulse.turn()
                supervisor.poll()
                if not is_ready and not readiness.waiting():
                    is_ready = True
                    readiness.close()
                    print_line(f"ready: {readiness.tasks} tasks run{_next(net, plan)}")
                time.sleep(_POLL_S)
            pulse.stopping()
        print_line("all processes have ended")
    raise typer.Exit(stop.status)


def _next(net: str, plan: CompiledPlan) -> str:
    """Return what to type next, for people."""
    arcs = [arc for arc in plan.topology.topics if arc in plan.boxes]
    if not arcs or not sys.stderr.isatty():
        return ""
    return f"; see errata tail {net} {arcs[-1]}, or errata dashboard {net} (Ctrl-C ends them)"


@command("run", example="errata run tape.py --scope ingest.trades --partitions 0,1")
def run(
    net: NetworkArgument,
    scope: Annotated[
        list[str],
        typer.Option(
            help="A scope of the network; ingest.SOURCE for that of a source. May be repeated: "
            "scopes in one process hand each other what they write."
        ),
    ],
    partitions: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Only these partitions; all by default.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only a part of the partitions: as 1/2, every second."),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Share the partitions of each scope with other processes of it, as a consumer "
            "group does: start more, or end some, at any time.",
        ),
    ] = False,
    sweep_beside: Annotated[
        bool,
        typer.Option(
            "--sweep-beside",
            help="Keep copies of connection points in this process; don't need `errata sweep`.",
        ),
    ] = False,
) -> None:
    """Run the tasks of a scope, or of several, until SIGTERM (status 0) or Ctrl-C (status 130).

    Creates the network's topics and deploys it if it is not deployed yet. It may be killed at any
    moment: the next run continues from the last commit.
    """
    given = {"--shared": shared, "--partitions": partitions, "--part": part}
    found = [option for option, value in given.items() if value]
    if len(found) > 1:
        raise typer.BadParameter(f"needs one of {', '.join(given)}; found {' and '.join(found)}")
    wanted = None if partitions is None else _numbers(partitions)
    some = ALL if part is None else _part(part)

    def take_on(worker: Worker) -> None:
        for name in dict.fromkeys(scope):
            worker.add_scope(
                name, partitions=wanted, part=some, shared=shared, sweep_beside=sweep_beside
            )

    _work(net, take_on)


@command("sweep", example="errata sweep tape.py --arc trades")
def sweep(
    net: NetworkArgument,
    arc: Annotated[
        list[str] | None,
        typer.Option(
            help="A connection point; may be repeated. By default all that boxes replay from."
        ),
    ] = None,
) -> None:
    """Serve the history of connection points to the boxes that request it.

    Ends as `errata run` does. Copies are kept in the state folder; a lost copy is read again.
    """
    _work(net, lambda worker: worker.add_sweepers(arc))


def _work(net: str, take_on: Callable[[Worker], None]) -> None:
    with Stop() as stop:
        network, place = load(net), read_settings()
        with serving(place.listen) as pulse:
            patience = Patience(place.wait_ms)
            worker = patience.through(lambda: _begun(network, place, pulse, patience, take_on))
            stop.running = True
            tune_garbage_collector()
            worker.run(stop)
    raise typer.Exit(stop.status)


def _begun(
    network: Network,
    place: Place,
    pulse: Pulse,
    patience: Patience,
    take_on: Callable[[Worker], None],
) -> Worker:
    worker = Worker(network, place, pulse, patience)
    try:
        take_on(worker)
    except BaseException:
        worker.close()
        raise
    return worker


def _part(text: str) -> Part:
    try:
        return Part.parse(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} needs two numbers, as 1/2 or 2/2", param_hint="--part"
        ) from error


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} needs numbers with commas, as 0,1", param_hint="--partitions"
        ) from error
