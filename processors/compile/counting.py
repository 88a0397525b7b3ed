"""The arc of an aggregate over windows that count tuples."""

from __future__ import annotations

from collections.abc import Mapping

from errata.processors.boxes.counting import TIME, Counting
from errata.processors.boxes.states import END, START, Result
from errata.processors.windows.row_windows import RowWindow, SlidingRows
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType


def counting_arc(
    name: str, window: RowWindow, above: Arc, by: tuple[str, ...], results: Mapping[str, Result]
) -> Arc:
    """Return the arc: no stored result is ever revised, so no states are behind results.

    Args:
        name: Its name.
        window: Which tuples a window holds.
        above: The arc that is read.
        by: Group fields.
        results: By name.
    """
    found = {field: result.type for field, result in results.items()}
    found |= dict.fromkeys(Counting.counted, FieldType("long"))
    groups = {field: above.fields[field] for field in by}
    if isinstance(window, SlidingRows):
        identity = tuple(dict.fromkeys((*by, *above.identity)))
        fields = groups | {field: above.fields[field] for field in (*identity, above.event_time)}
        shift = above.event_time_shift_ms
        return Arc(name, fields | found, identity, above.event_time, (), event_time_shift_ms=shift)
    fields = groups | dict.fromkeys((START, END), FieldType("long")) | found
    return Arc(name, fields | {TIME: FieldType("timestamp-millis")}, (*by, START), TIME, ())
