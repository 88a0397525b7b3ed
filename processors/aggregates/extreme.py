"""Functions that return a value from the first row of a group in some order.

They are ``max``, ``min``, ``first``, ``last``, ``min_by`` and ``max_by``. An extreme is not
invertible: when the row that holds it leaves, the next row is not known. A live state therefore
keeps a ladder of the first few rows. A result carries the first rung only.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import polars as pl

from errata.processors.aggregates.compensating import SELECTS, Signed
from errata.processors.aggregates.grouping import Counts, count_rows
from errata.processors.aggregates.ladder import Entries, Flags, Key, Ladders, bound, build_rungs
from errata.schemas.fields import FieldType, physical

RUNGS = 2
"""The number of keys that a live state keeps.

If a tenth of the rows is deleted, this share of windows needs a replay at close: with one rung a
tenth (max) to a third (first), with two a hundredth to a sixth, with four almost none. But every
rung adds cost to each epoch: open, high, low and close of 100 rows take 9.6, 11.3 and 13.3 ms,
respectively.
"""


class Extreme(Signed):
    """The first row of a group in some order.

    While the ladder has a row on it, rows may leave and the state stays exact. When the last one
    leaves, its key stays as a bound, and the state is not exact until a row enters that is not
    behind the bound, or the group is empty. Only rows that have entered can leave.

    Args:
        order: Keys by column, most significant first. Rows that are equal in all of them are ties,
            of which only the number is known.
        columns: Types of a row's columns by name, in the order of the arguments: the keys and
            ``value``, which may be a key or a value that belongs to the keys.
        needed: A column; rows in which it is null are ignored. None: no row is.
        rungs: How many keys a live state keeps.
    """

    result: FieldType
    distance = SELECTS

    def __init__(
        self,
        order: Mapping[str, Key],
        *,
        columns: Mapping[str, FieldType],
        needed: str | None,
        rungs: int = RUNGS,
    ) -> None:
        self.order = order
        self.columns = {name: kind.nullable for name, kind in columns.items()}
        self.needed = needed
        self.rungs = rungs
        self.result = self.columns["value"]
        count = FieldType("long")
        self.parts: dict[str, FieldType] = {"count": count, "ties": count, **self.columns}
        for rung in range(1, rungs):
            self.parts |= {f"ties_{rung}": count}
            self.parts |= {f"{name}_{rung}": kind for name, kind in self.columns.items()}
        self.parts["depth"] = count
        self._null_row = pl.DataFrame(schema=physical(self.columns)).clear(1)

    @property
    def kept(self) -> Sequence[str]:
        """The first rung only: the others depend on the history of the content."""
        return ("count", "ties", *self.columns)

    @property
    def state_key(self) -> tuple[Hashable, ...]:
        """Functions with the same order of rows share their state."""
        return ("extreme", *self.order.items(), *self.columns, self.needed)

    def change(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, *, sign: int
    ) -> pl.DataFrame:
        """Add rows to the ladder, as far as it reaches, or remove them from it.

        A state without rows on its ladder is not exact.
        """
        rows = pl.DataFrame(
            [
                self._ordered(column.alias(name))
                for name, column in zip(self.columns, values.get_columns(), strict=True)
            ]
        )
        if self.needed is not None and rows[self.needed].has_nulls():
            is_counted = rows[self.needed].is_not_null()
            groups, rows = groups.filter(is_counted), rows.filter(is_counted)
        ladders = self._ladders(states)
        count = ladders.count + sign * count_rows(groups, states.height)
        (name, key), *_ = self.order.items()
        group = groups.to_numpy().astype(np.int64)
        is_within = ladders.within_reach(key, group, rows[name])
        if not is_within.all():
            group, rows = group[is_within], rows[np.flatnonzero(is_within)]
        if sign > 0 and len(group) > 2 * self.rungs * states.height:
            # Not for a group that has a ladder: a row behind the bound may be a tie of a rung.
            is_within = key.reaches(rows[name], bound(key, group, rows[name], rungs=self.rungs))
            is_within |= ladders.used[group] > 0
            group, rows = group[is_within], rows[np.flatnonzero(is_within)]
        if not len(group) and count.all():
            return states.with_columns(pl.Series("count", count))
        touched = np.zeros(states.height, dtype=np.bool_)
        touched[group] = True
        entries = Entries(
            group,
            np.full(len(group), sign),
            np.zeros(len(group), dtype=np.bool_),
            ladders.columns.height + np.arange(len(group)),
        )
        columns = pl.concat([ladders.columns, rows, self._null_row])
        return self._states(
            count, columns, ladders.rungs(touched).followed_by(entries), ladders, touched
        )

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Merge both ladders, as far as both reach."""
        left, right = self._ladders(one), self._ladders(other)
        right_rungs = right.rungs()
        right_rungs = Entries(
            right_rungs.group,
            right_rungs.ties,
            right_rungs.floor,
            right_rungs.row + left.columns.height,
        )
        columns = pl.concat([left.columns, right.columns, self._null_row])
        count = left.count + right.count
        return self._states(count, columns, left.rungs().followed_by(right_rungs), left, None)

    def exact(self, states: pl.DataFrame) -> pl.Series:
        """Return for each group whether its first row is known, or it has no rows."""
        return (states["ties"] > 0) | (states["count"] == 0)

    def emit(self, states: pl.DataFrame) -> pl.Series:
        """Return the values of the first rows; if a state is not exact, its value is undefined."""
        return states["value"]

    def _ordered(self, column: pl.Series) -> pl.Series:
        """Return a column in which equal keys have the same bits: -0.0 becomes 0.0."""
        key = self.order.get(column.name)
        if key is None or key.type.kind not in ("double", "float"):
            return column
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            numbers = column.to_numpy() + 0.0  # polars would skip adding 0
        plain = pl.Series(column.name, numbers, dtype=column.dtype)
        return plain.set(column.is_null(), None) if column.has_nulls() else plain

    def _names(self, rung: int) -> list[str]:
        return [f"{name}_{rung}" if rung else name for name in self.columns]

    def _ladders(self, states: pl.DataFrame) -> Ladders:
        count = states["count"].to_numpy()
        rungs = range(self.rungs)
        names = zip(*(self._names(rung) for rung in rungs), strict=True)
        return Ladders(
            count,
            np.where(count > 0, np.maximum(states["depth"].to_numpy(), 1), 0),
            np.stack([states[f"ties_{rung}" if rung else "ties"].to_numpy() for rung in rungs]),
            pl.DataFrame([pl.concat([states[name] for name in column]) for column in names]),
        )

    def _states(
        self,
        count: Counts,
        columns: pl.DataFrame,
        entries: Entries,
        previous: Ladders,
        touched: Flags | None,
    ) -> pl.DataFrame:
        """Return states with these counts and, for touched groups, ladders of the entries."""
        height = len(count)
        null_row = columns.height - 1
        row = np.full((self.rungs, height), null_row)
        ties = np.zeros((self.rungs, height), dtype=np.int64)
        depth = np.zeros(height, dtype=np.int64)
        if touched is not None:
            unchanged = ~touched
            row[:, unchanged] = np.arange(self.rungs * height).reshape(self.rungs, height)[
                :, unchanged
            ]
            ties[:, unchanged] = previous.ties[:, unchanged]
            depth[unchanged] = previous.used[unchanged]
        if len(entries.group):
            kept_rungs, rung_index = build_rungs(self.order, columns, entries)
            fits = rung_index < self.rungs
            cells = rung_index[fits], kept_rungs.group[fits]
            row[cells], ties[cells] = kept_rungs.row[fits], kept_rungs.ties[fits]
            np.add.at(depth, cells[1], 1)
        empty = count == 0
        row[:, empty], ties[:, empty], depth[empty] = null_row, 0, 0
        values = columns[row.ravel()]
        parts = [pl.Series("count", count)]
        for rung in range(self.rungs):
            parts.append(pl.Series(f"ties_{rung}" if rung else "ties", ties[rung]))
            parts += [
                values[name].slice(rung * height, height).alias(part)
                for name, part in zip(self.columns, self._names(rung), strict=True)
            ]
        return pl.DataFrame([*parts, pl.Series("depth", depth)])


class Max(Extreme):
    """The largest value, with the number of rows that hold it; null without values.

    Text is ordered by its UTF-8 bytes, false is below true, NaN is the largest double, -0.0 is 0.0.

    Args:
        argument: Any type.
        rungs: How many of the largest values a live state keeps.

    Example:
        >>> import polars as pl
        >>> largest = Max(FieldType("long"))
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"x": [9, 5, 7]})
        >>> states = largest.accumulate(largest.init(1), groups, rows)
        >>> states = largest.compensate(states, groups[:1], rows[:1])
        >>> largest.emit(states)[0], largest.exact(states)[0]
        (7, True)

        A stored result has only the largest value; the next one is not known:

        >>> stored = largest.recall(states.select(largest.kept))
        >>> largest.exact(largest.compensate(stored, groups[:1], rows[2:]))[0]
        False
    """

    def __init__(self, argument: FieldType, *, rungs: int = RUNGS) -> None:
        super().__init__(
            {"value": Key(argument, largest=True)},
            columns={"value": argument},
            needed="value",
            rungs=rungs,
        )


class Min(Extreme):
    """The smallest value; otherwise like `Max`.

    Args:
        argument: Any type.
        rungs: How many of the smallest values a live state keeps.
    """

    def __init__(self, argument: FieldType, *, rungs: int = RUNGS) -> None:
        super().__init__(
            {"value": Key(argument, largest=False)},
            columns={"value": argument},
            needed="value",
            rungs=rungs,
        )


class First(Extreme):
    """The value of the first row by some keys; null without rows.

    The keys end with the identity, so no two rows are equal in all of them. A null value counts
    like any other, unless nulls are ignored.

    Args:
        value: Type of the value.
        order: The keys, in the order of the arguments that follow the value.
        ignore_nulls: Whether rows without a value are ignored.
        needs_key: Whether rows in which the first key is null are ignored.
        rungs: How many rows a live state keeps.

    Example:
        The price of the earliest row; when that one leaves, the next one:

        >>> import polars as pl
        >>> first = First(FieldType("double"), [Key(FieldType("timestamp-millis"), largest=False)])
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"price": [7.0, 5.0, 6.0], "at": [300, 100, 200]})
        >>> states = first.accumulate(first.init(1), groups, rows)
        >>> first.emit(states)[0], first.emit(first.compensate(states, groups[:1], rows[1:2]))[0]
        (5.0, 6.0)
    """

    def __init__(
        self,
        value: FieldType,
        order: Sequence[Key],
        *,
        ignore_nulls: bool = False,
        needs_key: bool = False,
        rungs: int = RUNGS,
    ) -> None:
        keys = {f"by_{number}": key for number, key in enumerate(order)}
        super().__init__(
            keys,
            columns={"value": value} | {name: key.type for name, key in keys.items()},
            needed="value" if ignore_nulls else "by_0" if needs_key else None,
            rungs=rungs,
        )


def reversed_order(order: Sequence[Key]) -> list[Key]:
    """Return the keys of the reversed order."""
    return [Key(key.type, not key.largest) for key in order]
