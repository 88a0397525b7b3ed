"""What every arc of a network carries, and the box that writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from processors import declarations as declared
from processors.aggregate_arc import type_aggregate
from processors.boxes.map import Map
from processors.boxes.where import Where
from processors.expressions.expression import compile_expression
from processors.network import Network
from processors.source_arc import type_source
from processors.typed import NAME_RULE, Typed, bad_name, duration, fault, visible
from schemas.errors import ErrataError


def type_boxes(network: Network) -> Typed:
    """Type every arc of a network, collecting all faults."""
    typed = Typed()
    makers: Mapping[type, Callable[..., None]] = {
        declared.Source: type_source,
        declared.Where: _where,
        declared.Map: _map,
        declared.Aggregate: type_aggregate,
    }
    for declaration in network.declarations.values():
        if declaration.input is not None:
            if declaration.input not in typed.arcs:
                continue  # a fault further up is told already
            typed.source_of[declaration.name] = typed.source_of[declaration.input]
        makers[type(declaration)](network, declaration, typed)
    return typed


def _where(network: Network, box: declared.Where, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    keep = duration(typed, box, box.keep, "keep")
    try:
        predicate = compile_expression(box.predicate, visible(above))
    except ErrataError as error:
        fault(typed, box, "a predicate over its input's fields", error, "correct the predicate")
        return
    if predicate.type.kind != "boolean":
        fault(
            typed,
            box,
            "a predicate that is true or false",
            f"{box.predicate!r} of type {predicate.type}",
            "compare it with something",
        )
        return
    typed.arcs[box.name] = replace(above, name=box.name, keep_ms=keep)
    typed.boxes[box.name] = Where(typed.arcs[box.name], above.name, predicate)


def _map(network: Network, box: declared.Map, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    expressions = {}
    protected = {
        **dict.fromkeys(above.partition_by, "partitions its arc"),
        above.event_time: "is its event time",
        **dict.fromkeys(above.identity, "is part of its identity"),
    }
    for name, text in box.expressions.items():
        if bad_name(name):
            fault(typed, box, NAME_RULE, repr(name), "rename the field")
        elif name in protected:
            fault(
                typed,
                box,
                "the identity, event time and partition of its input kept",
                f"{name!r} replaced, which {protected[name]}",
                "give the new value another name",
            )
        try:
            expressions[name] = compile_expression(text, visible(above))
        except ErrataError as error:
            fault(typed, box, f"an expression for {name!r}", error, "correct the expression")
    if len(typed.faults) > before:
        return
    fields = {**above.fields, **{name: e.type for name, e in expressions.items()}}
    typed.arcs[box.name] = replace(above, name=box.name, fields=fields, keep_ms=keep)
    typed.boxes[box.name] = Map(typed.arcs[box.name], above.name, expressions, tuple(above.fields))
