"""From which connection points, and through which boxes, the inputs of a box can be replayed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from errata.processors.boxes.asking import Asking
from errata.processors.boxes.map import Map
from errata.processors.boxes.replay import Anchor, ReplayPath
from errata.processors.boxes.union import Union
from errata.processors.compile.typed import Typed
from errata.schemas.arc import Arc


def find_path(typed: Typed, box: Asking) -> ReplayPath | None:
    """Return the ways from the nearest connection points upstream to a box that asks.

    None if there is a way without one, or with a map on it that replaces the event time (nothing
    says then which event times of the anchor are needed), or with an aggregate on Spark.
    """
    anchors: dict[str, Anchor] = {}
    between: set[str] = set()

    def walk(
        arc: Arc, pushed: dict[str, str], extent_ms: int, everywhere: bool, ahead: bool
    ) -> bool:
        if arc.is_connection_point:
            known = anchors.get(arc.name) or Anchor(arc, pushed, extent_ms, everywhere)
            anchors[arc.name] = Anchor(
                arc,
                dict(known.pushed.items() & pushed.items()),
                max(known.extent_ms, extent_ms),
                known.everywhere or everywhere,
                known.ahead or ahead,
            )
            return True
        producer = typed.boxes.get(arc.name)
        if producer is None or (isinstance(producer, Map) and producer.moves):
            return False
        if arc.name in typed.spark:
            return False  # it coalesces epochs: what it held at one can't be had from above it
        between.add(arc.name)
        if isinstance(producer, Map):
            pushed = _without(pushed, producer.expressions)
        elif isinstance(producer, Union):
            pushed = _without(pushed, (producer.tag,))
        everywhere |= arc.exchange
        if not isinstance(producer, Asking):
            above = [(typed.arcs[name], pushed) for name in producer.inputs]
        else:
            pushed = _without(pushed, producer.computed)
            extent_ms += producer.extent_ms
            ahead |= producer.looks_ahead
            above = [(arc, _passed(pushed, by)) for arc, by in producer.keyed]
        return all(walk(arc, pushed, extent_ms, everywhere, ahead) for arc, pushed in above)

    asked = [(arc, {own: name for name, own in by.items()}) for arc, by in box.keyed]
    if not all([walk(arc, pushed, 0, False, False) for arc, pushed in asked]):
        return None
    ordered = tuple(found for name, found in typed.boxes.items() if name in between)
    return ReplayPath(tuple(anchors.values()), ordered, box)


def _passed(pushed: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Return what is pushed to an arc through a box, of its keys there."""
    return {by[name]: asked for name, asked in pushed.items() if name in by}


def _without(pushed: Mapping[str, str], names: Collection[str | None]) -> dict[str, str]:
    return {name: asked for name, asked in pushed.items() if name not in names}
