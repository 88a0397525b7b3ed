"""The states behind an aggregate's results, and what the box asks for and gives."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import polars as pl

from processors.aggregates.compensating import Compensating
from processors.expressions.expression import Expression

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

    Args:
        function: Says how the state changes.
        arguments: Expressions whose values enter and leave it.
        prefix: Put before the names of its parts in the hidden part of a result.
    """

    function: Compensating
    arguments: tuple[Expression, ...]
    prefix: str

    def parts(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return this state's columns under their short names."""
        return states.select(pl.col(self.prefix + name).alias(name) for name in self.function.parts)

    def named(self, parts: pl.DataFrame) -> list[pl.Series]:
        """Return the parts under the names they have in a result."""
        return [parts[name].alias(self.prefix + name) for name in self.function.parts]


@dataclass(frozen=True)
class Result:
    """One named result: which function emits it from which state, and the user's text."""

    function: Compensating
    state: State
    text: str


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
