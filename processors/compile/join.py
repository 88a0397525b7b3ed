"""The arcs of joins and lookups.

A join's arc has the fields joined on, both identities, the event time, and the results. A lookup's
arc is that of its left side, with results added to the fields or replacing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from errata.processors.boxes.forward import Forward
from errata.processors.boxes.join import Join, Side
from errata.processors.boxes.lookup import Lookup
from errata.processors.compile.typed import (
    NAME_RULE,
    Typed,
    bad_name,
    carried,
    correction,
    duration,
    fault,
    known,
    passing,
    positive,
    repartitioned,
    upward,
    visible,
)
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.expressions.expression import Expression, compile_expression
from errata.processors.plan.arc_name import ArcName
from errata.schemas.arc import HIDDEN_PREFIX, Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

HOWS = ("inner", "left")
TIME = HIDDEN_PREFIX + "at"
"""Event-time field of pairs whose sides have different event-time fields or shifts."""

_INEXACT = ("float", "double")

Sides = tuple[Side, Side]
Keys = tuple[tuple[str, ...], tuple[str, ...]]
"""The matched fields of either side, in the same order."""


def type_join(network: Network, box: declared.Join, typed: Typed) -> None:
    """Type a join: add its arc and its box to `typed`, or note its faults."""
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    arcs = [typed.arcs[name] for name in box.inputs]
    check_how(typed, box)
    on = tuple(box.on)
    check_keys(typed, box, (arcs[0], arcs[1]), (on, on))
    if len(typed.faults) > before:
        return
    is_left = box.how == "left"
    columns, names = _names(box.aliases, arcs, on, is_left)
    expressions = type_expressions(typed, box, columns | {n: columns[c] for n, c in names.items()})
    event_time, shift = _event_time(arcs)
    sides = Side(box.aliases[0], arcs[0]), Side(box.aliases[1], arcs[1])
    pair_fields = {name: arcs[0].fields[name] for name in on}
    for side in sides:
        absent = is_left and side is sides[1]
        for name, of in side.carried(on).items():
            pair_fields[name] = side.arc.fields[of].nullable if absent else side.arc.fields[of]
    identity = tuple(pair_fields)
    if event_time not in pair_fields:
        pair_fields[event_time] = FieldType("timestamp-millis")
    for name in expressions.keys() & pair_fields.keys():
        actual = f"{name!r}, which is a field of the join"
        fault(
            typed,
            box,
            "results under other names than the join's fields",
            actual,
            "rename the result",
        )
    if len(typed.faults) > before:
        return
    fields = pair_fields | {name: expression.type for name, expression in expressions.items()}
    sides, shared = co_partitioned(typed, box, sides, (on, on))
    arc = Arc(
        box.name,
        fields,
        identity,
        event_time,
        (shared or sides[0].arc).partition_by,
        event_time_shift_ms=shift,
        keep_ms=keep,
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Join(arc, sides, on, is_left, expressions, names, shared)


def check_how(typed: Typed, box: declared.Join | declared.Lookup) -> None:
    """Note a fault unless ``how=`` is ``inner`` or ``left``."""
    if box.how not in HOWS:
        fault(typed, box, f"how={HOWS[0]!r} or how={HOWS[1]!r}", repr(box.how), "use one of those")


def check_keys(
    typed: Typed, box: declared.Join | declared.Lookup, arcs: tuple[Arc, Arc], keys: Keys
) -> None:
    """Note faults of the fields that are joined on."""
    if not box.on:
        remedy = 'name fields that both sides have, on=["key"]'
        fault(typed, box, "fields to join on", "none", remedy)
    sides = zip(keys, arcs, strict=True)
    if not all([known(typed, box, names, visible(arc), "on") for names, arc in sides]):
        return
    left, right = arcs
    for name, other_name in zip(*keys, strict=True):
        one, other = left.fields[name].required, right.fields[other_name].required
        if one.kind in _INEXACT:
            remedy = "cast it to a decimal in a map"
            fault(typed, box, "fields to join on whose values are exact", f"{name!r} {one}", remedy)
        elif (one.kind, one.scale) != (other.kind, other.scale):
            named = "" if other_name == name else f"{other_name!r} "
            actual = f"{name!r} {one} of {left.name!r} and {named}{other} of {right.name!r}"
            fault(typed, box, "fields to join on of the same type", actual, "map one of them")


def _names(
    aliases: tuple[str, str], arcs: list[Arc], on: tuple[str, ...], is_left: bool
) -> tuple[dict[str, FieldType], dict[str, str]]:
    """Return the types of a pair's columns, and the columns that expressions name without alias."""
    columns: dict[str, FieldType] = {}
    for number, (alias, arc) in enumerate(zip(aliases, arcs, strict=True)):
        absent = is_left and number == 1
        for name, kind in visible(arc).items():
            columns[f"{alias}.{name}"] = kind.nullable if absent else kind
    left, right = (visible(arc) for arc in arcs)
    names = {name: f"{aliases[0]}.{name}" for name in left if name in on or name not in right}
    names |= {name: f"{aliases[1]}.{name}" for name in right if name not in left}
    return columns, names


def type_expressions(
    typed: Typed, box: declared.Join | declared.Lookup, fields: Mapping[str, FieldType]
) -> dict[str, Expression]:
    """Return the results over fields of both sides; notes faults."""
    expressions = {}
    for name, text in box.expressions.items():
        if bad_name(name):
            fault(typed, box, NAME_RULE, repr(name), "rename the result")
        try:
            expressions[name] = compile_expression(text, fields)
        except ErrataError as error:
            fault(typed, box, f"an expression for {name!r}", error, correction(box, name))
    return expressions


def _event_time(arcs: list[Arc]) -> tuple[str, int]:
    """Return the event-time field of pairs, and its shift in ms."""
    left, right = ((arc.event_time, arc.event_time_shift_ms) for arc in arcs)
    return left if left == right else (TIME, 0)


def co_partitioned(
    typed: Typed, box: declared.Join | declared.Lookup, sides: Sides, keys: Keys
) -> tuple[Sides, Arc | None]:
    """Return the sides, co-partitioned by the keys, and the arc that both derive from, or None.

    If both derive from one arc and are joined on its identity, that arc is the shared input.
    Otherwise, unless they are co-partitioned already, each side goes through an exchange.
    """
    left, right = sides
    alike = {left_key for left_key, right_key in zip(*keys, strict=True) if left_key == right_key}
    ways = [upward(typed, side.arc.name) for side in sides]
    for name in ways[0]:
        top = typed.arcs[name]
        if name in ways[1] and not top.exchange and set(top.identity) <= alike:
            by = top.identity  # no box in between changes it
            if box.partitions is not None or not set(top.partition_by) <= set(by):
                top = repartitioned(typed, box.name, top, by=by, partitions=box.partitions)
            one, other = (way[name] for way in ways)
            return (replace(left, chain=one), replace(right, chain=other)), top
    if box.partitions is None and _are_co_partitioned(typed, [left.arc, right.arc], keys):
        return sides, None
    counts = box.partitions or (left.arc.name, right.arc.name)

    def exchanged(side: Side, by: tuple[str, ...]) -> Side:
        name = str(ArcName(box.name, side.alias))
        return replace(side, arc=repartitioned(typed, name, side.arc, by=by, partitions=counts))

    return (exchanged(left, keys[0]), exchanged(right, keys[1])), None


def _are_co_partitioned(typed: Typed, arcs: list[Arc], keys: Keys) -> bool:
    """Whether both sides are co-partitioned by the keys."""
    left, right = arcs
    by = left.partition_by
    right_key = dict(zip(*keys, strict=True))
    if not by or tuple(map(right_key.get, by)) != right.partition_by:
        return False
    return _count_of(typed, left.name) == _count_of(typed, right.name)


def _count_of(typed: Typed, arc: str) -> object:
    """Return an arc's number of partitions, or the source or exchange that determines it."""
    if arc in typed.sources:
        return typed.sources[arc].partitions or arc
    if arc in typed.exchanged:
        return typed.exchanged[arc] or arc
    return _count_of(typed, typed.boxes[arc].inputs[0])


def type_lookup(network: Network, box: declared.Lookup, typed: Typed) -> None:
    """Type a lookup: add its arc and its box to `typed`, or note its faults."""
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    check_how(typed, box)
    left, right = typed.arcs[box.input or ""], typed.arcs[box.other]
    on, others = tuple(box.on), tuple(box.on.values())
    check_keys(typed, box, (left, right), (on, others))
    if unmatched := [name for name in right.identity if name not in others]:
        need = f"the whole identity of {right.name!r} matched, so that there is at most one tuple"
        remedy = 'match them, as on={"field": "its_field"}, or use a join'
        fault(typed, box, need, f"{', '.join(map(repr, unmatched))} left out", remedy)
    if box.alias == left.name:
        actual, remedy = f"{box.alias!r}, the name of its input", 'name it with alias="..."'
        fault(typed, box, f"another alias for {right.name!r} than its input's name", actual, remedy)
    fixed = {*left.identity, left.event_time} & set(box.expressions)
    for name in sorted(fixed):
        actual = f"{name!r} replaced, which is identity or event time"
        remedy = "give the new value another name"
        fault(typed, box, "identity and event time of its input kept", actual, remedy)
    if len(typed.faults) > before:
        return
    is_left = box.how == "left"
    kinds = {f"{left.name}.{name}": kind for name, kind in visible(left).items()}
    names = {name: f"{left.name}.{name}" for name in visible(left)}
    kinds |= {
        f"{box.alias}.{name}": kind.nullable if is_left else kind
        for name, kind in visible(right).items()
    }
    kinds |= {name: kinds[column] for name, column in names.items()}
    expressions = type_expressions(typed, box, kinds)
    if len(typed.faults) > before:
        return
    sides, shared = co_partitioned(
        typed, box, (Side(left.name, left), Side(box.alias, right)), (on, others)
    )
    arc = replace(
        left,
        name=box.name,
        fields=carried(left) | {name: expression.type for name, expression in expressions.items()},
        partition_by=(shared or sides[0].arc).partition_by,
        keep_ms=keep,
    )
    typed.arcs[arc.name] = arc
    written = passing(typed, arc) if set(expressions) & set(arc.partition_by) else arc
    typed.boxes[written.name] = Lookup(
        written, sides, on, is_left, expressions, names, shared, others
    )
    if written is not arc:
        typed.boxes[arc.name] = Forward(arc, written.name)
