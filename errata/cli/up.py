"""`errata up`: runs all processes of a network on this machine."""

from __future__ import annotations

import time

import typer

from errata.cli.app import NetworkArgument, command
from errata.deploy.preparation import prepare
from errata.observe.port import listening
from errata.observe.pulse import Pulse
from errata.observe.samples import Samples
from errata.run.stopping import Stop
from errata.run.supervisor import Supervisor, network_commands
from errata.run.supervisor_port import UpPort, ports_after, shown
from errata.settings.loading import load
from errata.settings.place import connect
from errata.settings.settings import LISTEN, read_settings

_POLL_S = 0.1


@command("up", example="KAFKA_BOOTSTRAP_SERVERS=localhost:9092 errata up tape.py")
def up(net: NetworkArgument) -> None:
    """Run a whole network on this machine: a process for each source, and one for each scope.

    Creates the topics and deploys the network if it is not deployed yet. A process that dies is
    restarted. An error that a restart does not fix ends all processes (status 1). SIGTERM ends them
    with status 0, Ctrl-C with 130. No process is left running, even if this one is killed.
    """
    with Stop() as stop:
        network, place = load(net), read_settings()
        cluster = connect(place)
        try:
            plan = prepare(network, place, cluster)  # reports errors once, here
        finally:
            cluster.close()
        commands, pulse = network_commands(net, plan), Pulse()
        ports = ports_after(place.listen, commands)
        listen = {name: {LISTEN: shown(address)} for name, address in ports.items()}
        supervisor = Supervisor(commands, own=listen)
        with listening(place.listen, UpPort(pulse, supervisor, ports).answer), supervisor:
            stop.running, pulse.doing = True, "supervising"
            pulse.tell((), Samples())
            while not stop():
                pulse.turn()
                supervisor.poll()
                time.sleep(_POLL_S)
            pulse.stopping()
    raise typer.Exit(stop.status)
