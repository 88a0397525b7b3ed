"""The named results of an aggregate, typed, and the states behind them."""

from __future__ import annotations

from processors import declarations as declared
from processors.aggregates.functions import aggregate_function
from processors.boxes.states import END, START, Result, State
from processors.expressions.aggregate_call import parse_aggregate
from processors.typed import NAME_RULE, Typed, bad_name, fault, visible
from schemas.arc import HIDDEN_PREFIX, Arc
from schemas.errors import ErrataError

RESERVED_RESULTS = (START, END)


def type_results(
    box: declared.Aggregate, above: Arc, typed: Typed
) -> tuple[dict[str, Result], tuple[State, ...]]:
    """Return the results of an aggregate by name, and their states, each once; notes faults."""
    states: dict[object, State] = {}
    results: dict[str, Result] = {}
    for name, text in box.results.items():
        if bad_name(name) or name in box.by or name in RESERVED_RESULTS:
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
    return results, tuple(states.values())
