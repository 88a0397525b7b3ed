"""Which of Borealis' modes an aggregate can revise its closed windows by, and from where.

*Upstream* needs an anchor: the nearest connection point above. *Downstream* needs one at or below
the box's own arc, with nothing in between that loses the way back from a stored result to the box's
own: DESIGN 7 (a) and (b), judged here; (c), whether a stored result can be revised for the very
change at hand, is judged per change and falls back to upstream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from processors.boxes.aggregate import Aggregate
from processors.boxes.map import Map
from processors.boxes.states import DOWNSTREAM, UPSTREAM
from processors.boxes.where import Where
from processors.expressions.expression import Expression
from processors.faults import Fault
from processors.network import Network
from processors.replay import Box, ReplayPath
from processors.typed import Typed

ADAPTIVE = "adaptive"
MODES = (UPSTREAM, DOWNSTREAM, ADAPTIVE)


@dataclass(frozen=True)
class Choice:
    """How an aggregate revises its closed windows.

    Args:
        mode: ``upstream`` or ``downstream``.
        asked: What the user asked for.
        reason: Why this mode, or why not the other.
        results: Downstream: the connection point that holds the results emitted before.
    """

    mode: str
    asked: str
    reason: str
    results: str | None = None


def choose(
    network: Network, typed: Typed, *, mode: str | None
) -> tuple[dict[str, ReplayPath], dict[str, Choice], list[Fault]]:
    """Return by aggregate its replay path and its mode, and what is wrong; sets the boxes' mode."""
    paths: dict[str, ReplayPath] = {}
    choices: dict[str, Choice] = {}
    faults: list[Fault] = []
    for name, box in list(typed.boxes.items()):
        if not isinstance(box, Aggregate):
            continue
        path = find_anchor(typed, box)
        if path is None:
            faults.append(no_anchor(network, typed, name))
        else:
            paths[name] = path
        choice = judge(network, typed, box, asked=mode or box.mode)
        if isinstance(choice, Fault):
            faults.append(choice)
            continue
        choices[name] = choice
        filters = filters_between(network, typed, name, choice.results)
        typed.boxes[name] = replace(box, mode=choice.mode, filters=filters)
    faults += radius_faults(network, typed, paths)
    paths = {
        name: replace(
            path,
            between=tuple(typed.boxes[b.arc.name] for b in path.between),
            box=_aggregate(typed.boxes[name]),
        )
        for name, path in paths.items()
    }
    return paths, choices, faults


def no_anchor(network: Network, typed: Typed, name: str) -> Fault:
    """Return the fault of an aggregate that has nothing to replay closed windows from."""
    source = typed.source_of[name]
    return Fault(
        name,
        "a connection point upstream to replay closed windows from",
        f"no arc from source {source!r} down to it keeps its history",
        f'give source {source!r} keep="..." (e.g. keep="1d")',
        network.declarations[name].place,
    )


def _aggregate(box: Box) -> Aggregate:
    assert isinstance(box, Aggregate)
    return box


def find_anchor(typed: Typed, box: Aggregate) -> ReplayPath | None:
    """Return the way from the nearest connection point upstream to an aggregate."""
    between: list[Box] = []
    pushed = list(box.by)
    arc = box.input
    while not arc.is_connection_point:
        producer = typed.boxes.get(arc.name)
        if producer is None:
            return None
        between.insert(0, producer)
        if isinstance(producer, Map):
            pushed = [name for name in pushed if name not in producer.expressions]
        if isinstance(producer, Aggregate):
            pushed = [name for name in pushed if name in producer.by]
            arc = producer.input
        else:
            arc = typed.arcs[producer.input]
    return ReplayPath(arc, tuple(between), box, tuple(pushed))


def judge(network: Network, typed: Typed, box: Aggregate, *, asked: str) -> Choice | Fault:
    """Return the mode of an aggregate, or why the one asked for is not to be had."""
    name, place = box.arc.name, network.declarations[box.arc.name].place
    if asked not in MODES:
        return Fault(name, f"a mode of {', '.join(MODES)}", repr(asked), "use one of those", place)
    if asked == UPSTREAM:
        return Choice(UPSTREAM, asked, "asked for")
    results, why_not = find_results(network, typed, name)
    if results is not None:
        reason = "asked for" if asked == DOWNSTREAM else "fetches one result per window"
        return Choice(DOWNSTREAM, asked, f"{reason}; results are kept on {results!r}", results)
    if asked == ADAPTIVE:
        return Choice(UPSTREAM, asked, f"downstream is illegal: {why_not}")
    return Fault(
        name,
        "for mode='downstream' a connection point at or below its own arc that holds its results",
        why_not,
        "give this aggregate keep='...', or take mode='upstream'",
        place,
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
    readers = [d.name for d in network.declarations.values() if d.input == name]
    why = f"arc {name!r} keeps no history and no box reads it" if not readers else ""
    for reader in readers:
        box = typed.boxes.get(reader)
        if isinstance(box, Aggregate):
            why = f"aggregate {reader!r} below it does not keep its results' identity"
        elif isinstance(box, Where) and not box.predicate.columns <= set(arc.identity):
            used = ", ".join(sorted(box.predicate.columns - set(arc.identity)))
            why = f"filter {reader!r} below it hides results by {used}, not by identity alone"
        elif box is not None:
            found, why = find_results(network, typed, reader)
            if found is not None:
                return found, ""
    return None, why


def filters_between(
    network: Network, typed: Typed, name: str, results: str | None
) -> tuple[Expression, ...]:
    """Return the predicates on the way from an aggregate down to where its results are kept."""
    found: list[Expression] = []
    while results is not None and results != name:
        box = typed.boxes[results]
        assert not isinstance(box, Aggregate)
        if isinstance(box, Where):
            found.append(box.predicate)
        results = box.input
    return tuple(found)


def radius_faults(network: Network, typed: Typed, paths: dict[str, ReplayPath]) -> list[Fault]:
    """Return a fault for each anchor that keeps less than the radius asks for."""
    faults = []
    for anchor in dict.fromkeys(path.anchor.name for path in paths.values()):
        widest = max(
            (p for p in paths.values() if p.anchor.name == anchor), key=lambda p: p.radius_ms
        )
        keep = typed.arcs[anchor].keep_ms or 0
        if keep < widest.radius_ms:
            faults.append(
                Fault(
                    anchor,
                    f"keep of at least {widest.radius_ms} ms, the radius of the windows of "
                    f"{widest.box.arc.name!r} that it anchors",
                    f"keep of {keep} ms",
                    f"widen keep to {widest.radius_ms} ms or more",
                    network.declarations[anchor].place,
                )
            )
    return faults
