"""`errata connection-point`: lets boxes of a running network keep their history, or no longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from errata.cli.app import JsonOption, NetworkArgument, command, group
from errata.cli.deploy import carry_out, spark_session
from errata.cli.output import for_people, print_lines, print_table
from errata.cli.spark import ConfOption, MasterOption, spark_settings
from errata.deploy.deployment import DeployedNetwork, UnknownNameError
from errata.deploy.versions import plan_points, toggled_points
from errata.processors.declare.declarations import Source
from errata.processors.declare.network import Network
from errata.processors.plan import deployed
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import Deployed
from errata.processors.tasks import subjects
from errata.schemas.errors import ErrataError
from errata.settings.loading import load
from errata.settings.place import connect, read_settings
from errata.topics.registry_server import registry

_group = group(
    "connection-point",
    about="""Add a connection point to a running network, or drop one.

    A box with keep= in the network's file is one. Change the file first, then run this.""",
    has_default=False,
)

ArcArgument = Annotated[
    list[str],
    typer.Argument(metavar="ARC...", help="Boxes, by the names of their arcs.", show_default=False),
]


class PointError(ErrataError):
    """A connection point can't be added or dropped."""


@command("add", of=_group, example="errata connection-point add tape.py bars")
def add(
    net: NetworkArgument,
    arc: ArcArgument,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let boxes keep their history from now on; they have keep= in the network's file.

    Running processes of the network end by themselves, and input that has arrived is processed. The
    content of each arc as of that epoch is computed from the connection points above it, and is its
    history. Processes of the new version continue from there: they may replay it, or fetch results
    from it. If this is interrupted, run it again.
    """
    _change(net, arc, adds=True, master=master, conf=conf, as_json=as_json)


@command("drop", of=_group, example="errata connection-point drop tape.py bars")
def drop(
    net: NetworkArgument,
    arc: ArcArgument,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let boxes keep no history from now on; they have no keep= in the network's file.

    A box that would have no legal mode without it is named, and nothing changes. The old topics
    are kept. If this is interrupted, run it again.
    """
    _change(net, arc, adds=False, master=master, conf=conf, as_json=as_json)


def _change(
    net: str,
    arcs: Sequence[str],
    *,
    adds: bool,
    master: str | None,
    conf: list[str] | None,
    as_json: bool,
) -> None:
    settings, place, network = spark_settings(conf), read_settings(), load(net)
    cluster = connect(place)
    try:
        schemas = registry(cluster, place.registry)
        current = deployed.require_plan(cluster, network.name, remedy=f"run `errata up {net}`")
        check(network, current, arcs, adds=adds)
        version = plan_points(network, current, cluster, schemas)
        old, new = version.old, version.plan
        assert old is not None  # it is deployed
        if adds:
            _check_used(new, arcs)
        subjects.check(new, schemas)
        session = spark_session(net, old, place, master=master, settings=settings)
        running = DeployedNetwork(cluster, old, schemas, place.kafka)
        copied = carry_out(running, old, new, place=place, session=session)
    finally:
        cluster.close()
    _print(new, {arc: copied.get(arc) for arc in arcs} if adds else {}, as_json=as_json)


def check(network: Network, current: Deployed, arcs: Sequence[str], *, adds: bool) -> None:
    """Check that boxes can be added or dropped as connection points: as declared, and as deployed.

    Raises:
        UnknownNameError: If the network has no such box.
        PointError: If one is declared or deployed otherwise.
    """
    known, toggled = current.description["arcs"], toggled_points(network, current)
    for arc in arcs:
        box = network.declarations.get(arc)
        if box is None:
            names = ", ".join(
                n for n, b in network.declarations.items() if not isinstance(b, Source)
            )
            raise UnknownNameError(f"network {network.name!r} has no box {arc!r}: it has {names}")
        if isinstance(box, Source):
            raise PointError(
                f"{arc!r} is a source: its keep= also says how old a record may be, so it can't "
                "change; give the network another name"
            )
        if arc not in known:
            raise PointError(f"box {arc!r} is not deployed: `errata backfill` adds it")
        if (known[arc]["keep_ms"] is not None) == adds:
            state = "is a connection point already" if adds else "is no connection point"
            raise PointError(f"arc {arc!r} {state}")
        if arc not in toggled:
            what = "has no keep= in the network's file: add it there first, as keep='30d'"
            what = what if adds else "has keep= in the network's file: take it out there first"
            raise PointError(f"box {arc!r} {what}")
    if others := [name for name in toggled if name not in arcs]:
        named = ", ".join(map(repr, others))
        raise PointError(f"keep= of {named} differs from what is deployed, too: change it back")


def _check_used(plan: CompiledPlan, arcs: Sequence[str]) -> None:
    """Check that some box would use new connection points.

    Raises:
        PointError: If none would.
    """
    if unused := [arc for arc in arcs if arc not in plan.replayed_points()]:
        raise PointError(
            f"no box would replay {', '.join(map(repr, unused))}, or fetch results from there: a "
            "connection point would only cost"
        )


def _print(plan: CompiledPlan, copied: Mapping[str, int | None], *, as_json: bool) -> None:
    if as_json or not for_people():
        version = plan.deployment.version
        print_lines([{"network": plan.network, "version": version, "tuples": dict(copied)}])
        return
    title = f"{plan.network}: version {plan.deployment.version} is deployed"
    if copied:
        print_table(title, ["arc", "tuples"], [[arc, count] for arc, count in copied.items()])
    else:
        Console().print(title)
