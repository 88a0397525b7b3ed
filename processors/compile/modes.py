"""Which of Borealis' modes an aggregate can revise its closed windows by, and from where.

*Upstream* needs an anchor: the nearest connection point above. *Downstream* needs one at or below
the box's own arc, with nothing in between that loses the way back from a stored result to the box's
own. That is judged here, and that its results carry their states at all. Whether a stored result
can be revised for the very change at hand is judged per change, and falls back to upstream
(``docs/architecture.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.aggregating import RESIDENT, Aggregating
from errata.processors.boxes.asking import Asking
from errata.processors.boxes.counting import Counting
from errata.processors.boxes.forward import Forward
from errata.processors.boxes.join import Join
from errata.processors.boxes.lag import Lag
from errata.processors.boxes.map import Map
from errata.processors.boxes.modes import ADAPTIVE, MODES, NO_RADIUS, Choice
from errata.processors.boxes.ordered import Ordered
from errata.processors.boxes.replay import Box, ReplayPath
from errata.processors.boxes.states import DOWNSTREAM, UPSTREAM, Result
from errata.processors.boxes.union import Union
from errata.processors.boxes.where import Where
from errata.processors.compile.replay_path import find_path
from errata.processors.compile.typed import Typed
from errata.processors.declare.faults import Fault
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import owner_of
from errata.processors.windows.time_windows import FOREVER_MS


def choose(
    network: Network, typed: Typed, *, mode: str | None
) -> tuple[dict[str, ReplayPath], dict[str, Choice], list[Fault]]:
    """Return by aggregate its replay path and its mode, and what is wrong; sets the boxes' mode."""
    paths: dict[str, ReplayPath] = {}
    choices: dict[str, Choice] = {}
    faults: list[Fault] = []
    for name, box in list(typed.boxes.items()):
        if not isinstance(box, Asking) or not box.asks:
            continue
        path = find_path(typed, box)
        if path is None:
            faults.append(no_anchor(network, typed, name))
        else:
            paths[name] = path
        if not isinstance(box, Aggregate | Ordered):
            continue
        choice = _judged(network, typed, box, mode)
        if isinstance(choice, Fault):
            faults.append(choice)
            continue
        choices[name] = choice
        if isinstance(box, Aggregate):
            filters = filters_between(network, typed, name, choice.results)
            typed.boxes[name] = replace(box, mode=choice.mode, filters=filters)
        elif isinstance(box, Counting):
            typed.boxes[name] = replace(box, mode=choice.mode)
    faults += radius_faults(network, typed, paths)
    paths = {
        name: replace(
            path,
            between=tuple(typed.boxes[b.arc.name] for b in path.between),
            box=_asking(typed.boxes[name]),
        )
        for name, path in paths.items()
    }
    return paths, choices, faults


def no_anchor(network: Network, typed: Typed, name: str) -> Fault:
    """Return the fault of an aggregate that has nothing to replay closed windows from."""
    sources = typed.sources_of[name]
    mover = next((box for box in _above(typed, name) if isinstance(box, Map) and box.moves), None)
    told = " and ".join(map(repr, sources))
    job = next((b.arc.name for b in _above(typed, name) if b.arc.name in typed.spark), None)
    found = f"no arc from source {told} down to it keeps its history"
    remedy = f'give source {told} keep="..." (e.g. keep="1d")'
    if job is not None:
        found = f"aggregate {job!r} on Spark takes several epochs at once and keeps no history"
        remedy = f'give aggregate {job!r} keep="..." (e.g. keep="1d")'
    elif mover is not None:
        moves = owner_of(mover.arc.name)
        found = f"map {moves!r} replaces the event time, and no arc from there keeps its history"
        remedy = f'give map {moves!r} keep="..." (e.g. keep="1d")'
    owner, need = owner_of(name), "a connection point upstream to replay closed windows from"
    if isinstance(typed.boxes[name], Ordered):
        need = "a connection point upstream to read the tuples of a group from, in order"
    elif not isinstance(typed.boxes[name], Aggregate):
        need = "a connection point upstream of each side, to look its tuples up in"
    return Fault(owner, need, found, remedy, network.declarations[owner].place)


def _above(typed: Typed, name: str) -> Iterator[Box]:
    """Yield the boxes above a box, the nearest first, up to connection points."""
    for arc in typed.boxes[name].inputs:
        if arc in typed.boxes and not typed.arcs[arc].is_connection_point:
            yield typed.boxes[arc]
            yield from _above(typed, arc)


def _asking(box: Box) -> Asking:
    assert isinstance(box, Asking)
    return box


def _judged(network: Network, typed: Typed, box: Asking, mode: str | None) -> Choice | Fault:
    if isinstance(box, Ordered):
        return judge_in_order(network, box, mode=mode)
    assert isinstance(box, Aggregate)
    if box.arc.name in typed.spark:
        return judge_on_spark(network, box)
    return judge(network, typed, box, asked=mode or box.mode)


def judge(network: Network, typed: Typed, box: Aggregate, *, asked: str) -> Choice | Fault:
    """Return the mode of an aggregate, or why the one asked for is not to be had."""
    name, place = box.arc.name, network.declarations[box.arc.name].place
    if asked not in MODES:
        return Fault(name, f"a mode of {', '.join(MODES)}", repr(asked), "use one of those", place)
    if asked in (UPSTREAM, RESIDENT):
        return Choice(asked, asked, "asked for")
    if forgotten := next(filter(_is_forgotten, box.results.values()), None):
        results, why_not = None, f"{forgotten.text} can't be revised from a stored result"
        remedy = f"take mode={UPSTREAM!r} or mode={RESIDENT!r}, or leave mode= out"
    else:
        results, why_not = find_results(network, typed, name)
        remedy = "give this aggregate keep='...', or take mode='upstream'"
    if results is not None:
        reason = "asked for" if asked == DOWNSTREAM else "fetches one result per window"
        return Choice(DOWNSTREAM, asked, f"{reason}; results are kept on {results!r}", results)
    if asked == ADAPTIVE:
        return Choice(UPSTREAM, asked, f"downstream is illegal: {why_not}")
    return Fault(
        name,
        "for mode='downstream' a connection point at or below its own arc that holds its results",
        why_not,
        remedy,
        place,
    )


def judge_in_order(network: Network, box: Ordered, *, mode: str | None) -> Choice | Fault:
    """Return the mode of a box that goes by the order of tuples.

    What is asked for all aggregates doesn't concern it, unless that is to keep everything.
    """
    if not isinstance(box, Counting):
        return Choice(ADAPTIVE, ADAPTIVE, "reads a group again from its beginning")
    asked = RESIDENT if mode == RESIDENT else box.mode
    if asked in (ADAPTIVE, RESIDENT):
        reason = "asked for" if asked == RESIDENT else "reads a group again from its beginning"
        return Choice(asked, asked, reason)
    return Fault(
        box.arc.name,
        f"mode={ADAPTIVE!r} or mode={RESIDENT!r} with windows that count tuples",
        f"{asked!r}, but {NO_RADIUS}",
        "leave mode= out",
        network.declarations[box.arc.name].place,
    )


def _is_forgotten(result: Result) -> bool:
    """Return whether a result carries nothing of some state behind it."""
    return not all(emission.state.function.kept for emission in result.emissions)


def judge_on_spark(network: Network, box: Aggregate) -> Choice | Fault:
    """Return the mode of an aggregate on Spark: states are at hand, or the window is replayed."""
    name, asked = box.arc.name, box.mode
    if asked in (UPSTREAM, ADAPTIVE):
        return Choice(UPSTREAM, asked, "on Spark, for windows of which no state is kept any more")
    return Fault(
        name,
        f"mode={ADAPTIVE!r} or mode={UPSTREAM!r} beside place='spark'",
        repr(asked),
        "leave mode= out: Spark keeps the states of windows",
        network.declarations[name].place,
    )


def find_results(network: Network, typed: Typed, name: str) -> tuple[str | None, str]:
    """Return the connection point that holds an aggregate's results, or None and why there is none.

    Boxes in between must be stateless and keep the identity and the hidden part (every map does). A
    filter in between may judge by identity alone: then a result that isn't there is known to be
    hidden, and is replayed instead.
    """
    arc = typed.arcs[name]
    if arc.is_connection_point:
        return name, ""
    readers = [reader for reader, box in typed.boxes.items() if name in box.inputs]
    why = f"arc {name!r} keeps no history and no box reads it" if not readers else ""
    for reader in readers:
        box = typed.boxes.get(reader)
        if isinstance(box, Aggregating):
            why = f"aggregate {reader!r} below it does not keep its results' identity"
        elif isinstance(box, Forward) or typed.arcs[reader].exchange:
            why = f"{owner_of(reader)!r} below it repartitions its results"
        elif isinstance(box, Union | Join | Lag):
            kind = type(box).__name__.lower()
            why = f"{kind} {reader!r} below it does not carry the states behind its results"
        elif isinstance(box, Map) and box.moves:
            why = f"map {reader!r} below it replaces the event time of its results"
        elif isinstance(box, Map) and box.is_opaque:
            why = f"map {reader!r} below it calls a Python function, which may leave results out"
        elif isinstance(box, Where) and not box.columns <= set(arc.identity):
            used = ", ".join(sorted(box.columns - set(arc.identity)))
            why = f"filter {reader!r} below it hides results by {used}, not by identity alone"
        elif box is not None:
            found, why = find_results(network, typed, reader)
            if found is not None:
                return found, ""
    return None, why


def filters_between(
    network: Network, typed: Typed, name: str, results: str | None
) -> tuple[Where, ...]:
    """Return the filters on the way from an aggregate down to where its results are kept."""
    found: list[Where] = []
    while results is not None and results != name:
        box = typed.boxes[results]
        assert isinstance(box, Where | Map)
        if isinstance(box, Where):
            found.append(box)
        results = box.input
    return tuple(found)


def radius_faults(network: Network, typed: Typed, paths: dict[str, ReplayPath]) -> list[Fault]:
    """Return a fault for each anchor that keeps less than the radius asks for.

    Behind a whole history nothing is ever forgotten, whatever its keep: that needs none.
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
                    network.declarations[anchor].place,
                )
            )
    return faults
