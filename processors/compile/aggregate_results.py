"""The named results of an aggregate, typed, and the states behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from errata.processors.aggregates.aggregate_call import AggregateCall, parse_aggregate
from errata.processors.aggregates.calls import AggregateTypeError, Call
from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.functions import BY_ORDER, BY_TIME, FUNCTIONS, aggregate_function
from errata.processors.aggregates.ladder import Key
from errata.processors.aggregates.user_function import Accumulating, UserFunction, UserWritten
from errata.processors.boxes.states import END, START, Emission, Result, State
from errata.processors.compile.typed import NAME_RULE, Typed, bad_name, fault, visible
from errata.processors.declare import declarations as declared
from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import Expression, compile_expression
from errata.processors.windows.row_windows import HoppingRows, SlidingRows
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

    def make(self, given: str | UserWritten, *, fields: Fields | None = None) -> Result:
        """Compile a user's text or function into a result.

        Args:
            given: The text or the function.
            fields: The fields that the text may name; the visible ones when not given.

        Raises:
            ErrataError: If it is no valid aggregate.
        """
        if isinstance(given, UserWritten):
            return self._of_user(given)
        parsed = parse_aggregate(given, fields or visible(self.above))
        emissions = tuple(self._emission(given, call) for call in parsed.calls)
        if parsed.is_bare:
            return Result(emissions, given)
        around = parsed.around([emission.type for emission in emissions], self.groups)
        return Result(emissions, given, around)

    def _of_user(self, given: UserWritten) -> Result:
        fields = visible(self.above)
        arguments = tuple(compile_expression(text, fields) for text in given.arguments)
        user = UserFunction(given, [argument.type for argument in arguments])
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
        making = Results(above, groups, tuple(box.order_by))
    except ErrataError as error:
        remedy = 'write fields of its input, as ["size desc", "venue"]'
        fault(typed, box, "fields to order by", error, remedy)
        return {}, ()
    for name, given in box.results.items():
        if bad_name(name) or name in taken:
            fault(
                typed,
                box,
                f"{NAME_RULE}, and is none of {', '.join(sorted(taken))}, for a result",
                repr(name),
                "rename the result",
            )
        if not isinstance(given, str | UserWritten):
            found, remedy = repr(given), "write it as text, or give a Compensating function"
            fault(typed, box, f"an aggregate for {name!r}", found, remedy)
            continue
        try:
            results[name] = making.make(given)
        except ErrataError as error:
            fault(typed, box, f"an aggregate for {name!r}", error, "correct the expression")
    return results, tuple(making.states.values())
