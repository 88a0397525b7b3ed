"""From which connection points, and through which boxes, the inputs of a box can be replayed."""

from __future__ import annotations

from dataclasses import replace

from processors.boxes.asking import Asking
from processors.boxes.map import Map
from processors.boxes.union import Union
from processors.replay import Anchor, ReplayPath
from processors.typed import Typed
from schemas.arc import Arc


def find_path(typed: Typed, box: Asking) -> ReplayPath | None:
    """Return the ways from the nearest connection points upstream to a box that asks.

    None if there is a way without one, or with a map on it that replaces the event time (nothing
    says then which event times of the anchor are needed), or with an aggregate on Spark.
    """
    anchors: dict[str, Anchor] = {}
    between: set[str] = set()

    def walk(
        arc: Arc, pushed: tuple[str, ...], extent_ms: int, everywhere: bool, ahead: bool
    ) -> bool:
        if arc.is_connection_point:
            known = anchors.get(arc.name) or Anchor(arc, pushed, extent_ms, everywhere, ahead)
            anchors[arc.name] = Anchor(
                arc,
                tuple(name for name in known.pushed if name in pushed),
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
            pushed = tuple(name for name in pushed if name not in producer.expressions)
        elif isinstance(producer, Union):
            pushed = tuple(name for name in pushed if name != producer.tag)
        elif isinstance(producer, Asking):
            whole = set.intersection(*(set(above.by) for above in producer.above))
            pushed = tuple(name for name in pushed if name in whole)
            extent_ms += producer.extent_ms
            ahead |= producer.looks_ahead
        everywhere |= arc.exchange
        return all(
            walk(typed.arcs[name], pushed, extent_ms, everywhere, ahead) for name in producer.inputs
        )

    path = ReplayPath((), (), box)
    if not all([walk(above.arc, above.by, 0, False, False) for above in box.above]):
        return None
    ordered = tuple(found for name, found in typed.boxes.items() if name in between)
    return replace(path, anchors=tuple(anchors.values()), between=ordered)
