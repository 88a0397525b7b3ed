"""Results by group and the states behind them: the base of every aggregate box."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from errata.processors.boxes.base import Box, Failures, without
from errata.processors.boxes.modes import RESIDENT
from errata.processors.boxes.states import ROWS, Result, State
from errata.processors.expressions.errors import UserFunctionError
from errata.schemas.arc import Arc


@dataclass(frozen=True, kw_only=True)
class Aggregating(Box):
    """Named results of contents, by group.

    A *content* is the set of tuples in one window. A frame of *states* has one row per content: its
    *key*, its number of rows, and the columns of every state.

    Args:
        arc: The arc it writes; its fields are the key, the results and the hidden fields.
        input: The arc it reads.
        by: Group fields.
        results: By name.
        states: The states behind the results, each once.
        mode: How emitted results are revised.
        on_update: Whether a result is emitted as soon as its content is not empty, not only once
            the watermark has passed it.
    """

    counted: ClassVar[tuple[str, ...]] = (ROWS,)
    """Hidden counts of a result, in addition to its states."""

    arc: Arc
    input: Arc
    by: tuple[str, ...]
    results: Mapping[str, Result]
    states: tuple[State, ...]
    mode: str
    on_update: bool = False

    @property
    def kind(self) -> str:
        """Its name in `errata explain`."""
        return "aggregate"

    @property
    @abstractmethod
    def keys(self) -> list[str]:
        """Names of the columns that identify a content."""

    @property
    def looked_at(self) -> list[str]:
        """The fields of its input that it reads."""
        used = {*self.by, *self.input.identity, self.input.event_time}
        for state in self.states:
            used.update(*(argument.columns for argument in state.arguments))
            used.update(state.condition.columns if state.condition is not None else ())
        return [name for name in self.input.fields if name in used]

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why results of an upstream aggregate can't be revised from its own."""
        return f"{self.kind} {self.arc.name!r} below it does not keep its results' identity"

    @property
    def waits(self) -> bool:
        """Whether results are emitted only once the watermark has passed them."""
        return not self.on_update

    @property
    def is_resident(self) -> bool:
        """Whether it keeps all states and its whole input."""
        return self.mode == RESIDENT

    def nothing(self, count: int) -> pl.DataFrame:
        """Return the states of empty contents, without their keys."""
        columns = [pl.repeat(0, count, dtype=pl.Int64, eager=True).alias(ROWS)]
        for state in self.states:
            columns += state.init(count)
        return pl.DataFrame(columns)

    def empty(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the states of empty contents."""
        return keys.select(self.keys).with_columns(self.nothing(keys.height).get_columns())

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Whether a result can be emitted from each state."""
        exact = pl.repeat(True, states.height, dtype=pl.Boolean, eager=True)
        for state in self.states:
            exact &= state.exact(states)
        return exact

    def emit(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the result tuples of the states with hidden fields, without those left out."""
        results, failures = self.emitted(states)
        return results.filter(without(failures, states.height)) if failures else results

    def emitted(self, states: pl.DataFrame) -> tuple[pl.DataFrame, Failures]:
        """Return a result tuple for each state, and by row why a user's function fails."""
        named, failures = [], dict[int, str]()
        for name, result in self.results.items():
            values, failed_here = result.emitted(states)
            named.append(values.alias(name))
            failures = {**failed_here, **failures}
        return states.with_columns(named).select(list(self.arc.fields)), failures

    @property
    def leaves_out(self) -> bool:
        """Whether non-empty windows may lack a result, because a user's function emits it."""
        return any(result.is_of_user for result in self.results.values())

    def _refused(self, tuples: pl.DataFrame) -> Failures:
        """Return by row why a user's function refuses a tuple; such a tuple is in no window."""
        failures: Failures = {}
        for state in self.states:
            failures = {**state.refused(tuples), **failures}
        return failures

    def _change(
        self,
        states: pl.DataFrame,
        tuples: pl.DataFrame,
        rows: pl.Series,
        groups: pl.Series,
        sign: int,
    ) -> pl.DataFrame:
        """Apply tuples that enter (sign 1) or leave (-1): tuple rows[i] in state groups[i]."""
        if groups.is_empty():
            return states
        moved = pl.DataFrame({"g": groups}).group_by("g").agg(pl.len().cast(pl.Int64) * sign)
        count = states[ROWS].clone()
        count.scatter(moved["g"], count.gather(moved["g"]) + moved["len"])
        columns = [count]
        try:
            for state in self.states:
                columns += state.move(states, tuples, rows=rows, groups=groups, sign=sign)
        except UserFunctionError as error:
            if error.row is not None:
                shown = tuples.select(n for n in self.input.visible if n in tuples.columns)
                error.add_note(f"tuple {shown.row(error.row, named=True)}")
            raise
        return states.with_columns(columns)

    def _merged(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of merged contents, row by row, without their keys."""
        parts = [one[ROWS] + other[ROWS]]
        for state in self.states:
            parts += state.merge(one, other)
        return pl.DataFrame(parts)
