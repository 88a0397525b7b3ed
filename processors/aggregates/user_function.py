"""A user's own aggregate function, with checks of the values that it returns.

A function that can't compensate is wrapped in `Accumulating`: rows enter it and never leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import polars as pl

from errata.processors.aggregates.by_value import ByValue, CompensatingByValue
from errata.processors.aggregates.compensating import Compensating, Part, part_dtype, part_types
from errata.processors.expressions.errors import UserFunctionError
from errata.schemas.fields import FieldType, FieldTypeError

UserWritten: TypeAlias = Compensating | CompensatingByValue
"""The types of function that a user may write."""

_T = TypeVar("_T")
_UNDEFINED = (Compensating.compensate, CompensatingByValue.compensate)


class UserFunction(Compensating):
    """A user's function with parsed types, which raises only `UserFunctionError`.

    Args:
        function: The user's function.
        types: Types of its arguments; a function by value needs them.

    Raises:
        UserFunctionError: If its result or parts are not types, or it does not define how rows
            leave.
    """

    result: FieldType
    parts: Mapping[str, Part]

    def __init__(self, function: UserWritten, types: Sequence[FieldType] = ()) -> None:
        kind, self.arguments = type(function), function.arguments
        self.name = f"{kind.__qualname__}({', '.join(map(repr, function.arguments))})"
        self.text = f"{kind.__module__}.{self.name}"
        self.compensates = function.compensates
        if self.compensates and kind.compensate in _UNDEFINED:
            need = "needs a method compensate, for tuples that leave, or compensates = False"
            raise UserFunctionError(self.name, "declaration", need)
        try:
            self.result = FieldType.parse(function.result)
            self.parts = part_types(function)
        except (AttributeError, FieldTypeError) as error:
            raise UserFunctionError(self.name, "declaration", self._raised(error)) from error
        if not all(isinstance(self.parts.get(name), FieldType) for name in function.kept):
            need = "needs kept to name parts that are not lists"
            raise UserFunctionError(self.name, "declaration", need)
        self.function: Compensating
        if isinstance(function, CompensatingByValue):
            self.text = f"python:{self.text}"
            self.function = ByValue(function, types)
        else:
            self.function = function

    @property
    def kept(self) -> Sequence[str]:
        """The parts that the user declares; by default all."""
        return self.function.kept

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The key that the user declares; one object of the user's has one state."""
        return self._call("state_key", lambda: self.function.state_key)

    def init(self, count: int) -> pl.DataFrame:
        """Return the states of empty groups."""
        return self._states("init", count, lambda: self.function.init(count))

    def recall(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return the states of stored results."""
        return self._states("recall", kept.height, lambda: self.function.recall(kept))

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered."""
        return self._applied("accumulate", self.function.accumulate, states, groups, values)

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have left."""
        return self._applied("compensate", self.function.compensate, states, groups, values)

    def refused(self, values: pl.DataFrame) -> dict[int, str]:
        """Return by row why `accumulate` refuses a row that enters an empty state.

        Each row is tested alone, so that it is refused in every context.
        """
        empty_states = self.init(values.height)
        groups = pl.int_range(values.height, dtype=pl.UInt32, eager=True)
        step = self.function.accumulate

        def judge(start: int, count: int) -> dict[int, str]:
            arguments = (
                empty_states.slice(start, count),
                groups.head(count),
                values.slice(start, count),
            )
            try:
                self._states("accumulate", count, lambda: step(*arguments))
            except UserFunctionError as error:
                if count == 1:
                    return {start: str(error)}
                half = count // 2
                return judge(start, half) | judge(start + half, count - half)
            return {}

        return judge(0, values.height) if values.height else {}

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of merged contents."""
        return self._states("merge", one.height, lambda: self.function.merge(one, other))

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether `emit` is correct."""
        boolean = FieldType("boolean")
        return self._column("exact", states.height, boolean, lambda: self.function.exact(states))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the results."""
        return self._column("emit", states.height, self.result, lambda: self.function.emit(states))

    def emitted(self, states: pl.DataFrame) -> tuple[pl.Series, dict[int, str]]:
        """Return the results, null if `emit` fails, and by row why it fails."""
        try:
            return self.emit(states), {}
        except UserFunctionError as error:
            count = states.height
            if count < 2:
                nulls = pl.Series([None] * count, dtype=self.result.dtype)
                return nulls, dict.fromkeys(range(count), str(error))
        half = count // 2
        one, failed = self.emitted(states.head(half))
        other, rest = self.emitted(states.tail(count - half))
        return pl.concat([one, other]), failed | {half + row: why for row, why in rest.items()}

    def _call(self, step: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except (Exception, pl.exceptions.PanicException) as error:
            raise UserFunctionError(self.name, step, self._raised(error)) from error

    @staticmethod
    def _raised(error: BaseException) -> str:
        text = " ".join(str(error).split())
        return f"raised {type(error).__name__}: {text}"

    def _applied(
        self,
        name: str,
        step: Callable[[pl.DataFrame, pl.Series, pl.DataFrame], pl.DataFrame],
        states: pl.DataFrame,
        groups: pl.Series,
        values: pl.DataFrame,
    ) -> pl.DataFrame:
        try:
            return self._states(name, states.height, lambda: step(states, groups, values))
        except UserFunctionError as error:
            error.row = self._failing_row(step, states, groups, values)
            raise

    @staticmethod
    def _failing_row(
        step: Callable[[pl.DataFrame, pl.Series, pl.DataFrame], pl.DataFrame],
        states: pl.DataFrame,
        groups: pl.Series,
        values: pl.DataFrame,
    ) -> int | None:
        """Return a row for which the step raises even if it is the only row; found by bisection."""

        def fails(start: int, count: int) -> bool:
            try:
                step(states, groups.slice(start, count), values.slice(start, count))
            except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - whatever it may be
                return True
            return False

        start, count = 0, len(groups)
        if not count or not fails(start, count):
            return None
        while count > 1:
            half = count // 2
            if fails(start, half):
                count = half
            elif fails(start + half, count - half):
                start, count = start + half, count - half
            else:
                return None
        return start

    def _states(self, step: str, height: int, call: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        states = self._call(step, call)
        if not isinstance(states, pl.DataFrame) or set(states.columns) != set(self.parts):
            actual = states.columns if isinstance(states, pl.DataFrame) else type(states).__name__
            need = f"needs a frame of the parts {', '.join(self.parts)}"
            raise UserFunctionError(self.name, step, f"{need}; returned {actual}")
        for name, part in self.parts.items():
            self._check(step, f"part {name}", height, part, states[name])
        return states

    def _column(
        self, step: str, height: int, kind: FieldType, call: Callable[[], pl.Series]
    ) -> pl.Series:
        column = self._call(step, call)
        if not isinstance(column, pl.Series):
            actual = type(column).__name__
            raise UserFunctionError(self.name, step, f"needs a polars Series; returned a {actual}")
        self._check(step, "column", height, kind, column)
        return column

    def _check(self, step: str, what: str, height: int, kind: Part, column: pl.Series) -> None:
        """Refuse a column of a wrong length or type, or with nulls that its type does not allow."""
        if len(column) != height:
            need, actual = f"{height} values, one per group", str(len(column))
        elif column.dtype != part_dtype(kind):
            need, actual = f"{part_dtype(kind)} for {kind}", str(column.dtype)
        elif column.has_nulls() and isinstance(kind, pl.List):
            need, actual = f"no null in {kind}, but empty lists", "a null"
        elif column.has_nulls() and isinstance(kind, FieldType) and not kind.optional:
            need, actual = f"no null in {kind}, or the type {kind.nullable}", "a null"
        else:
            return
        raise UserFunctionError(self.name, step, f"needs {need} in {what}; returned {actual}")


LEFT = "__left"


class Accumulating(Compensating):
    """A function that can't compensate: groups that a row has left are marked as not exact.

    No result keeps the part ``__left``: emitted results are exact.

    Args:
        function: A function without a usable `compensate`.
    """

    result: FieldType
    parts: Mapping[str, Part]

    def __init__(self, function: Compensating) -> None:
        self.function = function
        self.arguments = function.arguments
        self.result = FieldType.parse(function.result)
        self.parts = {**part_types(function), LEFT: FieldType("boolean")}

    @property
    def kept(self) -> Sequence[str]:
        """The parts that the function keeps."""
        return self.function.kept

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """The key of the function."""
        return self.function.state_key

    def init(self, count: int) -> pl.DataFrame:
        """Return the states of empty groups."""
        return self._with_left(
            self.function.init(count), pl.Series([False]).new_from_index(0, count)
        )

    def recall(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return the states of stored results, marked as left by no row."""
        left = pl.Series([False]).new_from_index(0, kept.height)
        return self._with_left(self.function.recall(kept), left)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered."""
        moved = self.function.accumulate(states.drop(LEFT), groups, values)
        return self._with_left(moved, states[LEFT])

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states, with groups that a row has left marked."""
        return states.with_columns(states[LEFT].clone().scatter(groups.unique(), True))

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of merged contents."""
        merged = self.function.merge(one.drop(LEFT), other.drop(LEFT))
        return self._with_left(merged, one[LEFT] | other[LEFT])

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether no row has left it."""
        return ~states[LEFT] & self.function.exact(states.drop(LEFT))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the results; if a state is not exact, its result is undefined."""
        return self.function.emit(states.drop(LEFT))

    @staticmethod
    def _with_left(states: pl.DataFrame, left: pl.Series) -> pl.DataFrame:
        return states.with_columns(left.alias(LEFT))
