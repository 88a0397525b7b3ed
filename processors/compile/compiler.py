"""Compiles a declared network into a plan: types, scopes, anchors, modes.

`compile_network` finds every fault before anything runs and reports all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from errata.processors.boxes.replay import ReplayPath
from errata.processors.compile.boxes import type_boxes
from errata.processors.compile.modes import choose
from errata.processors.compile.scopes import assign_scopes, make_scopes
from errata.processors.compile.typed import Typed
from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.declare.network import Network
from errata.processors.plan.plan import Plan


def compile_network(
    network: Network,
    *,
    mode: str | None = None,
    every_arc: bool = False,
    on_spark: bool = True,
) -> Plan:
    """Check a network and compile it into a plan.

    Args:
        network: The declared network.
        mode: Overrides the mode of every aggregate.
        every_arc: Write every arc to a topic, not only those that are read: for `Driver`.
        on_spark: Whether aggregates placed on Spark run there; if not, Errata's processes run them,
            on one partition.

    Raises:
        NetworkError: If it can't run; holds every fault.
    """
    typed = type_boxes(network)
    if not on_spark:
        typed.spark.clear()
    faults = list(typed.faults)
    if not network.declarations:
        faults.append(Fault(network.name, "at least one source", "none", "declare one"))
    scopes = assign_scopes(network, typed, faults)
    paths, choices, more = choose(network, typed, mode=mode)
    faults += more
    if faults:
        raise NetworkError(network.name, faults)
    readers = {arc for box in typed.boxes.values() for arc in box.inputs}
    readers |= {name for d in network.declarations.values() for name in d.reads}
    crossing = {
        arc
        for name, box in typed.boxes.items()
        for arc in box.inputs
        if scopes[name] != scopes[arc]
    }
    written = tuple(
        name
        for name, arc in typed.arcs.items()
        if not arc.sink
        and (
            every_arc
            or arc.is_connection_point
            or name in crossing
            or name in typed.sources
            or name not in readers
        )
    )
    return Plan(
        network=network.name,
        sources=typed.sources,
        boxes=typed.boxes,
        scopes=make_scopes(typed, scopes, written),
        arcs=typed.arcs,
        topics=written,
        paths=paths,
        choices=choices,
        sources_of=typed.sources_of,
        kept_ms=kept(typed),
        exchanged=typed.exchanged,
        sinks=tuple(typed.sinks),
        spark=horizons(typed, paths),
    )


def horizons(typed: Typed, paths: Mapping[str, ReplayPath]) -> dict[str, int]:
    """Return how long each aggregate on Spark keeps states; by default while they may change."""
    keeps = kept(typed)
    return {
        name: max(keeps[anchor.arc.name] for anchor in paths[name].anchors)
        if asked is None
        else asked
        for name, asked in typed.spark.items()
    }


def kept(typed: Typed) -> dict[str, int]:
    """Return the `keep` of each connection point in ms: at least that of its sources."""
    result = {}
    for name, arc in typed.arcs.items():
        if arc.keep_ms is not None:
            sources = [typed.arcs[source].keep_ms or 0 for source in typed.sources_of[name]]
            result[name] = max(arc.keep_ms, *sources)
    return result
