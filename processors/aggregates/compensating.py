"""The contract of an aggregate function whose content can enter and leave.

EEP made sliding windows cheap by adding one function to accumulate and emit: ``compensate``, which
reverses the effect of what leaves. Errata asks the same of it for a revision: the original leaves,
the revised tuple enters, and the rest of the window is never looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any

import polars as pl

from schemas.fields import FieldType

_EMPTY: Mapping[str, Any] = {"string": "", "boolean": False, "double": 0.0}


class Compensating(ABC):
    """An aggregate function over many groups at once.

    The *states* of groups are a frame with a row a group and a column a part. A *content* is a
    multiset of rows; a row has a value per argument. Every method is pure: it returns new columns
    and leaves those that it was given as they were. What a state holds, and so what `emit`
    returns, depends on the content alone and not on the order or the batches in which it came,
    except for the last bits of a float, and while it is not exact.

    Rows may leave in any order and in any batch, but only rows that are there.

    Attributes:
        result: Type of the emitted value.
        parts: Type by short name of the columns of a state. They travel with a result as its hidden
            part, so that a stored result can be revised.
    """

    result: FieldType
    parts: Mapping[str, FieldType]

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Functions of the same arguments whose keys are equal share one state."""
        return (self,)

    def init(self, count: int) -> pl.DataFrame:
        """Return the states of `count` groups without content.

        Unless overridden they are null in optional parts, else 0, false or empty.
        """
        return pl.DataFrame(
            [
                pl.Series(
                    name,
                    [None if part.optional else _EMPTY.get(part.kind, 0)],
                    dtype=part.dtype,
                ).new_from_index(0, count)
                for name, part in self.parts.items()
            ]
        )

    @abstractmethod
    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered.

        Args:
            states: The states before.
            groups: For each row the index of its group in `states`, UInt32, in any order; a group
                may have many rows or none.
            values: A column per argument, in order, in physical types; a row per group index.
        """

    @abstractmethod
    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have left; arguments as for `accumulate`."""

    @abstractmethod
    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of united contents, group by group; both have the same height."""

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether `emit` is right.

        False after a change that could not be compensated: then the content must be replayed.
        """
        return pl.Series([True]).new_from_index(0, states.height)

    @abstractmethod
    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the results, a value per group in the physical type of `result`."""
