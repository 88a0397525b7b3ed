"""The arc of a union: the fields of its inputs, and a tag for the input of each tuple."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from errata.processors.boxes.union import Union
from errata.processors.compile.typed import Typed, bad_name, duration, fault
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import owner_of
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType


def type_union(network: Network, box: declared.Union, typed: Typed) -> None:
    """Type a union: add its arc and its box to `typed`, or note its faults."""
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    inputs = [typed.arcs[name] for name in box.inputs]
    first = inputs[0]
    for other in inputs[1:]:
        for what, one, two in (
            ("fields", _fields(first), _fields(other)),
            ("identity", first.identity, other.identity),
            ("event time", _event_time(first), _event_time(other)),
            ("partition_by", first.partition_by, other.partition_by),
        ):
            if one != two:
                fault(
                    typed,
                    box,
                    f"inputs with the same {what}",
                    f"{_text(one)} of {first.name!r} and {_text(two)} of {other.name!r}",
                    "map them to the same fields" if what == "fields" else "declare them the same",
                )
    fields = {n: t for n, t in first.fields.items() if n in _carried(first)}
    for other in inputs[1:]:
        for name, kind in other.fields.items():
            if name in fields:
                digits = max(fields[name].precision, kind.precision)
                optional = fields[name].optional or kind.optional
                fields[name] = replace(kind, precision=digits, optional=optional)
    tag = None if _disjoint(network, typed, box.inputs) else box.tag
    identity = first.identity
    if tag is not None:
        if bad_name(tag) or tag in fields:
            fault(
                typed,
                box,
                "a free field name for the tag that names each tuple's input",
                f"{tag!r}, which is not free",
                'name it with tag="..."',
            )
        fields[tag] = FieldType("string")
        identity = (*identity, tag)
    if len(typed.faults) > before:
        return
    arc = replace(
        first, name=box.name, fields=fields, identity=identity, keep_ms=keep, exchange=False
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Union(arc, tuple(box.inputs), tag)


def _carried(arc: Arc) -> list[str]:
    """Return the fields that pass a union: all but the states behind results of an aggregate."""
    hidden = [] if arc.event_time in arc.visible else [arc.event_time]
    return [*arc.visible, *hidden]


def _fields(arc: Arc) -> dict[str, str]:
    """Return the types that must be equal; decimals may differ in digits before the point."""
    kinds = {name: arc.fields[name] for name in sorted(_carried(arc))}
    return {
        name: f"decimal(_,{kind.scale})" if kind.kind == "decimal" else kind.kind
        for name, kind in kinds.items()
    }


def _event_time(arc: Arc) -> tuple[str, int]:
    return arc.event_time, arc.event_time_shift_ms


def _text(what: object) -> str:
    if isinstance(what, dict):
        return ", ".join(f"{name} {kind}" for name, kind in what.items())
    return ", ".join(map(str, what)) if isinstance(what, tuple) else str(what)


def _disjoint(network: Network, typed: Typed, inputs: tuple[str, ...] | list[str]) -> bool:
    """Whether no two inputs can hold the same identity at once."""
    above = [[*_upward(typed, name)] for name in inputs]
    return all(
        any(_parted(network, a, b) or _parted(network, b, a) for a in one for b in two)
        for number, one in enumerate(above)
        for two in above[number + 1 :]
    )


def _upward(typed: Typed, arc: str) -> Iterator[str]:
    """Yield an arc and the arcs upstream that hold all its identities."""
    above: str | None = arc
    while above is not None:
        yield owner_of(above)  # that of exact results too has the box that was declared
        box = typed.boxes.get(above)
        above = None if box is None else box.identities_of


def _parted(network: Network, one: str, other: str) -> bool:
    """Whether two arcs are outputs of one route, `one` the earlier."""
    a, b = network.declarations.get(one), network.declarations.get(other)
    if not (isinstance(a, declared.Where) and isinstance(b, declared.Where)):
        return False  # only filters can be outputs of a route
    place = len(a.earlier)
    return (
        a.is_route
        and b.is_route
        and a.input == b.input
        and len(b.earlier) > place
        and b.earlier[place] == a.predicate
    )
