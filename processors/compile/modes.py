"""Chooses each box's replay path and mode, among Borealis' modes.

A box decides for itself (`Box.choose_mode`, `Box.replayed_from`). This module supplies the boxes
around it: up to the connection points that replay its inputs, and down to the one that holds its
results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from errata.processors.boxes.base import Box, Filter
from errata.processors.boxes.modes import Choice, ModeRequest, Stored
from errata.processors.boxes.replay import Anchor, ReplayPath
from errata.processors.compile.typed import Typed
from errata.processors.declare.faults import Fault
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import owner_of
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas.arc import Arc


def choose(
    network: Network, typed: Typed, *, scopes: Mapping[str, str], mode: str | None
) -> tuple[dict[str, ReplayPath], dict[str, Choice], list[Fault]]:
    """Return replay paths of boxes that request history, modes of boxes, and faults.

    Args:
        network: The declared network.
        typed: Its boxes; they get their modes.
        scopes: The scope of each box.
        mode: Overrides the mode of every aggregate.
    """
    paths: dict[str, ReplayPath] = {}
    choices: dict[str, Choice] = {}
    faults: list[Fault] = []
    for name, box in list(typed.boxes.items()):
        if not box.requests_history:
            continue
        path = find_path(typed, box, scopes)
        if path is None:
            faults.append(no_anchor(network, typed, name))
        else:
            paths[name] = path
        choice = box.choose_mode(
            ModeRequest(
                mode,
                on_spark=name in typed.spark,
                find_results=partial(find_results, typed, name),
                place=network.declarations[owner_of(name)].place,
            )
        )
        if isinstance(choice, Fault):
            faults.append(replace(choice, box=owner_of(choice.box)))
        elif choice is not None:
            choices[name] = choice
            typed.boxes[name] = box.in_mode(choice, filters_between(typed, name, choice.results))
    faults += radius_faults(network, typed, paths)
    paths = {
        name: replace(
            path,
            between=tuple(typed.boxes[b.arc.name] for b in path.between),
            box=typed.boxes[name],
        )
        for name, path in paths.items()
    }
    return paths, choices, faults


def no_anchor(network: Network, typed: Typed, name: str) -> Fault:
    """Return the fault of a box without a connection point to replay from."""
    sources = typed.sources_of[name]
    mover = next((box for box in _above(typed, name) if box.moves_event_time), None)
    named = " and ".join(map(repr, sources))
    above = [b.arc for b in _above(typed, name) if not b.arc.exchange]
    job = next((arc.name for arc in above if arc.name in typed.spark), None)
    actual = f"no arc from source {named} down to it keeps its history"
    remedy = f'give source {named} keep="..." (e.g. keep="1d")'
    if job is not None:
        job = owner_of(job)
        actual = f"box {job!r} on Spark takes several epochs at once and keeps no history"
        remedy = f'give box {job!r} keep="..." (e.g. keep="1d")'
    elif mover is not None:
        moves = owner_of(mover.arc.name)
        actual = f"map {moves!r} replaces the event time, and no arc from there keeps its history"
        remedy = f'give map {moves!r} keep="..." (e.g. keep="1d")'
    owner = owner_of(name)
    place = network.declarations[owner].place
    return Fault(owner, typed.boxes[name].need, actual, remedy, place)


def _above(typed: Typed, name: str) -> Iterator[Box]:
    """Yield the boxes above a box, the nearest first, up to connection points."""
    for arc in typed.boxes[name].inputs:
        if arc in typed.boxes and not typed.arcs[arc].is_connection_point:
            yield typed.boxes[arc]
            yield from _above(typed, arc)


def find_results(typed: Typed, name: str) -> Stored:
    """Return the connection point that holds an aggregate's results, or why there is none.

    Boxes in between must keep the identity and the hidden fields of each result. A filter in
    between may depend on the identity alone: a missing result is then known to be filtered out, and
    is replayed instead.
    """
    arc = typed.arcs[name]
    if arc.is_connection_point:
        return Stored(name, "")
    readers = [reader for reader, box in typed.boxes.items() if name in box.inputs]
    why_not = f"arc {name!r} keeps no history and no box reads it"
    for reader in readers:
        hidden = typed.boxes[reader].hides_results(arc.identity)
        if typed.arcs[reader].exchange:
            why_not = f"{owner_of(reader)!r} below it repartitions its results"
        elif hidden is not None:
            why_not = hidden
        else:
            stored_in, why_not = find_results(typed, reader)
            if stored_in is not None:
                return Stored(stored_in, "")
    return Stored(None, why_not)


def filters_between(typed: Typed, name: str, results: str | None) -> tuple[Filter, ...]:
    """Return the filters between an aggregate and the connection point that holds its results."""
    filters: list[Filter] = []
    while results is not None and results != name:
        box = typed.boxes[results]
        if box.filter is not None:
            filters.append(box.filter)
        results = box.inputs[0]
    return tuple(filters)


def radius_faults(network: Network, typed: Typed, paths: dict[str, ReplayPath]) -> list[Fault]:
    """Return a fault for each anchor whose `keep` is below the required radius.

    An infinite radius is exempt: results over whole histories never expire, whatever their `keep`.
    """
    faults = []
    anchors = [anchor.arc.name for path in paths.values() for anchor in path.anchors]
    for anchor in dict.fromkeys(anchors):
        radii = {name: path.radius_ms(anchor) for name, path in paths.items()}
        radii = {name: radius for name, radius in radii.items() if radius < FOREVER_MS}
        widest = max(radii, key=lambda name: radii[name], default="")
        keep, needed = typed.arcs[anchor].keep_ms or 0, radii.get(widest, 0)
        if keep < needed:
            faults.append(
                Fault(
                    anchor,
                    f"keep of at least {needed} ms, the radius of the windows of "
                    f"{widest!r} that it anchors",
                    f"keep of {keep} ms",
                    f"widen keep to {needed} ms or more",
                    network.declarations[owner_of(anchor)].place,
                )
            )
    return faults


def find_path(typed: Typed, box: Box, scopes: Mapping[str, str]) -> ReplayPath | None:
    """Return the replay path from the nearest upstream connection points to a box.

    None if some way up has no connection point, or has a map that replaces the event time (the
    needed event times of the anchor are then unknown), or a box on Spark of another scope.
    """
    anchors: dict[str, Anchor] = {}
    between: set[str] = set()
    own = {name for name in typed.spark if scopes[name] == scopes[box.arc.name]}
    # sweepers don't know in a batch what else the job writes in it
    beside = own if box.is_grouped_on_spark and box.arc.name in own else set[str]()

    def walk(
        arc: Arc, pushed: dict[str, str], extent_ms: int, everywhere: bool, ahead: bool
    ) -> bool:
        if arc.is_connection_point and arc.name not in beside:
            known = anchors.get(arc.name) or Anchor(arc, pushed, extent_ms, everywhere)
            anchors[arc.name] = Anchor(
                arc,
                dict(known.pushed.items() & pushed.items()),
                max(known.extent_ms, extent_ms),
                known.everywhere or everywhere,
                known.ahead or ahead,
            )
            return True
        producer = typed.boxes.get(arc.name)
        if producer is None:
            return False
        if arc.name in typed.spark and arc.name not in own:
            return False  # Spark coalesces epochs: its inputs can't reproduce its content as of one
        requested = producer.replayed_from(pushed)
        if requested is None:
            return False
        between.add(arc.name)
        everywhere |= arc.exchange
        extent_ms += producer.extent_ms
        ahead |= producer.looks_ahead
        return all(
            walk(typed.arcs[name], fields, extent_ms, everywhere, ahead)
            for name, fields in requested.items()
        )

    inputs = [(arc, {field: group for group, field in by.items()}) for arc, by in box.keyed]
    if not all([walk(arc, pushed, 0, False, False) for arc, pushed in inputs]):
        return None
    ordered = tuple(each for name, each in typed.boxes.items() if name in between)
    return ReplayPath(tuple(anchors.values()), ordered, box)
