"""The arc of an aggregate over windows of time or rows: group, window, results, hidden fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.counting import TIME, Counting
from errata.processors.boxes.in_order import SlidingInOrder
from errata.processors.boxes.states import END, START, Result
from errata.processors.compile.aggregate_results import type_results
from errata.processors.compile.exchanges import repartitioned
from errata.processors.compile.typed import Typed, duration, fault, known, positive, visible
from errata.processors.declare import declarations as declared
from errata.processors.declare.network import Network
from errata.processors.windows.row_windows import HoppingRows, RowWindow, SlidingRows
from errata.processors.windows.time_windows import AnyWindow, History, Hopping, Sliding
from errata.schemas.arc import HIDDEN_PREFIX, Arc
from errata.schemas.fields import FieldType


def counting_arc(
    name: str, window: RowWindow, above: Arc, by: tuple[str, ...], results: Mapping[str, Result]
) -> Arc:
    """Return the arc of an aggregate over windows of rows; it has no states behind results.

    Such an aggregate never revises from a stored result.

    Args:
        name: Name of the arc.
        window: The window.
        above: The input arc.
        by: Group fields.
        results: Results by name.
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


MOST_WINDOWS = 1_000
"""Most windows that may hold one tuple: each of them is updated for every tuple."""

SPARK = "spark"
"""The place of an aggregate that a Structured Streaming job runs."""


def type_aggregate(network: Network, box: declared.Aggregate, typed: Typed) -> None:
    """Type an aggregate: add its arc and its box to `typed`, or note its faults."""
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    by = tuple(box.by)
    if known(typed, box, by, visible(above), "by"):
        for name in [] if isinstance(box.window, SlidingRows | None) else {*by} & {START, END}:
            fault(
                typed,
                box,
                "groups other than the window it gives itself",
                repr(name),
                "map it to another name first",
            )
    _judge_window(box, above, typed)
    if box.emit not in (declared.ON_CLOSE, declared.ON_UPDATE):
        needed = f"emit={declared.ON_CLOSE!r} or emit={declared.ON_UPDATE!r}"
        remedy = "leave emit out for results once a window is closed"
        fault(
            typed,
            box,
            needed,
            repr(box.emit),
            remedy,
        )
    positive(typed, box, box.partitions, "partitions")
    horizon_ms = duration(typed, box, box.horizon, "horizon")
    on_spark = _judge_place(box, typed)
    results, states = type_results(box, above, typed)
    if len(typed.faults) > before:
        return
    partition_by = above.partition_by
    if on_spark:  # Spark's own shuffle brings groups together
        typed.spark[box.name] = horizon_ms
        partition_by = partition_by if set(partition_by) <= set(by) else by
    elif box.partitions is not None or not set(partition_by) <= set(by):
        above = repartitioned(typed, box.name, above, by=by, partitions=box.partitions)
        partition_by = above.partition_by
    common: dict[str, Any] = {
        "input": above,
        "by": by,
        "results": results,
        "states": states,
        "mode": box.mode,
        "on_update": box.emit == declared.ON_UPDATE,
    }
    if isinstance(box.window, RowWindow):
        arc = counting_arc(box.name, box.window, above, by, results)
        arc = replace(arc, partition_by=partition_by, keep_ms=keep)
        typed.arcs[box.name] = arc
        typed.boxes[box.name] = Counting(arc=arc, window=box.window, **common)
        return
    prefix = "" if box.window is not None else HIDDEN_PREFIX
    start, end = prefix + START, prefix + END
    make = SlidingInOrder if isinstance(box.window, Sliding) else Aggregate
    fields = {name: above.fields[name] for name in by}
    fields |= dict.fromkeys((start, end), FieldType("timestamp-millis"))
    fields |= {name: result.type for name, result in results.items()}
    fields |= dict.fromkeys(make.counted, FieldType("long"))
    for state in states:
        fields |= state.hidden
    arc = Arc(
        box.name,
        fields,
        by if by and box.window is None else (*by, start),
        end,
        partition_by,
        event_time_shift_ms=-1,
        keep_ms=keep,
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = make(arc=arc, window=box.window or History(), **common)


def _judge_place(box: declared.Aggregate, typed: Typed) -> bool:
    """Whether an aggregate is placed on Spark; notes faults of the placement."""
    if box.place_of_work not in (None, SPARK):
        remedy = f"write place={SPARK!r}, or leave place out"
        fault(typed, box, f"a place to work at, {SPARK!r} or none", repr(box.place_of_work), remedy)
    on_spark = box.place_of_work == SPARK
    if box.horizon is not None and not on_spark:
        found, remedy = repr(box.horizon), f"leave horizon out, or write place={SPARK!r}"
        fault(typed, box, f"horizon= beside place={SPARK!r} only", found, remedy)
    if isinstance(box.window, RowWindow) and on_spark:
        found = f"windows that count tuples, beside place={SPARK!r}"
        remedy = "leave place out, or take windows of time"
        fault(typed, box, "windows of time for a job on Spark", found, remedy)
    if box.partitions is not None and on_spark:
        found, remedy = (
            repr(box.partitions),
            "leave it out: its arc has those of its input",
        )
        fault(typed, box, f"no partitions= beside place={SPARK!r}", found, remedy)
    return on_spark


def _judge_window(box: declared.Aggregate, above: Arc, typed: Typed) -> None:
    """Note faults of an aggregate's windows."""
    window = box.window
    if window is None:
        return
    if not isinstance(window, AnyWindow):
        fault(
            typed,
            box,
            "a window, or None for a group's whole history",
            repr(window),
            'write hopping("30m", every="20m"), tumbling("1d") or sliding("1h")',
        )
    elif isinstance(window, Hopping) and window.size_ms > MOST_WINDOWS * window.slide_ms:
        fault(
            typed,
            box,
            f"at most {MOST_WINDOWS} windows that hold a tuple",
            f"windows of {window.size_ms} ms every {window.slide_ms} ms",
            f"let windows start less often, or take sliding({window.size_ms})",
        )
    elif isinstance(window, HoppingRows) and window.rows > MOST_WINDOWS * window.every:
        fault(
            typed,
            box,
            f"at most {MOST_WINDOWS} windows that hold a tuple",
            f"windows of {window.rows} tuples every {window.every}",
            f"let windows start less often, or take sliding(rows={window.rows})",
        )
    if above.event_time == HIDDEN_PREFIX + END:
        fault(
            typed,
            box,
            "tuples that happen at some time",
            f"{above.name!r} with results over whole histories, which are at the end of time",
            "take window=None here as well, or windows above",
        )
