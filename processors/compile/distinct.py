"""The arc of a distinct box: the chosen fields, and the event time of the earliest copy."""

from __future__ import annotations

from errata.processors.boxes.distinct import Distinct
from errata.processors.boxes.modes import UPSTREAM
from errata.processors.boxes.states import START
from errata.processors.compile.aggregate_results import Results
from errata.processors.compile.exchanges import repartitioned
from errata.processors.compile.typed import Typed, duration, fault, known, positive, visible
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.windows.time_windows import History
from errata.schemas.arc import HIDDEN_PREFIX, Arc
from errata.schemas.fields import FieldType


def type_distinct(network: Network, box: declared.Distinct, typed: Typed) -> None:
    """Type a distinct: add its arc and its box to `typed`, or note its faults."""
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    by = tuple(box.by)
    known(typed, box, by, visible(above), "by")
    if not by:
        fault(typed, box, "at least one field in by=", "none", "name those that tell tuples apart")
    if len(typed.faults) > before:
        return
    partition_by = above.partition_by
    if box.partitions is not None or not set(partition_by) <= set(by):
        above = repartitioned(typed, box.name, above, by=by, partitions=box.partitions)
        partition_by = above.partition_by
    time, making = above.event_time, Results(above, {})
    results = {} if time in by else {time: making.make(f"min(`{time}`)", fields=above.fields)}
    fields = {name: above.fields[name] for name in (*by, *results)}
    arc = Arc(
        box.name,
        fields | {HIDDEN_PREFIX + START: FieldType("timestamp-millis")},
        by,
        time,
        partition_by,
        event_time_shift_ms=above.event_time_shift_ms,
        keep_ms=keep,
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Distinct(
        arc=arc,
        input=above,
        by=by,
        window=History(),
        results=results,
        states=tuple(making.states.values()),
        mode=UPSTREAM,
        on_update=True,
    )
