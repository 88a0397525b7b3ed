"""The result of typing a network: its arcs, boxes and sources, and their faults.

Typing a box may put an exchange before it: a topic that brings the tuples of an arc to the tasks
that own their new partitions. Any task that computes a tuple's new partition writes to
``<box>.exchange``, to any partition of it. The box itself reads the exchange, nets by identity per
epoch, and is the only writer of its arc (``docs/protocol.md#2-revisions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from errata.processors.boxes.base import Box
from errata.processors.boxes.forward import Forward
from errata.processors.declare import declarations as declared
from errata.processors.declare.declarations import NAME
from errata.processors.declare.faults import Fault
from errata.processors.declare.network import Network, Stream
from errata.processors.declare.options import nearest, options_of
from errata.processors.plan.arc_name import exchange_of
from errata.processors.plan.topology import Source, sources_by_arc
from errata.processors.windows.time_windows import duration_ms
from errata.schemas.arc import HIDDEN_PREFIX, Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

Chain = tuple[Box, ...]
"""Boxes that process one tuple at a time and keep its identity, in order."""

_OF_BOXES = (Stream.aggregate, Stream.lag, Stream.lookup, Stream.map, Network.join, Network.union)
"""The methods that have all options of boxes."""

NAME_RULE = "a name of letters, digits and _ that does not start with __"


@dataclass
class Typed:
    """Arcs and boxes by name, in topological order; `faults` has those that could not be typed.

    Args:
        arcs: By name; an exchange has an arc of its own, ``<box>.exchange``.
        boxes: By name of the arc that each writes.
        sources: By name.
        exchanged: Requested partitions by name of an exchange's arc; None: as many as its input
            has; names: as many as the widest of these arcs.
        sinks: The users' topics that results go to, each with the arc that is written there.
        spark: By box placed on Spark: the requested horizon in ms, None if none was.
        faults: The faults found so far.
        is_loop: Whether these are the arcs within a loop, which runs on one partition.
    """

    arcs: dict[str, Arc] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    exchanged: dict[str, int | tuple[str, ...] | None] = field(default_factory=dict)
    sinks: list[declared.Sink] = field(default_factory=list)
    spark: dict[str, int | None] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    is_loop: bool = False

    @property
    def sources_of(self) -> dict[str, tuple[str, ...]]:
        """By arc: the sources that it comes from, in order."""
        return sources_by_arc(self.arcs, {name: box.inputs for name, box in self.boxes.items()})


def fault(typed: Typed, box: declared.Declaration, need: str, actual: object, remedy: str) -> None:
    """Note a fault of a box."""
    typed.faults.append(Fault(box.name, need, str(actual), remedy, box.place))


def duration(typed: Typed, box: declared.Declaration, value: object, what: str) -> int | None:
    """Return a duration in ms; None if there is none, or it is invalid (notes the fault)."""
    if value is None:
        return None
    try:
        return duration_ms(value, what=what)  # type: ignore[arg-type]
    except ErrataError as error:
        fault(typed, box, f"a duration for {what}", error, 'write it as "30s", "5m", "1d" or in ms')
        return None


def known(
    typed: Typed,
    box: declared.Declaration,
    names: tuple[str, ...],
    fields: Mapping[str, object],
    what: str,
) -> bool:
    """Whether all names are fields, each named once; notes the faults if not."""
    unknown = [name for name in names if name not in fields]
    if unknown:
        fault(
            typed,
            box,
            f"{what} among the fields",
            f"unknown {', '.join(map(repr, unknown))}",
            f"use some of {', '.join(fields)}",
        )
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        fault(typed, box, f"each field of {what} once", f"{doubles} twice", "name it once")
    return not unknown and not doubles


def positive(typed: Typed, box: declared.Declaration, value: object, what: str) -> None:
    """Note a fault unless a value is an integer above 0, or None."""
    if value is not None and (type(value) is not int or value <= 0):
        fault(typed, box, f"{what} above 0", value, "give a positive number")


def bad_name(name: str) -> bool:
    """Whether a field can't have this name."""
    return not NAME.fullmatch(name) or name.startswith(HIDDEN_PREFIX)


def visible(arc: Arc) -> dict[str, FieldType]:
    """Return the fields of an arc that expressions may name."""
    return {name: arc.fields[name] for name in arc.visible}


def carried(arc: Arc) -> dict[str, FieldType]:
    """Return the fields of an arc without the states behind results of an aggregate.

    Hidden fields stay only if they are identity or event time.
    """
    kept = {*arc.visible, *arc.identity, arc.event_time}
    return {name: kind for name, kind in arc.fields.items() if name in kept}


def upward(typed: Typed, arc: str) -> dict[str, Chain]:
    """Return an arc and the arcs upstream that hold all its identities, with the boxes between.

    It ends at a source, an aggregate, a union or a join; the arc itself comes first.
    """
    chains: dict[str, Chain] = {arc: ()}
    while (box := typed.boxes.get(arc)) is not None and box.is_tuple_wise:
        chain = (box, *chains[arc])
        (arc,) = box.inputs
        chains[arc] = chain
    return chains


def passing(typed: Typed, arc: Arc, *, partitions: int | None = None) -> Arc:
    """Put an exchange before an arc whose box computes its partition fields; return its arc.

    The box writes the exchange; a `Forward` reads it and writes the arc.

    Args:
        typed: The result so far; gets the exchange.
        arc: The arc.
        partitions: Partitions of both; None: as many as the box's input has.
    """
    exchange = replace(arc, name=exchange_of(arc.name), keep_ms=None, exchange=True)
    typed.arcs[exchange.name] = exchange
    typed.exchanged[exchange.name] = partitions
    return exchange


def correction(box: declared.Declaration, name: str) -> str:
    """Return what to do if the expression of a result is wrong: an option may have been meant."""
    kind = type(box).__name__.lower()
    declaring = [getattr(Stream, kind, None) or getattr(Network, kind), *_OF_BOXES]
    own, *others = map(options_of, declaring)
    if meant := nearest(name, own):
        return f"correct the expression, or write {meant}= if that option is meant"
    if any(name in options for options in others):
        return f"correct the expression; {kind} has no option {name}="
    return "correct the expression"


def repartitioned(
    typed: Typed,
    box: str,
    above: Arc,
    *,
    by: tuple[str, ...],
    partitions: int | tuple[str, ...] | None,
) -> Arc:
    """Put an exchange between an arc and a box that reads it; return the exchange's arc.

    In a loop there is one partition, and no exchange: the arc itself is returned.

    Args:
        typed: The result so far; gets the exchange.
        box: The reading box.
        above: The arc.
        by: Fields by which the exchange is partitioned.
        partitions: Its partitions; None: as many as the arc has; names: as many as the widest of
            these arcs.
    """
    if typed.is_loop:
        return above
    name = exchange_of(box)
    arc = replace(above, name=name, partition_by=by, keep_ms=None, exchange=True)
    typed.arcs[name] = arc
    typed.boxes[name] = Forward(arc, above.name)
    typed.exchanged[name] = partitions
    return arc
