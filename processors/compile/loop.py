"""The arc of a loop and the boxes of its body, which run on one partition and are not visible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from errata.processors.boxes.base import Box
from errata.processors.boxes.iterate import Body, Iterate
from errata.processors.compile.typed import Typed, carried, duration, fault, positive, repartitioned
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.plan.arc_name import ArcName
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

OUTSIDE = ("keep", "scope", "partitions", "place_of_work", "horizon", "significance")
"""Options that only a box outside of loops may declare."""

TypeAll = Callable[[Network, Iterable[declared.Declaration], Typed], None]


def type_iterate(
    network: Network, box: declared.Iterate, typed: Typed, *, type_all: TypeAll
) -> None:
    """Type a loop: add its arc and its box to `typed`, or note its faults.

    Args:
        network: The declared network.
        box: The loop.
        typed: The result so far.
        type_all: Types boxes; called for the body.
    """
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.rounds, "rounds")
    for inner in box.body:
        _check_box(typed, box, inner)
    for sink in box.sinks:
        actual, remedy = f"a sink of {sink.arc!r}", f"give the sink to {box.name!r}"
        fault(typed, box, "no sinks within a loop", actual, remedy)
    if len(typed.faults) > before:
        return
    start = typed.arcs[box.input or ""]
    arc = replace(
        start, name=box.name, fields=carried(start), partition_by=(), keep_ms=keep, exchange=False
    )
    inside = Typed(
        arcs={name: replace(typed.arcs[name], partition_by=()) for name in box.reads},
        faults=typed.faults,
        is_loop=True,
    )
    inside.arcs[arc.name] = arc
    seen = network.declarations | {inner.name: inner for inner in box.body}
    type_all(replace(network, declarations=seen, sinks=[]), box.body, inside)
    if len(typed.faults) > before:
        return
    _check_result(typed, box, arc, inside.arcs[box.gives])
    if len(typed.faults) > before:
        return
    boxes = tuple(reversed(list(_needed(inside, box.gives))))
    body = Body(replace(arc, keep_ms=None), boxes, box.gives)
    entering = {
        name: repartitioned(
            typed, str(ArcName(box.name, name)), typed.arcs[name], by=(), partitions=1
        )
        for name in dict.fromkeys([start.name, *body.enters])
    }
    typed.arcs[arc.name] = arc
    typed.boxes[arc.name] = Iterate(arc, start.name, entering, body, box.rounds)


def _check_box(typed: Typed, loop: declared.Iterate, box: declared.Declaration) -> None:
    """Note faults of a box within a loop: a kind or an option that loops don't allow."""
    if not box.allowed_in_loop:
        actual = f"{type(box).__name__.lower()} {box.name!r}"
        need = "within a loop where, route, map, union, join, lookup or aggregate"
        fault(typed, box, need, actual, "declare it outside of the loop")
        return
    for option in OUTSIDE:
        if (value := getattr(box, option, None)) is not None:
            name = "place" if option == "place_of_work" else option
            remedy = f"leave it out, or give it to loop {loop.name!r}"
            fault(typed, box, f"no {name}= within a loop", f"{name}={value!r}", remedy)
    if wrong := box.loop_fault():
        fault(typed, box, *wrong)


def _check_result(typed: Typed, box: declared.Iterate, arc: Arc, result: Arc) -> None:
    """Note faults where the arc that a body returns differs from the one that it reads."""
    for what, needed, actual in (
        ("identity", ", ".join(arc.identity), ", ".join(result.identity)),
        ("event time", _event_time(arc), _event_time(result)),
    ):
        if needed != actual:
            need = f"a body that keeps the {what} of {box.input!r}, {needed}"
            fault(
                typed,
                box,
                need,
                f"{actual} of {result.name!r}",
                "start each lookup and join from the tuples of the loop",
            )
    for name, kind in arc.fields.items():
        actual_kind = result.fields.get(name)
        if actual_kind is None or not _fits(actual_kind, kind):
            need = f"a body that returns the fields of {box.input!r}: {name!r} {kind}"
            remedy = "cast it in the body, or map it to such a type before the loop"
            fault(typed, box, need, f"{actual_kind or 'none'} of {result.name!r}", remedy)
    if more := [name for name in result.visible if name not in arc.fields]:
        need = f"a body that returns the fields of {box.input!r} and no others"
        actual = f"{', '.join(map(repr, more))} of {result.name!r} as well"
        fault(typed, box, need, actual, "add them with a map before the loop")


def _event_time(arc: Arc) -> str:
    return f"{arc.event_time}{arc.event_time_shift_ms or ''}"


def _fits(kind: FieldType, needed: FieldType) -> bool:
    """Whether every value of a type is valid in another."""
    return (
        (kind.kind, kind.scale) == (needed.kind, needed.scale)
        and kind.precision <= needed.precision
        and kind.optional <= needed.optional
    )


def _needed(inside: Typed, gives: str) -> Iterator[Box]:
    """Yield the boxes of a loop that its result depends on, the last one first."""
    wanted = {gives}
    for name, box in reversed(inside.boxes.items()):
        if name in wanted:
            wanted.update(box.inputs)
            yield box
