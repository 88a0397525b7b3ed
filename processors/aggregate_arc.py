"""The arc of an aggregate: group, window, named results, and the hidden part behind them."""

from __future__ import annotations

from processors import declarations as declared
from processors.aggregate_results import RESERVED_RESULTS, type_results
from processors.boxes.aggregate import Aggregate
from processors.boxes.states import END, ROWS, START
from processors.network import Network
from processors.typed import Typed, duration, fault, known, visible
from processors.windows import Hopping
from schemas.arc import Arc
from schemas.fields import FieldType

MOST_WINDOWS = 1_000
"""Windows that may hold one tuple: every one of them is worked on for every tuple."""


def type_aggregate(network: Network, box: declared.Aggregate, typed: Typed) -> None:
    """Add the arc and the box of an aggregate to what is typed, or its faults."""
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    by = tuple(box.by)
    if known(typed, box, by, visible(above), "by"):
        for name in set(by) & set(RESERVED_RESULTS):
            fault(
                typed,
                box,
                "groups other than the window it gives itself",
                repr(name),
                "map it to another name first",
            )
    if not isinstance(box.window, Hopping):
        fault(typed, box, "a window", repr(box.window), 'write hopping("30m", every="20m")')
    elif box.window.size_ms > MOST_WINDOWS * box.window.slide_ms:
        fault(
            typed,
            box,
            f"at most {MOST_WINDOWS} windows that hold a tuple",
            f"windows of {box.window.size_ms} ms every {box.window.slide_ms} ms",
            "let windows start less often",
        )
    if box.emit != "on_close":
        fault(typed, box, "emit='on_close'", repr(box.emit), "leave emit out")
    if box.place_of_work is not None:
        fault(typed, box, "no place=", repr(box.place_of_work), "leave place out")
    missing = [name for name in above.partition_by if name not in by]
    if missing:
        fault(
            typed,
            box,
            "groups that lie in one partition each",
            f"by={list(by)} on an arc that is partitioned by {list(above.partition_by)}",
            f"leave partition_by out of source {typed.source_of[box.name]!r}, or group by "
            f"{', '.join(missing)} as well",
        )
    results, states = type_results(box, above, typed)
    if len(typed.faults) > before:
        return
    timestamp = FieldType("timestamp-millis")
    fields = {name: above.fields[name] for name in by}
    fields |= {START: timestamp, END: timestamp}
    fields |= {name: result.type for name, result in results.items()}
    fields[ROWS] = FieldType("long")
    for state in states:
        fields |= state.hidden
    arc = Arc(
        box.name,
        fields,
        (*by, START),
        END,
        above.partition_by,
        event_time_shift_ms=-1,
        keep_ms=keep,
    )
    assert box.window is not None
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Aggregate(arc, above, by, box.window, results, states, box.mode)
