"""Where boxes run: in Errata's processes, or on Spark."""

from __future__ import annotations

from collections.abc import Iterable

from errata.processors.compile.typed import Typed, fault
from errata.processors.declare import declarations as declared
from errata.processors.declare.declarations import PROCESS, SPARK


def place_boxes(box: declared.Declaration, typed: Typed, *, made: Iterable[str]) -> None:
    """Note which boxes run on Spark, or the fault of a declaration's ``place=``.

    Args:
        box: The declaration.
        typed: The result so far; gets the boxes on Spark.
        made: The boxes that it became: itself, and the exchange before it.
    """
    if box.place_of_work not in (None, SPARK, PROCESS):
        remedy = "use one of those, or leave place out"
        need = f"place={SPARK!r} or place={PROCESS!r}"
        fault(typed, box, need, repr(box.place_of_work), remedy)
    if box.place_of_work != SPARK:
        return
    if isinstance(box, declared.Iterate):
        remedy = f"write place={PROCESS!r}: other boxes of the network may be on Spark"
        fault(typed, box, "loops in Errata's processes", "a loop on Spark", remedy)
        return
    for name in made:
        typed.spark.setdefault(name, None)
