"""What every arc of a network carries: fields, identity, event time, partitioning; and its box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from processors import network as declared
from processors.aggregates.functions import aggregate_function
from processors.boxes.aggregate import END, ROWS, START, Aggregate, Result, State
from processors.boxes.map import Map
from processors.boxes.where import Where
from processors.expressions.aggregate_call import parse_aggregate
from processors.expressions.expression import compile_expression
from processors.faults import Fault
from processors.windows import Hopping, duration_ms
from schemas.arc import HIDDEN_PREFIX, Arc
from schemas.errors import ErrataError
from schemas.fields import FieldType

if TYPE_CHECKING:
    from processors.plan import Source
    from processors.replay import Box

ENVELOPES, FORMATS = ("native",), ("avro", "json")
RESERVED_RESULTS = (START, END)
NAME_RULE = "a name of letters, digits and _ that does not start with __"


@dataclass
class Typed:
    """Arcs and boxes by name, in topological order; what could not be typed is in `faults`."""

    arcs: dict[str, Arc] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    source_of: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def type_boxes(network: declared.Network) -> Typed:
    """Type every arc of a network, collecting all faults."""
    typed = Typed()
    makers: Mapping[type, Callable[..., None]] = {
        declared.Source: _source,
        declared.Where: _where,
        declared.Map: _map,
        declared.Aggregate: _aggregate,
    }
    for declaration in network.declarations.values():
        if declaration.input is not None:
            if declaration.input not in typed.arcs:
                continue  # a fault further up is told already
            typed.source_of[declaration.name] = typed.source_of[declaration.input]
        makers[type(declaration)](network, declaration, typed)
    return typed


def _fault(typed: Typed, box: declared.Declaration, need: str, found: object, remedy: str) -> None:
    typed.faults.append(Fault(box.name, need, str(found), remedy, box.place))


def _duration(typed: Typed, box: declared.Declaration, value: object, what: str) -> int | None:
    if value is None:
        return None
    try:
        return duration_ms(value, what=what)  # type: ignore[arg-type]
    except ErrataError as error:
        _fault(
            typed, box, f"a duration for {what}", error, 'write it as "30s", "5m", "1d" or in ms'
        )
        return None


def _known(
    typed: Typed,
    box: declared.Declaration,
    names: tuple[str, ...],
    fields: Mapping[str, object],
    what: str,
) -> bool:
    unknown = [name for name in names if name not in fields]
    if unknown:
        _fault(
            typed,
            box,
            f"{what} among the fields",
            f"unknown {', '.join(map(repr, unknown))}",
            f"use some of {', '.join(fields)}",
        )
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        _fault(typed, box, f"each field of {what} once", f"{doubles} twice", "name it once")
    return not unknown and not doubles


def _bad_name(name: str) -> bool:
    return not declared._NAME.fullmatch(name) or name.startswith(HIDDEN_PREFIX)


# -------------------------------------------------------------------------------- sources


def _source(network: declared.Network, box: declared.Source, typed: Typed) -> None:
    from processors.plan import Source

    before = len(typed.faults)
    fields: dict[str, FieldType] = {}
    for name, text in box.fields.items():
        if _bad_name(name):
            _fault(typed, box, NAME_RULE + " for a field", repr(name), "rename the field")
        try:
            fields[name] = FieldType.parse(text)
        except ErrataError as error:
            _fault(typed, box, f"a type for field {name!r}", error, "declare one of those")
    if box.envelope not in ENVELOPES:
        _fault(typed, box, f"an envelope of {ENVELOPES}", repr(box.envelope), "use one of those")
    if box.format not in FORMATS:
        _fault(typed, box, f"a format of {FORMATS}", repr(box.format), "use one of those")
    identity = tuple(box.identity)
    if not identity:
        _fault(typed, box, "an identity", "no fields", "name the fields that name a tuple")
    if _known(typed, box, identity, box.fields, "identity"):
        for name in identity:
            if name in fields and (fields[name].optional or fields[name].kind == "double"):
                _fault(
                    typed,
                    box,
                    "identity fields that are never null and compare exactly",
                    f"{name!r} of type {fields[name]}",
                    "choose other fields, or another type",
                )
    if _known(typed, box, (box.event_time,), box.fields, "event_time"):
        kind = fields.get(box.event_time)
        if kind is not None and kind.required != FieldType("timestamp-millis"):
            _fault(
                typed,
                box,
                "an event time of type timestamp-millis",
                f"{box.event_time!r} of type {kind}",
                "declare the field as timestamp-millis",
            )
    if box.partitions is not None and not (isinstance(box.partitions, int) and box.partitions > 0):
        _fault(typed, box, "partitions above 0", box.partitions, "give a positive number")
    lateness = _duration(typed, box, box.lateness, "lateness")
    idle_after = _duration(typed, box, box.idle_after, "idle_after")
    keep = _duration(typed, box, box.keep, "keep")
    if len(typed.faults) > before or lateness is None:
        return
    partition_by = box.partition_by
    if partition_by is None:
        partition_by = tuple(_grouped_by_all(network, box.name, set(fields)))
        if not _aggregates(network, box.name):
            partition_by = identity
    elif not _known(typed, box, tuple(partition_by), fields, "partition_by"):
        return
    arc = Arc(box.name, fields, identity, box.event_time, tuple(partition_by), keep_ms=keep)
    typed.arcs[box.name] = arc
    typed.source_of[box.name] = box.name
    typed.sources[box.name] = Source(
        arc, box.topic, box.envelope, box.format, lateness, idle_after, box.partitions
    )


def _aggregates(network: declared.Network, arc: str) -> Iterator[declared.Aggregate]:
    """Yield the aggregates anywhere behind an arc."""
    for box in network.declarations.values():
        if box.input == arc:
            if isinstance(box, declared.Aggregate):
                yield box
            yield from _aggregates(network, box.name)


def _grouped_by_all(network: declared.Network, arc: str, usable: set[str]) -> list[str]:
    """Return the fields, computed by no map, that every aggregate behind an arc groups by."""
    order: list[str] = []
    for box in network.declarations.values():
        if box.input != arc:
            continue
        below = usable
        if isinstance(box, declared.Map):
            below = usable - set(box.expressions)
        elif isinstance(box, declared.Aggregate):
            below = usable & set(box.by)
            order += [name for name in box.by if name not in order]
        deeper = below
        if any(True for _ in _aggregates(network, box.name)):
            deeper = set(_grouped_by_all(network, box.name, below))
        if isinstance(box, declared.Aggregate) or deeper is not below:
            usable = usable & deeper
        order += [name for name in sorted(deeper) if name not in order]
    return [name for name in order if name in usable]


# -------------------------------------------------------------------------------- stateless boxes


def _where(network: declared.Network, box: declared.Where, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    keep = _duration(typed, box, box.keep, "keep")
    try:
        predicate = compile_expression(box.predicate, _visible(above))
    except ErrataError as error:
        _fault(typed, box, "a predicate over its input's fields", error, "correct the predicate")
        return
    if predicate.type.kind != "boolean":
        _fault(
            typed,
            box,
            "a predicate that is true or false",
            f"{box.predicate!r} of type {predicate.type}",
            "compare it with something",
        )
        return
    typed.arcs[box.name] = replace(above, name=box.name, keep_ms=keep)
    typed.boxes[box.name] = Where(typed.arcs[box.name], above.name, predicate)


def _visible(arc: Arc) -> dict[str, FieldType]:
    return {name: arc.fields[name] for name in arc.visible}


def _map(network: declared.Network, box: declared.Map, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = _duration(typed, box, box.keep, "keep")
    expressions = {}
    protected = {
        **dict.fromkeys(above.partition_by, "partitions its arc"),
        above.event_time: "is its event time",
        **dict.fromkeys(above.identity, "is part of its identity"),
    }
    for name, text in box.expressions.items():
        if _bad_name(name):
            _fault(typed, box, NAME_RULE, repr(name), "rename the field")
        elif name in protected:
            _fault(
                typed,
                box,
                "the identity, event time and partition of its input kept",
                f"{name!r} replaced, which {protected[name]}",
                "give the new value another name",
            )
        try:
            expressions[name] = compile_expression(text, _visible(above))
        except ErrataError as error:
            _fault(typed, box, f"an expression for {name!r}", error, "correct the expression")
    if len(typed.faults) > before:
        return
    fields = {**above.fields, **{name: e.type for name, e in expressions.items()}}
    typed.arcs[box.name] = replace(above, name=box.name, fields=fields, keep_ms=keep)
    typed.boxes[box.name] = Map(typed.arcs[box.name], above.name, expressions, tuple(above.fields))


# -------------------------------------------------------------------------------- aggregates


def _aggregate(network: declared.Network, box: declared.Aggregate, typed: Typed) -> None:
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = _duration(typed, box, box.keep, "keep")
    by = tuple(box.by)
    if _known(typed, box, by, _visible(above), "by"):
        for name in set(by) & set(RESERVED_RESULTS):
            _fault(
                typed,
                box,
                "groups other than the window it gives itself",
                repr(name),
                "map it to another name first",
            )
    if not isinstance(box.window, Hopping):
        _fault(typed, box, "a window", repr(box.window), 'write hopping("30m", every="20m")')
    if box.emit != "on_close":
        _fault(typed, box, "emit='on_close'", repr(box.emit), "leave emit out")
    if box.place_of_work is not None:
        _fault(typed, box, "no place=", repr(box.place_of_work), "leave place out")
    missing = [name for name in above.partition_by if name not in by]
    if missing:
        _fault(
            typed,
            box,
            "groups that lie in one partition each",
            f"by={list(by)} on an arc that is partitioned by {list(above.partition_by)}",
            f"leave partition_by out of source {typed.source_of[box.name]!r}, or group by "
            f"{', '.join(missing)} as well",
        )
    states: dict[object, State] = {}
    results: dict[str, Result] = {}
    for name, text in box.results.items():
        if _bad_name(name) or name in by or name in RESERVED_RESULTS:
            _fault(
                typed,
                box,
                f"{NAME_RULE}, and is neither a group nor the window, for a result",
                repr(name),
                "rename the result",
            )
        try:
            call = parse_aggregate(text, _visible(above))
            argument = call.arguments[0].type if call.arguments else None
            function = aggregate_function(call.function, call.star, argument)
        except ErrataError as error:
            _fault(typed, box, f"an aggregate for {name!r}", error, "correct the expression")
            continue
        shared = (function.state_key, tuple(a.text for a in call.arguments))
        prefix = f"{HIDDEN_PREFIX}{len(states)}_"
        state = states.setdefault(shared, State(function, call.arguments, prefix))
        results[name] = Result(function, state, text)
    if len(typed.faults) > before:
        return
    timestamp = FieldType("timestamp-millis")
    fields = {name: above.fields[name] for name in by}
    fields |= {START: timestamp, END: timestamp}
    fields |= {name: result.function.result for name, result in results.items()}
    fields[ROWS] = FieldType("long")
    for state in states.values():
        fields |= {state.prefix + part: kind for part, kind in state.function.parts.items()}
    arc = Arc(
        box.name,
        fields,
        (*by, START),
        END,
        above.partition_by,
        event_time_shift_ms=-1,
        keep_ms=keep,
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Aggregate(
        arc, above, by, box.window, results, tuple(states.values()), box.mode
    )
