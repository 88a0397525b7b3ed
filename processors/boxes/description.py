"""What defines a box, as plain data: part of a plan's fingerprint."""

from __future__ import annotations

from errata.processors.boxes.forward import Forward
from errata.processors.boxes.map import Map
from errata.processors.boxes.replay import Box
from errata.processors.boxes.union import Union
from errata.processors.boxes.where import Where


def describe_box(box: Box) -> dict[str, object]:
    """Return what defines a box, as plain data."""
    if isinstance(box, Where):
        earlier = {"unless": [e.text for e in box.earlier]} if box.earlier else {}
        return {"where": box.predicate.text, **earlier, "input": box.input}
    if isinstance(box, Map):
        texts = {name: expression.text for name, expression in box.expressions.items()}
        return {"map": texts, "input": box.input}
    if isinstance(box, Union):
        return {"union": list(box.inputs), "tag": box.tag}
    if isinstance(box, Forward):
        return {"forward": box.input}
    return box.describe()
