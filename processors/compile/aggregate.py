"""The arcs of aggregates over windows of time or rows, and of distinct boxes.

An aggregate's arc has group, window, results and hidden fields. `Results` types the named results
and collects the states behind them. The arc of a distinct box has the chosen fields, and the event
time of the earliest copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from errata.processors.aggregates.aggregate_call import AggregateCall, parse_aggregate
from errata.processors.aggregates.calls import AggregateTypeError, Call
from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.functions import BY_ORDER, BY_TIME, FUNCTIONS, aggregate_function
from errata.processors.aggregates.ladder import Key
from errata.processors.aggregates.user_function import Accumulating, UserFunction, UserWritten
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.counting import TIME, Counting
from errata.processors.boxes.distinct import Distinct
from errata.processors.boxes.modes import UPSTREAM
from errata.processors.boxes.sliding import SlidingInOrder
from errata.processors.boxes.states import END, START, Emission, Result, State
from errata.processors.compile.typed import (
    NAME_RULE,
    Typed,
    bad_name,
    correction,
    duration,
    fault,
    known,
    positive,
    repartitioned,
    visible,
)
from errata.processors.declare import declarations as declared
from errata.processors.declare.declarations import SPARK
from errata.processors.declare.network import Network
from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import Expression, compile_expression
from errata.processors.windows.row_windows import HoppingRows, RowWindow, SlidingRows
from errata.processors.windows.time_windows import AnyWindow, History, Hopping, Sliding
from errata.schemas.arc import HIDDEN_PREFIX, Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields, FieldType


@dataclass(frozen=True)
class Ordering:
    """An order of rows: expressions, and the direction of each."""

    keys: tuple[Key, ...] = ()
    arguments: tuple[Expression, ...] = ()


@dataclass
class Results:
    """Makes the results of one aggregate, and collects the states behind them, each once.

    Args:
        above: The arc that it reads.
        groups: The fields that are the same for all tuples of a result.
        order_by: The order for ``first`` and ``last``, ``"field"`` or ``"field desc"``; event time
            if empty. The identity breaks ties.

    Raises:
        ErrataError: If `order_by` is not of that form, or names no field.
    """

    above: Arc
    groups: dict[str, FieldType]
    order_by: tuple[str, ...] = ()
    states: dict[object, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compile the orders that functions may use."""
        by_time = self._ordering([f"`{self.above.event_time}`"], self.above.fields)
        by_order = self._ordering(self.order_by, visible(self.above)) if self.order_by else by_time
        self._orderings = {"": Ordering(), BY_TIME: by_time, BY_ORDER: by_order}

    def make(self, definition: str | UserWritten, *, fields: Fields | None = None) -> Result:
        """Compile a user's text or function into a result.

        Args:
            definition: The text or the function.
            fields: The fields that the text may name; None: the visible ones.

        Raises:
            ErrataError: If it is no valid aggregate.
        """
        if isinstance(definition, UserWritten):
            return self._of_user(definition)
        parsed = parse_aggregate(definition, fields or visible(self.above))
        emissions = tuple(self._emission(definition, call) for call in parsed.calls)
        if parsed.is_bare:
            return Result(emissions, definition)
        around = parsed.around([emission.type for emission in emissions], self.groups)
        return Result(emissions, definition, around)

    def _of_user(self, definition: UserWritten) -> Result:
        fields = visible(self.above)
        arguments = tuple(compile_expression(text, fields) for text in definition.arguments)
        user = UserFunction(definition, [argument.type for argument in arguments])
        function = user if user.compensates else Accumulating(user)
        return Result((self._shared(function, arguments, None),), user.text)

    def _emission(self, text: str, call: AggregateCall) -> Emission:
        ordering = self._orderings[FUNCTIONS[call.function].ordered]
        types = tuple(argument.type for argument in call.arguments)
        try:
            function = aggregate_function(
                Call(call.function, types, ordering.keys, call.ignore_nulls, call.parameters)
            )
        except AggregateTypeError as error:
            raise ExpressionError(
                text, call.position, need=error.need, found=error.found, hint=error.hint
            ) from error
        return self._shared(function, (*call.arguments, *ordering.arguments), call.condition)

    def _shared(
        self,
        function: Compensating,
        arguments: tuple[Expression, ...],
        condition: Expression | None,
    ) -> Emission:
        """Return an emission from the state of these arguments; results share equal states."""
        texts = tuple((argument.text, argument.type) for argument in arguments)
        key = (function.state_key, texts, condition and condition.text)
        prefix = f"{HIDDEN_PREFIX}{len(self.states)}_"
        new = State(function, arguments, prefix, condition)
        return Emission(function, self.states.setdefault(key, new))

    def _ordering(self, texts: Sequence[str], fields: Fields) -> Ordering:
        """Compile the order by some fields, then by the identity."""
        read = [_ordered(text, fields) for text in texts]
        read += [_ordered(f"`{name}`", self.above.fields) for name in self.above.identity]
        keys, arguments = zip(*read, strict=True)
        return Ordering(keys, arguments)


def _ordered(text: str, fields: Fields) -> tuple[Key, Expression]:
    """Compile ``"field"``, ``"field asc"`` or ``"field desc"`` into a key and its expression."""
    name, _, direction = text.strip().rpartition(" ")
    if direction.lower() not in ("asc", "desc"):
        name, direction = text, "asc"
    expression = compile_expression(name, fields)
    return Key(expression.type, largest=direction.lower() == "desc"), expression


def type_results(
    box: declared.Aggregate, above: Arc, typed: Typed
) -> tuple[dict[str, Result], tuple[State, ...]]:
    """Return the results of an aggregate by name, and their states, each once; notes faults."""
    results: dict[str, Result] = {}
    groups = {name: kind for name, kind in visible(above).items() if name in box.by}
    taken = {*box.by, START, END}
    if isinstance(box.window, SlidingRows):
        taken = {*box.by, *above.identity, above.event_time}
    elif box.window is not None:
        is_number = isinstance(box.window, HoppingRows)
        groups[START] = FieldType("long" if is_number else "timestamp-millis")
    try:
        builder = Results(above, groups, tuple(box.order_by))
    except ErrataError as error:
        remedy = 'write fields of its input, as ["size desc", "venue"]'
        fault(typed, box, "fields to order by", error, remedy)
        return {}, ()
    for name, definition in box.results.items():
        if bad_name(name) or name in taken:
            fault(
                typed,
                box,
                f"{NAME_RULE}, and is none of {', '.join(sorted(taken))}, for a result",
                repr(name),
                "rename the result",
            )
        if not isinstance(definition, str | UserWritten):
            actual, remedy = repr(definition), "write it as text, or as a Compensating function"
            fault(typed, box, f"an aggregate for {name!r}", actual, remedy)
            continue
        try:
            results[name] = builder.make(definition)
        except ErrataError as error:
            fault(typed, box, f"an aggregate for {name!r}", error, correction(box, name))
    return results, tuple(builder.states.values())


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
    result_fields = {field: result.type for field, result in results.items()}
    result_fields |= dict.fromkeys(Counting.counted, FieldType("long"))
    groups = {field: above.fields[field] for field in by}
    if isinstance(window, SlidingRows):
        identity = tuple(dict.fromkeys((*by, *above.identity)))
        fields = groups | {field: above.fields[field] for field in (*identity, above.event_time)}
        shift = above.event_time_shift_ms
        return Arc(
            name, fields | result_fields, identity, above.event_time, (), event_time_shift_ms=shift
        )
    fields = groups | dict.fromkeys((START, END), FieldType("long")) | result_fields
    return Arc(name, fields | {TIME: FieldType("timestamp-millis")}, (*by, START), TIME, ())


MOST_WINDOWS = 1_000
"""Most windows that may hold one tuple: each of them is updated for every tuple."""

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
                "group fields other than the bounds of its window, which it adds",
                repr(name),
                "map it to another name first",
            )
    _check_window(box, above, typed)
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
    is_grouped = _check_place(box, typed)
    results, states = type_results(box, above, typed)
    if len(typed.faults) > before:
        return
    if is_grouped:
        typed.spark[box.name] = horizon_ms
    above, partition_by = _by_group(box, by, above, typed, is_grouped=is_grouped)
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


def _by_group(
    box: declared.Aggregate | declared.Distinct,
    by: tuple[str, ...],
    above: Arc,
    typed: Typed,
    *,
    is_grouped: bool,
) -> tuple[Arc, tuple[str, ...]]:
    """Return the arc that a box reads, an exchange if it has to, and the partitioning of its own.

    Args:
        box: The box.
        by: Its groups.
        above: Its input.
        typed: The result so far; gets the exchange.
        is_grouped: Whether Spark's own shuffle brings groups together.
    """
    is_together = set(above.partition_by) <= set(by)
    if is_grouped:
        if box.partitions is not None:
            remedy = "leave it out: its arc has as many as its input"
            fault(typed, box, f"no partitions= with place={SPARK!r}", box.partitions, remedy)
        return above, above.partition_by if is_together else by
    if box.partitions is not None or not is_together:
        above = repartitioned(typed, box.name, above, by=by, partitions=box.partitions)
    return above, above.partition_by


def _check_place(box: declared.Aggregate, typed: Typed) -> bool:
    """Whether Spark's shuffle divides an aggregate's groups; notes faults of the placement."""
    on_spark = box.place_of_work == SPARK and not typed.is_loop
    is_grouped = on_spark and not isinstance(box.window, RowWindow)
    if box.horizon is not None and not is_grouped:
        actual, remedy = repr(box.horizon), f"leave horizon out, or write place={SPARK!r}"
        need = f"horizon= only with place={SPARK!r} and windows of time"
        fault(typed, box, need, actual, remedy)
    return is_grouped


def _check_window(box: declared.Aggregate, above: Arc, typed: Typed) -> None:
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
            f"let windows start less often, or use sliding({window.size_ms})",
        )
    elif isinstance(window, HoppingRows) and window.rows > MOST_WINDOWS * window.every:
        fault(
            typed,
            box,
            f"at most {MOST_WINDOWS} windows that hold a tuple",
            f"windows of {window.rows} tuples every {window.every}",
            f"let windows start less often, or use sliding(rows={window.rows})",
        )
    if above.event_time == HIDDEN_PREFIX + END:
        fault(
            typed,
            box,
            "an input whose tuples have finite event times",
            f"{above.name!r} with results over whole histories, whose event time is infinite",
            "use window=None here as well, or windows in the input",
        )


def type_distinct(network: Network, box: declared.Distinct, typed: Typed) -> None:
    """Type a distinct: add its arc and its box to `typed`, or note its faults."""
    above = typed.arcs[box.input or ""]
    before = len(typed.faults)
    keep = duration(typed, box, box.keep, "keep")
    positive(typed, box, box.partitions, "partitions")
    by = tuple(box.by)
    known(typed, box, by, visible(above), "by")
    if not by:
        fault(
            typed,
            box,
            "at least one field in by=",
            "none",
            "name the fields that distinguish tuples",
        )
    if len(typed.faults) > before:
        return
    above, partition_by = _by_group(box, by, above, typed, is_grouped=box.place_of_work == SPARK)
    time, builder = above.event_time, Results(above, {})
    results = {} if time in by else {time: builder.make(f"min(`{time}`)", fields=above.fields)}
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
        states=tuple(builder.states.values()),
        mode=UPSTREAM,
        on_update=True,
    )
