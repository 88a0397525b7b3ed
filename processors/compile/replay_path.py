"""From which connection points, and through which boxes, the inputs of a box can be replayed."""

from __future__ import annotations

from errata.processors.boxes.base import Box
from errata.processors.boxes.replay import Anchor, ReplayPath
from errata.processors.compile.typed import Typed
from errata.schemas.arc import Arc


def find_path(typed: Typed, box: Box) -> ReplayPath | None:
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
        if producer is None or arc.name in typed.spark:
            return False  # Spark coalesces epochs: what it held at one can't be had from above it
        asked = producer.replayed_from(pushed)
        if asked is None:
            return False
        between.add(arc.name)
        everywhere |= arc.exchange
        extent_ms += producer.extent_ms
        ahead |= producer.looks_ahead
        return all(
            walk(typed.arcs[name], fields, extent_ms, everywhere, ahead)
            for name, fields in asked.items()
        )

    asked = [(arc, {own: name for name, own in by.items()}) for arc, by in box.keyed]
    if not all([walk(arc, pushed, 0, False, False) for arc, pushed in asked]):
        return None
    ordered = tuple(found for name, found in typed.boxes.items() if name in between)
    return ReplayPath(tuple(anchors.values()), ordered, box)
