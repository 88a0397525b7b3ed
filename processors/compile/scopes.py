"""Assigns boxes to scopes: the boxes that run together in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from errata.processors.compile.typed import Typed, upward
from errata.processors.declare.faults import Fault
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import owner_of, scope_owner
from errata.processors.plan.topology import ingest_scope, owning_scope
from errata.processors.wire.task_id import ScopeId
from errata.topics import names

_READERS = "-readers"


def assign_scopes(network: Network, typed: Typed, faults: list[Fault]) -> dict[str, str]:
    """Return the scope of every box and source.

    A box runs in the scope that it declares, else in its input's; directly behind a source, in one
    of the source's name. A box that reads an exchange, or arcs of several scopes, has a scope of
    its own name. Boxes on Spark have scopes of their own (`_stages`), which also take the filters
    and maps that only they read; other boxes that read their arcs run in another scope.
    """
    scopes = {name: ingest_scope(name) for name in typed.sources}
    chosen = {name for name in typed.boxes if _own_choice(network, name) is not None}
    stages = _stages(typed, {name: _own_choice(network, name) for name in chosen})
    for name, box in typed.boxes.items():
        above = box.inputs
        input_scopes = {ScopeId.parse(scopes[arc]).name for arc in above}
        if name in chosen:
            scopes[name] = _own_choice(network, name) or ""
        elif name in stages:
            scopes[name] = stages[name]
        elif any(typed.arcs[arc].exchange for arc in above) or len(input_scopes) > 1:
            scopes[name] = scope_owner(name).replace(".", "-")  # an exchange's name has a dot
        elif above[0] in typed.spark:
            scopes[name] = above[0] + _READERS
        else:
            scopes[name] = input_scopes.pop()
    for name in reversed(typed.boxes):
        readers = {scopes[reader] for reader, box in typed.boxes.items() if name in box.inputs}
        if name not in chosen and len(readers) == 1 and _may_run_on_spark(typed, name):
            on_spark = {scopes[box] for box in typed.spark}
            scopes[name] = readers.pop() if readers <= on_spark else scopes[name]
    faults += scope_faults(network, typed, scopes)
    faults += spark_faults(network, typed, scopes)
    faults += _torn_apart(network, typed, scopes)
    return scopes


def _stages(typed: Typed, chosen: Mapping[str, str | None]) -> dict[str, str]:
    """Return the scope of each box on Spark: those of a scope are one query.

    A box runs with the boxes on Spark whose arcs it reads, if these keep no history. Of the others,
    those that read arcs of the same scopes run together, but each aggregate alone. Where a box
    would wait for the watermark of sources that it does not come from, another job begins.
    """
    stages: dict[str, str] = {}
    first: dict[frozenset[str], str] = {}
    for name in typed.spark:
        if name in chosen:
            stages[name] = chosen[name] or ""
            continue
        box = typed.boxes[name]
        above = [a for a in box.inputs if a in stages and not typed.arcs[a].is_connection_point]
        joined = list(dict.fromkeys(stages[arc] for arc in above))
        if not joined and box.is_grouped_on_spark:
            joined = [owner_of(name)]
        elif not joined:
            joined = [first.setdefault(frozenset(box.inputs), owner_of(name))]
        members = [name, *(n for n, stage in stages.items() if stage in joined)]
        waiting = [n for n in members if typed.boxes[n].emits_on_close]
        if waiting and len(_sources(typed, waiting) | {_all_sources(typed, members)}) > 1:
            joined = [owner_of(name)]
            stages |= {a: joined[0] for a in box.inputs if a in stages and typed.arcs[a].exchange}
        stages = {n: joined[0] if stage in joined else stage for n, stage in stages.items()}
        stages[name] = joined[0]
    return stages


def _own_choice(network: Network, box: str) -> str | None:
    declaration = network.declarations.get(scope_owner(box))
    return None if declaration is None else declaration.scope


def _may_run_on_spark(typed: Typed, name: str) -> bool:
    """Whether a box can run in the Spark job that reads it: it processes one tuple at a time."""
    arc, has_sink = typed.arcs[name], any(sink.arc == name for sink in typed.sinks)
    return typed.boxes[name].runs_before_spark and not (
        arc.exchange or arc.is_connection_point or has_sink
    )


def spark_faults(network: Network, typed: Typed, scopes: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the faults of the scopes of boxes on Spark."""
    for scope in dict.fromkeys(scopes[box] for box in typed.spark):
        members = [box for box in typed.boxes if scopes[box] == scope]
        on_spark = [box for box in members if box in typed.spark]
        bad = [
            box
            for box in members
            if box not in typed.spark
            and (
                not _may_run_on_spark(typed, box) or typed.spark.keys() & {*typed.boxes[box].inputs}
            )
        ]
        if bad:
            yield Fault(
                owner_of(on_spark[-1]),
                "in its scope no other boxes but those on Spark, and filters and maps upstream of "
                "them that no other box reads, without keep= and sinks",
                ", ".join(map(repr, bad)),
                "give these a scope of their own, with scope=",
                network.declarations[owner_of(on_spark[-1])].place,
            )


def _torn_apart(network: Network, typed: Typed, scopes: Mapping[str, str]) -> Iterator[Fault]:
    """Yield a fault for each box whose disjoint inputs come through several jobs.

    A job takes epochs together, so that a tuple may come by one way before it leaves another.
    """
    for name, box in typed.boxes.items():
        ways = [{*upward(typed, arc)} for arc in box.disjoint]
        apart = set[str]().union(*ways) - (ways[0].intersection(*ways) if ways else set())
        on_ways = [b for b in typed.boxes if b in apart or (ways and b == name)]
        on_spark = [b for b in on_ways if b in typed.spark]
        if on_spark and len({scopes[b] for b in on_ways}) > 1:
            yield Fault(
                owner_of(name),
                "the boxes from a route to a union of its outputs in one place: all in Errata's "
                "processes, or all in one job on Spark",
                f"{', '.join(map(repr, on_spark))} on Spark, and boxes in other scopes",
                "give all of them, or none, place='spark', and none of them keep= or scope=",
                network.declarations[owner_of(name)].place,
            )


def scope_faults(network: Network, typed: Typed, scopes: dict[str, str]) -> Iterator[Fault]:
    """Yield the faults of a division into scopes."""
    after: dict[str, set[str]] = {}
    for name, box in typed.boxes.items():
        place = network.declarations[owner_of(name)].place
        for arc in box.inputs:
            scope, above = scopes[name], scopes[arc]
            if scope == above:
                if typed.arcs[arc].exchange and name not in typed.spark:
                    yield Fault(
                        name,
                        "a scope of its own, since its tuples come from other partitions",
                        f"scope {scope!r}, in which {typed.boxes[arc].inputs[0]!r} is read",
                        "leave its scope= out, or name another one",
                        place,
                    )
                continue
            after.setdefault(scope, set()).add(above)
            if reaches(after, above, scope):
                yield Fault(
                    name,
                    "scopes without a cycle",
                    f"scope {scope!r} reads from {above!r}, which reads from {scope!r}",
                    "put the boxes between them into one scope, or give this box a scope of its "
                    "own",
                    place,
                )
    first = {scopes[name]: owner_of(name) for name in reversed(typed.boxes)}
    places = {scope: network.declarations[box].place for scope, box in first.items()}
    for scope, owner in first.items():
        if not names.is_part(scope):
            need = "a scope name of letters, digits, _ and -"
            yield Fault(owner, need, repr(scope), "rename the scope", places[scope])
    taken = {owning_scope(name) for name, source in typed.sources.items() if source.rekey}
    for scope in sorted(taken & first.keys()):
        need, found = "a scope name of its own", f"{scope!r}, that of a rekeyed source"
        yield Fault(first[scope], need, found, "rename the scope", places[scope])
    for scope, sources in sources_by_scope(typed, scopes).items():
        if len(sources) > 1:
            named = " and ".join(sorted(", ".join(some) for some in sources))
            yield Fault(
                scope,
                "boxes that come from the same sources",
                f"boxes behind {named} in one scope",
                "give the boxes behind each source a scope of their own, with scope=",
                places[scope],
            )


def sources_by_scope(typed: Typed, scopes: Mapping[str, str]) -> dict[str, set[tuple[str, ...]]]:
    """Return, for each scope, the sources behind each of its boxes; there should be one set.

    In a scope all sources make the watermark. A box in a job on Spark may come from fewer of them,
    unless its results wait for the watermark.
    """
    jobs = {scopes[name] for name in typed.spark}
    of_scopes: dict[str, set[tuple[str, ...]]] = {}
    for scope in dict.fromkeys(scopes[name] for name in typed.boxes):
        boxes = [name for name in typed.boxes if scopes[name] == scope]
        waiting = [n for n in boxes if scope not in jobs or typed.boxes[n].emits_on_close]
        if waiting:
            of_scopes[scope] = _sources(typed, waiting) | {_all_sources(typed, boxes)}
    return of_scopes


def _sources(typed: Typed, boxes: Iterable[str]) -> set[tuple[str, ...]]:
    return {tuple(sorted(typed.sources_of[name])) for name in boxes}


def _all_sources(typed: Typed, boxes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({source for name in boxes for source in typed.sources_of[name]}))


def reaches(after: dict[str, set[str]], start: str, goal: str) -> bool:
    """Whether the scope `start` reads from `goal`, directly or not."""
    found, due = {start}, [start]
    while due:  # there may be cycles already, each of which is a fault
        new = after.get(due.pop(), set()) - found
        found |= new
        due += new
    return goal in found


def members(typed: Typed, scopes: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the boxes of each scope, in topological order; none for owners of rekeyed sources."""
    boxes: dict[str, list[str]] = {
        owning_scope(name): [] for name, source in typed.sources.items() if source.rekey
    }
    for name in typed.boxes:
        boxes.setdefault(scopes[name], []).append(name)
    return boxes
