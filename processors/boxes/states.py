"""The states behind an aggregate's results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from errata.processors.aggregates.compensating import (
    AVERAGES,
    COUNTS,
    SELECTS,
    SUMS,
    Compensating,
    kept_types,
)
from errata.processors.aggregates.user_function import UserFunction
from errata.processors.boxes.base import Failures
from errata.processors.boxes.bounds import Bound, Bounds
from errata.processors.expressions.errors import UserFunctionError
from errata.processors.expressions.expression import Expression
from errata.schemas import by_column
from errata.schemas.arc import WINDOW_END
from errata.schemas.fields import FieldType

START, END = "window_start", WINDOW_END
ROWS = "__rows"


@dataclass(frozen=True)
class State:
    """One state that several results may share, e.g. a sum and an average of the same field.

    The *states* of windows are a frame with one row per window and own columns for each state.

    Args:
        function: Defines how the state changes.
        arguments: Expressions whose values enter and leave it.
        prefix: Prefix of the names of its parts, in states and in hidden fields of a result.
        condition: Tuples for which it isn't true are ignored; None: none are.
    """

    function: Compensating
    arguments: tuple[Expression, ...]
    prefix: str
    condition: Expression | None = None

    @property
    def hidden(self) -> dict[str, FieldType]:
        """The parts that a result carries, by their names in it."""
        return {self.prefix + name: kind for name, kind in kept_types(self.function).items()}

    @property
    def columns(self) -> frozenset[str]:
        """The fields that it reads."""
        first = (argument.columns for argument in self.arguments[:1])
        return self.columns_of_choice.union(*first)

    @property
    def columns_of_choice(self) -> frozenset[str]:
        """The fields that decide which values of its first argument count."""
        others = (argument.columns for argument in self.arguments[1:])
        condition = frozenset[str]() if self.condition is None else self.condition.columns
        return condition.union(*others)

    def init(self, count: int) -> list[pl.Series]:
        """Return the columns of empty windows."""
        return self._named(self.function.init(count))

    def recall(self, stored: pl.DataFrame) -> list[pl.Series]:
        """Return the columns from stored results, of which only the hidden fields are known."""
        return self._named(self.function.recall(self._without_prefix(stored, self.function.kept)))

    def move(
        self,
        states: pl.DataFrame,
        tuples: pl.DataFrame,
        *,
        rows: pl.Series,
        groups: pl.Series,
        sign: int,
    ) -> list[pl.Series]:
        """Return the columns after tuples have entered (sign 1) or left (-1).

        Args:
            states: The states before.
            tuples: Tuples of the input.
            rows: Indexes of the tuples that move, each once per window that holds it.
            groups: For each of these the row of its window in `states`.
            sign: 1 or -1.

        Raises:
            UserFunctionError: If a user's function fails; its `row` is an index in `tuples`.
        """
        if self.condition is not None:
            passing = self.condition.evaluate(tuples)[rows]
            rows, groups = rows.filter(passing), groups.filter(passing)
        values = self._values(tuples, rows)
        step = self.function.accumulate if sign > 0 else self.function.compensate
        try:
            return self._named(step(self.parts(states), groups, values))
        except UserFunctionError as error:
            if error.row is not None:
                error.row = int(rows[error.row])
            raise

    def _values(self, tuples: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
        return pl.DataFrame(
            [
                argument.evaluate(tuples)[rows].alias(str(number))
                for number, argument in enumerate(self.arguments)
            ]
        )

    def refused(self, tuples: pl.DataFrame) -> Failures:
        """Return by row why a user's function refuses a tuple."""
        if not isinstance(self.function, UserFunction):
            return {}
        rows = pl.int_range(tuples.height, dtype=pl.UInt32, eager=True)
        if self.condition is not None:
            rows = rows.filter(self.condition.evaluate(tuples))
        failures = self.function.refused(self._values(tuples, rows))
        return {int(rows[row]): why for row, why in failures.items()}

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> list[pl.Series]:
        """Return the columns of merged contents, row by row; both frames have the same height."""
        return self._named(self.function.merge(self.parts(one), self.parts(other)))

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Whether results can be emitted from each state; if not, its window must be replayed."""
        return self.function.exact(self.parts(states))

    def parts(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return this state's columns under their short names."""
        return self._without_prefix(states, self.function.parts)

    def _without_prefix(self, states: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
        return pl.DataFrame([states[self.prefix + name].alias(name) for name in names])

    def _named(self, parts: pl.DataFrame) -> list[pl.Series]:
        return [parts[name].alias(self.prefix + name) for name in self.function.parts]


@dataclass(frozen=True)
class Emission:
    """One call of a function: which function emits from which state."""

    function: Compensating
    state: State

    @property
    def type(self) -> FieldType:
        """Type of its values."""
        return FieldType.parse(self.function.result)

    def emitted(self, states: pl.DataFrame) -> tuple[pl.Series, Failures]:
        """Return its value for each window, null if a user's function fails, and why it fails."""
        parts = self.state.parts(states)
        if isinstance(self.function, UserFunction):
            return self.function.emitted(parts)
        return self.function.emit(parts), {}


@dataclass(frozen=True)
class Result:
    """One named result: the values that its calls emit, and the expression around them.

    Args:
        emissions: One per call, from left to right.
        text: The text that the user wrote.
        around: The expression over columns ``#0``, ``#1`` ... of the emitted values, and over
            columns of the states; None if there is only one call and nothing around it.
    """

    emissions: tuple[Emission, ...]
    text: str
    around: Expression | None = None

    @property
    def type(self) -> FieldType:
        """Type of its values."""
        return self.around.type if self.around is not None else self.emissions[0].type

    @property
    def is_of_user(self) -> bool:
        """Whether one of its calls is to a user's function."""
        return any(isinstance(emission.function, UserFunction) for emission in self.emissions)

    def bound(self, above: Bounds) -> tuple[Bound | None, bool]:
        """Return how far it may be off, and whether it is inexact.

        Smallest, largest and first values, averages and percentiles are no further off than the
        values; a sum is not if all of its values are off by a share, and have the same sign.

        Args:
            above: The bounds of the aggregate's input.
        """
        state = next((e.state for e in self.emissions if above.reads(e.state.columns)), None)
        if state is None:
            return None, False
        chooses = above.reads(state.columns_of_choice)
        if self.around is not None or chooses:
            return None, True
        (emission,), value = self.emissions, state.arguments[0]
        distance, (bound, _) = emission.function.distance, above.of(value)
        if distance == COUNTS:  # a field that may be off is null in no other tuples
            return None, not value.is_field
        if bound is None or (distance == SELECTS and bound.share <= 1):
            return bound, True
        if distance == AVERAGES or (distance == SUMS and not bound.absolute):
            return bound._replace(one_sign=bound.one_sign or bool(bound.share)), True
        return None, True

    def emitted(self, states: pl.DataFrame) -> tuple[pl.Series, Failures]:
        """Return its value for each window, and by row why a user's function fails."""
        emitted_values = [emission.emitted(states) for emission in self.emissions]
        failures = {
            row: why for _, failed_rows in emitted_values for row, why in failed_rows.items()
        }
        if self.around is None:
            return emitted_values[0][0], failures
        named = {f"#{number}": column for number, (column, _) in enumerate(emitted_values)}
        groups = {name: states[name] for name in self.around.columns - named.keys()}
        return self.around.evaluate(pl.DataFrame({**groups, **named})), failures


def number_rows(frame: pl.DataFrame, names: list[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the distinct rows of some columns, and for every row the index of its own.

    Example:
        >>> keys, groups = number_rows(pl.DataFrame({"x": ["a", "b", "a"]}), ["x"])
        >>> keys["x"].to_list(), groups.to_list()
        (['a', 'b'], [0, 1, 0])
    """
    keyed = by_column.pick(frame, names)
    if keyed.height < 2:
        return keyed, by_column.constant(0, keyed.height, pl.UInt32)
    keys = keyed.unique(maintain_order=True)
    groups = keyed.join(
        keys.with_row_index("__group"),
        on=names,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["__group"]
    return keys, groups
