"""Ladders: the first few keys of each group in some order, and the number of rows of each.

A ladder has *rungs*, the first key first. Only the number of rows behind its last rung is known.
While there are such rows, the last rung is a *floor*: it stays as a bound even when no row is left
on it. The rungs of all groups are columns: rung r of group g is row r * height + g.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.aggregates.grouping import Counts
from errata.schemas.fields import FieldType

Flags: TypeAlias = npt.NDArray[np.bool_]

_MIX = np.uint32(0x9E3779B1)  # spreads row numbers, which may run in step with groups


@dataclass(frozen=True)
class Key:
    """A key that rows are ordered by; null is below all values, NaN above.

    Args:
        type: Its type.
        largest: Whether the row with the largest value comes first, instead of the smallest.
    """

    type: FieldType
    largest: bool

    def reaches(self, values: pl.Series, bound: pl.Series) -> Flags:
        """Whether values don't come after a bound; also true if either is null."""
        reached = values >= bound if self.largest else values <= bound
        flags: Flags = (reached.fill_null(True) if reached.has_nulls() else reached).to_numpy()
        return flags


@dataclass(frozen=True)
class Ladders:
    """The ladders of some groups.

    Args:
        count: The number of rows of each group.
        used: The number of rungs of each ladder; at least one if there are rows.
        ties: The number of rows on each rung.
        columns: The keys of the rungs, and the values that belong to them.
    """

    count: Counts
    used: Counts
    ties: Counts
    columns: pl.DataFrame

    @property
    def height(self) -> int:
        """The number of groups."""
        return len(self.count)

    @property
    def has_floor(self) -> Flags:
        """Whether there are rows behind the last rung."""
        behind: Flags = self.ties.sum(axis=0) < self.count
        return behind

    def within_reach(self, key: Key, groups: Counts, values: pl.Series) -> Flags:
        """Whether a row may belong on its group's ladder, by its first key."""
        floor = (np.maximum(self.used, 1) - 1) * self.height + np.arange(self.height)
        bound = self.columns[values.name][floor[groups]]
        is_within: Flags = key.reaches(values, bound) | ~self.has_floor[groups]
        return is_within

    def rungs(self, touched: Flags | None = None) -> Entries:
        """Return the rungs of all groups or of some."""
        rung_numbers = np.arange(len(self.ties))[:, None]
        is_used = rung_numbers < (self.used if touched is None else self.used * touched)
        floor = is_used & self.has_floor & (rung_numbers == self.used - 1)
        rung, group = np.nonzero(is_used)
        return Entries(group, self.ties[is_used], floor[is_used], rung * self.height + group)


@dataclass(frozen=True)
class Entries:
    """Candidates for rungs.

    Args:
        group: Index of the group.
        ties: The number of rows; below 0 if they leave.
        floor: Whether the entry is a floor.
        row: The row of the entry in some columns.
    """

    group: Counts
    ties: Counts
    floor: Flags
    row: Counts

    def followed_by(self, other: Entries) -> Entries:
        """Return these entries followed by others."""
        return Entries(
            np.concatenate([self.group, other.group]),
            np.concatenate([self.ties, other.ties]),
            np.concatenate([self.floor, other.floor]),
            np.concatenate([self.row, other.row]),
        )


def bound(key: Key, groups: Counts, values: pl.Series, *, rungs: int) -> pl.Series:
    """Return for each row a key that about as many rows of its group reach as there are rungs.

    The rows of a group are divided among as many buckets as there are rungs; the bound is the last
    of the buckets' first keys. It costs a fraction of sorting, and rows that don't reach it need
    not be sorted.

    Example:
        >>> key, groups = Key(FieldType("long"), largest=True), np.zeros(1000, dtype=np.int64)
        >>> values = pl.Series("x", range(1000))
        >>> bool(4 <= key.reaches(values, bound(key, groups, values, rungs=4)).sum() < 20)
        True
    """
    bucket = (np.arange(len(groups), dtype=np.uint32) * _MIX >> np.uint32(16)) % rungs
    first_key, last_key = (pl.max, pl.min) if key.largest else (pl.min, pl.max)
    bounds = (
        pl.DataFrame({"cell": groups * rungs + bucket, "key": values})
        .group_by("cell")
        .agg(first_key("key"))
        .group_by(pl.col("cell") // rungs)
        .agg(last_key("key"))
    )
    groups_present = bounds["cell"].to_numpy()
    index = np.zeros(groups_present.max(initial=0) + 1, dtype=np.int64)
    index[groups_present] = np.arange(len(groups_present))
    return bounds["key"][index[groups]]


def build_rungs(
    order: Mapping[str, Key], columns: pl.DataFrame, entries: Entries
) -> tuple[Entries, Counts]:
    """Return the rungs built from entries, in order by group, and the place of each from 0.

    Entries with the same keys become one rung. A rung without rows is dropped unless it is a floor;
    rungs behind the first floor of a group are dropped too.
    """
    largest = [key.largest for key in order.values()]
    keys = [columns[name][entries.row] for name in order]
    numbers = pl.Series("@entry", np.arange(len(entries.group)))
    ordered = (
        pl.DataFrame([numbers, pl.Series("@group", entries.group), *keys])
        .sort(["@group", *order], descending=[False, *largest], nulls_last=[False, *largest])
        .select(
            "@entry",
            new=~pl.all_horizontal(
                pl.col(name).eq_missing(pl.col(name).shift(1)) for name in ("@group", *order)
            ),
        )
    )
    entry = ordered["@entry"].to_numpy()
    starts = np.flatnonzero(ordered["new"].to_numpy())
    ties = np.add.reduceat(entries.ties[entry], starts)
    floor = np.logical_or.reduceat(entries.floor[entry], starts)
    # The row of an entry that has rows: a floor without any may be of a tuple that was replaced.
    preferred = entry + len(entry) * (entries.ties[entry] > 0)
    chosen = np.maximum.reduceat(preferred, starts) % len(entry)
    is_kept = (ties > 0) | floor
    chosen, ties, floor = chosen[is_kept], ties[is_kept], floor[is_kept]
    group = entries.group[chosen]
    first = np.searchsorted(group, group)
    floors = np.cumsum(floor) - floor
    is_kept = floors == floors[first]
    place = np.arange(len(group)) - first
    rungs = Entries(group[is_kept], ties[is_kept], floor[is_kept], entries.row[chosen[is_kept]])
    return rungs, place[is_kept]
