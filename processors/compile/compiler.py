"""Compiles a declared network into a plan: types, scopes, anchors, modes.

`compile_network` finds every fault before anything runs and reports all of them at once. It first
types every arc and builds the box that writes it; each kind of box is typed in its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from errata.processors.boxes.forward import Forward
from errata.processors.boxes.map import Map
from errata.processors.boxes.replay import ReplayPath
from errata.processors.boxes.where import Where
from errata.processors.compile.aggregate import type_aggregate, type_distinct
from errata.processors.compile.join import type_join, type_lookup
from errata.processors.compile.lag import type_lag
from errata.processors.compile.loop import type_iterate
from errata.processors.compile.modes import choose
from errata.processors.compile.places import place_boxes
from errata.processors.compile.scopes import assign_scopes, members
from errata.processors.compile.significance import keep_back
from errata.processors.compile.sources_and_sinks import refuse_own_topics, type_sinks, type_source
from errata.processors.compile.typed import (
    NAME_RULE,
    Typed,
    bad_name,
    correction,
    duration,
    fault,
    passing,
    positive,
    visible,
)
from errata.processors.compile.union import type_union
from errata.processors.declare import declarations as declared
from errata.processors.declare.faults import Fault, NetworkError
from errata.processors.declare.network import Network
from errata.processors.expressions.expression import (
    Expression,
    compile_event_time,
    compile_expression,
)
from errata.processors.expressions.opaque import Opaque
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.placement import Placement
from errata.processors.plan.plan import Deployment
from errata.processors.plan.topology import Topology
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError

HORIZON_MS = 86_400_000
"""How long an aggregate on Spark keeps a state after its window has closed, by default: a day."""


def compile_network(
    network: Network,
    *,
    mode: str | None = None,
    every_arc: bool = False,
    on_spark: bool = True,
) -> CompiledPlan:
    """Check a network and compile it into a plan.

    Args:
        network: The declared network.
        mode: Overrides the mode of every aggregate.
        every_arc: Write every arc to a topic, not only those that are read: for `Driver`.
        on_spark: Whether boxes placed on Spark run there; if not, Errata's processes run them, on
            one partition.

    Raises:
        NetworkError: If it can't run; holds every fault.
    """
    typed = type_boxes(network)
    if not on_spark:
        typed.spark.clear()
        typed.sources = {name: replace(s, on_spark=False) for name, s in typed.sources.items()}
    faults = list(typed.faults)
    if not network.declarations:
        faults.append(Fault(network.name, "at least one source", "none", "declare one"))
    scopes = assign_scopes(network, typed, faults)
    paths, choices, more = choose(network, typed, scopes=scopes, mode=mode)
    faults += more
    faults += _refuse_bound(typed, paths)
    if faults:
        raise NetworkError(network.name, faults)
    topology = Topology.of(
        network.name,
        sources=typed.sources,
        arcs=typed.arcs,
        boxes={name: box.describe() for name, box in typed.boxes.items()},
        reads={name: box.inputs for name, box in typed.boxes.items()},
        scopes=members(typed, scopes),
        sinks=tuple(typed.sinks),
        spark=horizons(typed, paths),
        modes={name: choice.mode for name, choice in choices.items()},
        every_arc=every_arc,
    )
    plan = CompiledPlan(
        Placement(topology),
        Deployment(network.name, bound=topology.bound),
        boxes=typed.boxes,
        paths=paths,
        choices=choices,
        kept_ms=kept(typed),
        requested=typed.exchanged,
    )
    if faults := refuse_own_topics(network, plan):
        raise NetworkError(network.name, faults)
    return plan


def _refuse_bound(typed: Typed, paths: Mapping[str, ReplayPath]) -> Iterator[Fault]:
    """Yield a fault for each box on Spark that would read a bound source."""
    for name in typed.spark:
        read = [anchor.arc.name for anchor in paths[name].anchors] if name in paths else []
        for source in {*typed.boxes[name].inputs, *read}:
            if source in typed.sources and typed.sources[source].is_bound:
                need = "a box with keep= between a box on Spark and the arc it is bound to"
                remedy = "put a filter of all tuples there, with keep="
                yield Fault(name, need, f"source {source!r}, of another network", remedy)


def horizons(typed: Typed, paths: Mapping[str, ReplayPath]) -> dict[str, int]:
    """Return how long each aggregate on Spark keeps states; by default a day, if so long.

    0 for other boxes on Spark: they keep what a revision may need.
    """
    keeps = kept(typed)
    horizons_ms = dict[str, int]()
    for name, requested in typed.spark.items():
        if requested is None and typed.boxes[name].is_grouped_on_spark:
            longest_ms = max(keeps[anchor.arc.name] for anchor in paths[name].anchors)
            requested = min(HORIZON_MS, longest_ms)
        horizons_ms[name] = requested or 0
    return horizons_ms


def kept(typed: Typed) -> dict[str, int]:
    """Return the `keep` of each connection point in ms: at least that of its sources."""
    result, sources_of = {}, typed.sources_of
    for name, arc in typed.arcs.items():
        if arc.keep_ms is not None:
            sources = [typed.arcs[source].keep_ms or 0 for source in sources_of[name]]
            result[name] = max(arc.keep_ms, *sources)
    return result


def type_boxes(network: Network) -> Typed:
    """Type every arc of a network, collecting all faults."""
    typed = Typed()
    _type_all(network, network.declarations.values(), typed)
    type_sinks(network, typed)
    return typed


def _type_all(network: Network, declarations: Iterable[declared.Declaration], typed: Typed) -> None:
    """Type the arcs of some boxes, each after the arcs that it reads."""
    makers: Mapping[type, Callable[..., None]] = {
        declared.Source: type_source,
        declared.Where: _where,
        declared.Map: _map,
        declared.Aggregate: type_aggregate,
        declared.Union: type_union,
        declared.Join: type_join,
        declared.Lag: type_lag,
        declared.Distinct: type_distinct,
        declared.Lookup: type_lookup,
        declared.Iterate: partial(type_iterate, type_all=_type_all),
    }
    for declaration in declarations:
        if all(name in typed.arcs for name in declaration.reads):  # else a fault is noted above
            known = set(typed.boxes)
            makers[type(declaration)](network, declaration, typed)
            if not typed.is_loop:
                made = [name for name in typed.boxes if name not in known]
                place_boxes(declaration, typed, made=made)
            if declaration.significance is not None:
                keep_back(declaration, typed)


def _compiled(text: Any, above: Arc) -> Expression:
    """Compile an expression, or bind a Python function in its place, over an arc's fields."""
    if isinstance(text, Opaque):
        return text.bound(visible(above))
    return compile_expression(text, visible(above))


def _predicate(typed: Typed, box: declared.Where, text: Any) -> Expression | None:
    try:
        predicate = _compiled(text, typed.arcs[box.input or ""])
    except ErrataError as error:
        fault(typed, box, "a predicate over its input's fields", error, "correct the predicate")
        return None
    if predicate.type.kind != "boolean":
        actual = f"{predicate.text!r} of type {predicate.type}"
        remedy = "compare its value"
        fault(typed, box, "a predicate that is true or false", actual, remedy)
        return None
    return predicate


def _where(network: Network, box: declared.Where, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    keep = duration(typed, box, box.keep, "keep")
    predicate = _predicate(typed, box, box.predicate)
    before = len(typed.faults)
    earlier = [_predicate(typed, box, text) for text in box.earlier]
    del typed.faults[before:]  # noted where they are declared
    if predicate is None:
        return
    typed.arcs[box.name] = replace(above, name=box.name, keep_ms=keep)
    typed.boxes[box.name] = Where(
        typed.arcs[box.name], above.name, predicate, tuple(e for e in earlier if e is not None)
    )


def _map(network: Network, box: declared.Map, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    expressions = {}
    for name, text in box.expressions.items():
        if bad_name(name):
            fault(typed, box, NAME_RULE, repr(name), "rename the field")
        elif name in above.identity:
            fault(
                typed,
                box,
                "the identity of its input kept",
                f"{name!r} replaced, which is part of its identity",
                "give the new value another name",
            )
        try:
            if name == above.event_time and isinstance(text, str):
                expressions[name] = compile_event_time(text, visible(above))
            else:
                expressions[name] = _compiled(text, above)
        except ErrataError as error:
            fault(typed, box, f"an expression for {name!r}", error, correction(box, name))
    if len(typed.faults) > before:
        return
    fields = {**above.fields, **{name: e.type for name, e in expressions.items()}}
    shift = above.event_time_shift_ms
    if above.event_time in expressions:
        fields[above.event_time] = fields[above.event_time].required  # null: it is dropped
        shift = 0
    arc = replace(above, name=box.name, fields=fields, event_time_shift_ms=shift, keep_ms=keep)
    read = tuple(above.fields)
    if box.partitions is None and not set(expressions) & set(above.partition_by):
        typed.boxes[box.name] = Map(arc, above.name, expressions, read)
    else:
        exchange = passing(typed, arc, partitions=box.partitions)
        typed.boxes[exchange.name] = Map(exchange, above.name, expressions, read)
        typed.boxes[box.name] = Forward(arc, exchange.name)
    typed.arcs[box.name] = arc
