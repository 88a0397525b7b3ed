"""The contract of an aggregate function whose rows can enter and leave.

EEP made sliding windows cheap by adding one function to accumulate and emit: ``compensate``, which
reverses the effect of a row that leaves. Errata uses it for revisions: the original leaves, the
revised tuple enters, and the rest of the window is not read. In a `Signed` function a row leaves in
the same way as it entered, with opposite sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

from errata.schemas.fields import FieldType

Part: TypeAlias = FieldType | pl.List
"""The type of a column of a state: a field's type, or a list, which no result can keep."""

SELECTS, AVERAGES, SUMS, COUNTS = "selects", "averages", "sums", "counts"
"""How a result moves if values move a little: as one of them, as their mean, as all together, or
not at all."""

_EMPTY: Mapping[str, Any] = {"string": "", "uuid": "", "bytes": b"", "boolean": False}


class Declared(ABC):
    """The declarations that every aggregate function has.

    Args:
        arguments: The expressions whose values are the function's arguments; a user's function
            takes them as ``Vwap("price", "size")``.

    Attributes:
        result: Type of the emitted value.
        parts: Type by short name of the columns of a state; also ``pl.List(...)``, of anything but
            128-bit integers, which Arrow does not know.
        compensates: Whether rows can leave again. If not, no `compensate` is needed: a group that a
            row has left is not exact, and its content is replayed.
        distance: How a result moves if the values of the first argument move a little: `SELECTS`,
            `AVERAGES`, `SUMS` or `COUNTS`; "": in any way.
    """

    result: FieldType | str
    parts: Mapping[str, Part] | Mapping[str, str | pl.List]
    compensates: bool = True
    distance: str = ""
    arguments: tuple[str, ...] = ()

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    @property
    def kept(self) -> Sequence[str]:
        """The parts that a result carries, so that a stored result can be revised.

        The default is all parts, or none if one is a list. Parts that depend on more than the
        content must not be included. If a function keeps none, its stored results can't be revised:
        its windows are replayed, or all of them kept.
        """
        has_list = any(isinstance(part, pl.List) for part in self.parts.values())
        return () if has_list else tuple(self.parts)

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Functions of the same arguments whose keys are equal share one state."""
        return (self,)


class Compensating(Declared):
    """An aggregate function over many groups at once; a user's own derives from it too.

    The *states* of groups are a frame with one row per group and one column per part. A *content*
    is a multiset of rows; a row has one value per argument. Every method is pure: it returns new
    columns and does not change its arguments. A state, and so the result of `emit`, depends on the
    content alone and not on the order or the batches in which rows entered. The exceptions are the
    last bits of a float, and a state that is not exact.

    Rows may leave in any order and in any batch, but only rows that have entered. `Declared` has
    the declarations: `result`, `parts` and, if needed, `compensates` and `kept`.

    If `accumulate` raises for a row that enters an empty state alone, the function never gets that
    row again; a group for which `emit` raises has no result (docs/networks.md).

    Example:
        A user's function. A row that enters is added to the sums of its group, a row that leaves is
        subtracted:

        >>> class Vwap(Compensating):
        ...     result = "double?"
        ...     parts = {"turnover": "double", "size": "long"}
        ...
        ...     def accumulate(self, states, groups, values):
        ...         price, size = values
        ...         rows = pl.DataFrame({"group": groups, "turnover": price * size, "size": size})
        ...         sums = rows.group_by("group").sum()
        ...         index = pl.DataFrame({"group": range(states.height)}, {"group": pl.UInt32})
        ...         sums = index.join(sums, on="group", how="left", maintain_order="left")
        ...         return self.merge(states, sums.fill_null(0))
        ...
        ...     def compensate(self, states, groups, values):
        ...         price, size = values
        ...         return self.accumulate(states, groups, pl.DataFrame([price, -size]))
        ...
        ...     def merge(self, one, other):
        ...         return pl.DataFrame([one[part] + other[part] for part in self.parts])
        ...
        ...     def emit(self, states):
        ...         size = states["size"]
        ...         return (states["turnover"] / size).set(size == 0, None)
        >>> vwap = Vwap("price", "size")
        >>> rows = pl.DataFrame({"price": [10.0, 20.0, 5.0], "size": [1, 3, 2]})
        >>> groups = pl.Series([0, 0, 1], dtype=pl.UInt32)
        >>> states = vwap.accumulate(vwap.init(2), groups, rows)
        >>> vwap.emit(states).to_list()
        [17.5, 5.0]
        >>> vwap.emit(vwap.compensate(states, groups[1:], rows[1:])).to_list()
        [10.0, None]
    """

    def init(self, count: int) -> pl.DataFrame:
        """Return the states of `count` empty groups.

        The default is null for optional parts, and 0, false or empty for others.
        """
        return pl.DataFrame(
            [
                pl.Series(name, [_empty_value(part)], dtype=part_dtype(part)).new_from_index(
                    0, count
                )
                for name, part in part_types(self).items()
            ]
        )

    def recall(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return the states of stored results, of which only the kept parts are known.

        By default the other parts are those of an empty group.
        """
        return self.init(kept.height).with_columns(kept).select(list(self.parts))

    @abstractmethod
    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered.

        Args:
            states: The states before.
            groups: For each row the index of its group in `states`, UInt32, in any order; a group
                may have many rows or none.
            values: One column per argument, in order, in physical types; one row per group index.
        """

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have left; arguments as for `accumulate`.

        Every function must define it, except those with ``compensates = False``.
        """
        raise NotImplementedError

    @abstractmethod
    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Return the states of merged contents, group by group; both have the same height."""

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether `emit` is correct.

        It is False after a change that could not be compensated: the content must be replayed.
        """
        return pl.Series([True]).new_from_index(0, states.height)

    @abstractmethod
    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the results, one value per group in the physical type of `result`."""


def part_types(function: Declared) -> dict[str, Part]:
    """Return the types of a function's parts, which a user may have written as text."""
    return {
        name: part if isinstance(part, pl.List) else FieldType.parse(part)
        for name, part in function.parts.items()
    }


def kept_types(function: Compensating) -> dict[str, FieldType]:
    """Return the types of the parts that a result carries."""
    types = part_types(function)
    kept = {name: types[name] for name in function.kept}
    return {name: part for name, part in kept.items() if isinstance(part, FieldType)}


def part_dtype(part: Part) -> pl.DataType | type[pl.DataType]:
    """Return the polars type of a column of a state."""
    return part if isinstance(part, pl.List) else part.dtype


def _empty_value(part: Part) -> Any:
    """Return the value of a part for an empty group."""
    if isinstance(part, pl.List):
        return []
    return None if part.optional else _EMPTY.get(part.kind, 0)


class Signed(Compensating):
    """A function with one change for rows that enter and rows that leave."""

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have entered."""
        return self.change(states, groups, values, sign=1)

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the states after rows have left."""
        return self.change(states, groups, values, sign=-1)

    @abstractmethod
    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Return the states after rows have entered, sign 1, or left, sign -1.

        The other arguments are those of `Compensating.accumulate`.
        """
