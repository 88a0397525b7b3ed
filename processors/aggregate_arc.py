"""The arc of an aggregate: group, window, named results, and the hidden part behind them."""

from __future__ import annotations

from processors import network as declared
from processors.aggregates.functions import aggregate_function
from processors.boxes.aggregate import Aggregate
from processors.boxes.states import END, ROWS, START, Result, State
from processors.expressions.aggregate_call import parse_aggregate
from processors.typed import NAME_RULE, Typed, bad_name, duration, fault, known, visible
from processors.windows import Hopping
from schemas.arc import HIDDEN_PREFIX, Arc
from schemas.errors import ErrataError
from schemas.fields import FieldType

RESERVED_RESULTS = (START, END)
MOST_WINDOWS = 1_000
"""Windows that may hold one tuple: every one of them is worked on for every tuple."""


def type_aggregate(network: declared.Network, box: declared.Aggregate, typed: Typed) -> None:
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
    states: dict[object, State] = {}
    results: dict[str, Result] = {}
    for name, text in box.results.items():
        if bad_name(name) or name in by or name in RESERVED_RESULTS:
            fault(
                typed,
                box,
                f"{NAME_RULE}, and is neither a group nor the window, for a result",
                repr(name),
                "rename the result",
            )
        try:
            call = parse_aggregate(text, visible(above))
            argument = call.arguments[0].type if call.arguments else None
            function = aggregate_function(call.function, call.star, argument)
        except ErrataError as error:
            fault(typed, box, f"an aggregate for {name!r}", error, "correct the expression")
            continue
        shared = (function.state_key, tuple(a.text for a in call.arguments))
        prefix = f"{HIDDEN_PREFIX}{len(states)}_"
        state = states.setdefault(shared, State(function, call.arguments, prefix))
        results[name] = Result(function, state, text)
    if len(typed.faults) > before:
        return
    timestamp = FieldType("timestamp-millis")
    fields = {name: above.fields[name] for name in by}
    fields |= {START: timestamp, END: timestamp}
    fields |= {name: result.function.result for name, result in results.items()}
    fields[ROWS] = FieldType("long")
    for state in states.values():
        fields |= {state.prefix + part: kind for part, kind in state.function.parts.items()}
    arc = Arc(
        box.name,
        fields,
        (*by, START),
        END,
        above.partition_by,
        event_time_shift_ms=-1,
        keep_ms=keep,
    )
    typed.arcs[box.name] = arc
    typed.boxes[box.name] = Aggregate(
        arc, above, by, box.window, results, tuple(states.values()), box.mode
    )
