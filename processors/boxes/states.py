"""The states behind an aggregate's results, and what the box asks for and gives."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import polars as pl

from processors.aggregates.compensating import Compensating
from processors.expressions.expression import Expression
from schemas.fields import FieldType

START, END = "window_start", "window_end"
ROWS = "__rows"

INPUTS, RESULTS = "inputs", "results"
UPSTREAM, DOWNSTREAM = "upstream", "downstream"


@dataclass(frozen=True)
class Need:
    """What a box lacks: the inputs of some windows, or the results emitted for them.

    Args:
        kind: ``inputs`` (as of the epoch in hand) or ``results`` (as emitted before it).
        keys: Group fields and ``window_start``, a row a window.
    """

    kind: str
    keys: pl.DataFrame


@dataclass(frozen=True)
class State:
    """One state that some results share, e.g. that of a sum and an average of the same field.

    The *states* of windows are a frame with a row a window; each state has its own columns in it.

    Args:
        function: Says how the state changes.
        arguments: Expressions whose values enter and leave it.
        prefix: Put before the names of its parts, in states and in the hidden part of a result.
    """

    function: Compensating
    arguments: tuple[Expression, ...]
    prefix: str

    @property
    def hidden(self) -> dict[str, FieldType]:
        """The parts that travel with a result, by the names they have in it."""
        return {self.prefix + name: kind for name, kind in self.function.parts.items()}

    def init(self, count: int) -> list[pl.Series]:
        """Return the columns of windows that hold nothing."""
        return self._named(self.function.init(count))

    def recall(self, stored: pl.DataFrame) -> list[pl.Series]:
        """Return the columns of stored results, of which only the hidden part is known."""
        return [stored[name] for name in self.hidden]

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
            rows: Indexes of those that move, each as often as there are windows that hold it.
            groups: For each of these the row of its window in `states`.
            sign: 1 or -1.
        """
        values = pl.DataFrame(
            [
                argument.evaluate(tuples).gather(rows).alias(str(number))
                for number, argument in enumerate(self.arguments)
            ]
        )
        step = self.function.accumulate if sign > 0 else self.function.compensate
        return self._named(step(self.parts(states), groups, values))

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> list[pl.Series]:
        """Return the columns of united contents, row by row; both frames have the same height."""
        return self._named(self.function.merge(self.parts(one), self.parts(other)))

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Whether results can be emitted from each state; if not, it has to be replayed."""
        return self.function.exact(self.parts(states))

    def parts(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return this state's columns under their short names."""
        return states.select(pl.col(self.prefix + name).alias(name) for name in self.function.parts)

    def _named(self, parts: pl.DataFrame) -> list[pl.Series]:
        return [parts[name].alias(self.prefix + name) for name in self.function.parts]


@dataclass(frozen=True)
class Result:
    """One named result: which function emits it from which state, and the user's text."""

    function: Compensating
    state: State
    text: str

    @property
    def type(self) -> FieldType:
        """Type of its values."""
        return self.function.result

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return its value for each window."""
        return self.function.emit(self.state.parts(states))


@dataclass(frozen=True)
class Outcome:
    """What an epoch gave: the open windows after it, and the revisions of the output."""

    live: pl.DataFrame
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)


Answers = Generator[Need, pl.DataFrame, Outcome]


def number_rows(frame: pl.DataFrame, names: list[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the distinct rows of some columns, and for every row the index of its own.

    Example:
        >>> keys, groups = number_rows(pl.DataFrame({"x": ["a", "b", "a"]}), ["x"])
        >>> keys["x"].to_list(), groups.to_list()
        (['a', 'b'], [0, 1, 0])
    """
    keys = frame.select(names).unique(maintain_order=True).with_row_index("__group")
    groups = frame.select(names).join(
        keys, on=names, how="left", nulls_equal=True, maintain_order="left"
    )["__group"]
    return keys.drop("__group"), groups
