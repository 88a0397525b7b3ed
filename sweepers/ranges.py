"""The tuples that a request asks for, as event-time ranges of groups, and a sweeper's errors."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.boxes.replay import merged
from errata.schemas import by_column
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError

EARLIEST_MS, LATEST_MS = -(2**63), 2**63 - 1

ONE = "@one"  # a column that holds the same value in every row

BUCKETS = 2**16

Integers = npt.NDArray[np.int64]


def times(tuples: pl.DataFrame, arc: Arc) -> Integers:
    """Return the event time of each tuple in ms; a null event time counts as the earliest."""
    found = arc.event_times(tuples)
    filled: Integers = (found.fill_null(EARLIEST_MS) if found.null_count() else found).to_numpy()
    return filled


def buckets(tuples: pl.DataFrame, names: Sequence[str], arc: Arc) -> Integers:
    """Return a number in [0, `BUCKETS`) for each tuple, the same for equal values of some fields.

    It is the same in every process with the same `hashing`.
    """
    if not names:
        return np.zeros(tuples.height, np.int64)
    columns = [tuples[name].cast(arc.fields[name].dtype) for name in names]
    hashes = pl.DataFrame(columns).hash_rows().to_numpy()
    found: Integers = (hashes % BUCKETS).astype(np.int64)
    return found


@cache
def hashing() -> int:
    """Return a number that differs where `buckets` do: polars promises nothing across versions."""
    known = pl.DataFrame({"n": [0, 7, -1], "x": [0.5, 0.0, 7.0], "s": ["", "a", "long " * 9]})
    known = known.with_columns(wide=pl.col("n").cast(pl.Int128), sure=pl.col("n") > 0)
    columns = [*(known.select(name) for name in known.columns), known]
    return zlib.crc32(pl.concat(each.hash_rows() for each in columns).to_numpy().tobytes())


def join_keys(names: Sequence[str], arc: Arc) -> list[str]:
    """Return the columns to group and join tuples by, so that equal fields match, NaN and NaN too.

    These are the fields and sometimes the constant column `ONE`. On a single double that it knows
    to be sorted (one row always is), polars uses a merge join, which misses NaN = NaN; on two
    columns it does not. Polars also can't join on zero columns.
    """
    add_constant = not names or any(arc.fields[name].kind == "double" for name in names)
    return [*names, ONE] if add_constant else list(names)


def one(count: int) -> pl.Series:
    """Return the column `ONE`."""
    return by_column.constant(1, count, pl.Int32).alias(ONE)


class Zones(NamedTuple):
    """What is known of some frames of tuples without reading them, one element for each.

    Args:
        first_ms: The smallest event time in it.
        last_ms: The largest one.
        first_bucket: The smallest bucket in it (`buckets`).
        last_bucket: The largest one.
    """

    first_ms: Integers
    last_ms: Integers
    first_bucket: Integers
    last_bucket: Integers


def _overlap(
    starts: Integers, ends: Integers, first: Integers, last: Integers
) -> npt.NDArray[np.bool_]:
    """Return whether some interval from a start to an end, exclusive, meets one from first to last.

    The intervals are in order and do not overlap.
    """
    if not len(starts):
        return np.zeros(len(first), np.bool_)
    place = np.searchsorted(ends, first, side="right")
    is_before_end = place < len(starts)
    meets: npt.NDArray[np.bool_] = is_before_end & (starts[place * is_before_end] <= last)
    return meets


class Ranges:
    """A union of half-open event-time ranges of groups, searched in frames of tuples.

    Overlapping ranges of one group are merged first, so each row is found at most once. The search
    uses binary search and joins: the cost does not grow with ranges times rows.

    Args:
        requested: Columns ``from_ms`` and ``to_ms`` and any of the arc's fields, which a tuple must
            equal (null equals null, NaN equals NaN); None for every tuple.
        arc: The arc of the tuples.
        from_ms: Smallest event time, whatever the ranges say; see `before` for the largest.
        clustered: The fields whose `buckets` order the segments.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> kinds = {"at": "timestamp-millis", "product": "string"}
        >>> fields = {name: FieldType.parse(kind) for name, kind in kinds.items()}
        >>> arc = Arc("a", fields, identity=("at",), event_time="at", partition_by=())
        >>> tuples = pl.DataFrame({"at": [10, 20, 20, 30], "product": ["x", "x", "y", "x"]})
        >>> ranges = pl.DataFrame({"from_ms": [0, 15], "to_ms": [21, 31], "product": ["x", "x"]})
        >>> Ranges(ranges, arc=arc).rows(tuples).tolist()
        [0, 1, 3]
    """

    def __init__(
        self,
        requested: pl.DataFrame | None,
        *,
        arc: Arc,
        from_ms: int = EARLIEST_MS,
        clustered: Sequence[str] = (),
    ) -> None:
        if requested is None:
            requested = pl.DataFrame({"from_ms": [from_ms], "to_ms": [LATEST_MS]})
        self._arc = arc
        self._group = [name for name in requested.columns if name not in ("from_ms", "to_ms")]
        dtypes = {name: arc.fields[name].dtype for name in self._group}
        self._dtypes = pl.Schema(dtypes)
        self._keys = join_keys(self._group, arc)
        starts = requested["from_ms"].cast(pl.Int64)
        if from_ms > EARLIEST_MS:
            starts = starts.clip(lower_bound=from_ms)
        ranges = pl.DataFrame(
            [
                starts,
                requested["to_ms"].cast(pl.Int64),
                *(requested[name].cast(dtype) for name, dtype in dtypes.items()),
                one(requested.height),
            ]
        )
        ranges = by_column.kept(ranges, ranges["from_ms"] < ranges["to_ms"])
        whole = merged(by_column.pick(ranges, ["from_ms", "to_ms"]))
        self._from: Integers = whole["from_ms"].to_numpy()
        self._to: Integers = whole["to_ms"].to_numpy()
        if self._group:
            self._groups = by_column.pick(ranges, self._keys)
            if ranges.height > 1:
                self._groups = self._groups.unique()
            self._groups = self._groups.with_row_index("@#")
        self._buckets: Integers | None = None
        if clustered and {*clustered} <= {*self._group}:
            self._buckets = np.unique(buckets(self._groups, clustered, arc))
        if self._group and self._groups.height > 1:
            numbered = ranges.join(self._groups, on=self._keys, nulls_equal=True)
            self._by_group = merged(numbered.select("from_ms", "to_ms", "@#")).sort("from_ms")

    def before(self, to_ms: int) -> Ranges:
        """Return these ranges up to an event time."""
        narrowed, inside = copy(self), self._from < to_ms
        narrowed._from, narrowed._to = self._from[inside], self._to[inside].clip(max=to_ms)
        return narrowed

    def touched(self, zones: Zones) -> list[int]:
        """Return the numbers of the zones in which tuples of the ranges may be."""
        touched = _overlap(self._from, self._to, zones.first_ms, zones.last_ms)
        if self._buckets is not None:
            wanted = self._buckets
            touched &= _overlap(wanted, wanted + 1, zones.first_bucket, zones.last_bucket)
        return np.flatnonzero(touched).tolist()

    def _in_time(self, at: Integers, *, in_order: bool) -> Integers:
        """Return the numbers of the rows whose event times are in some range, ascending."""
        if in_order:
            first, end = np.searchsorted(at, self._from), np.searchsorted(at, self._to)
            count = end - first
            rows: Integers = np.arange(count.sum()) + np.repeat(
                first - count.cumsum() + count, count
            )
            return rows
        return np.flatnonzero(_overlap(self._from, self._to, at, at))

    def rows(self, tuples: pl.DataFrame, *, in_order: bool = True) -> Integers:
        """Return the numbers of the rows in the ranges, ascending.

        Args:
            tuples: Tuples; decimals may be scale-0 decimals of polars.
            in_order: Whether they are ordered by event time, null first.
        """
        at = times(tuples, self._arc)
        rows = self._in_time(at, in_order=in_order)
        if not self._group or not len(rows):
            return rows
        numbers = pl.Series("@row", rows)
        found = [tuples[name][numbers].cast(dtype) for name, dtype in self._dtypes.items()]
        if self._groups.height == 1:  # the ranges are all of this group
            same = [column.eq_missing(self._groups[column.name]) for column in found]
            return rows[np.logical_and.reduce([each.to_numpy() for each in same])]
        event_times = pl.Series("@at_ms", at[rows])
        wanted = (
            pl.DataFrame([numbers, event_times, *found, one(len(rows))])
            .join(self._groups, on=self._keys, nulls_equal=True, maintain_order="left")
            .select("@row", "@at_ms", "@#")
        )
        matches = (
            (wanted if in_order else wanted.sort("@at_ms"))
            .join_asof(
                self._by_group,
                left_on="@at_ms",
                right_on="from_ms",
                by="@#",
                check_sortedness=False,  # both are sorted, which polars can't see with `by`
            )
            .filter(pl.col("@at_ms") < pl.col("to_ms"))
        )
        narrowed: Integers = matches["@row"].to_numpy()
        return narrowed if in_order else np.sort(narrowed)


class HistoryRemovedError(ErrataError):
    """The requested epoch is below the oldest one that the copy can still answer for."""

    def __init__(self, arc: str, *, epoch: int, floor: int) -> None:
        self.arc, self.epoch, self.floor = arc, epoch, floor
        super().__init__(
            f"arc {arc!r} was requested as of epoch {epoch}, but versions superseded at or before "
            f"epoch {floor} have been removed; request epoch {floor} or later"
        )


class NotYetCompleteError(ErrataError):
    """The requested epoch is not complete in the copy yet; repeat the request later."""

    def __init__(self, arc: str, *, epoch: int, upto: int) -> None:
        self.arc, self.epoch, self.upto = arc, epoch, upto
        super().__init__(
            f"arc {arc!r} was requested as of epoch {epoch}, but the copy is complete only up to "
            f"epoch {upto}; repeat the request later"
        )


class EpochOrderError(ErrataError):
    """Revisions were appended out of order: a bug of the caller."""

    def __init__(self, arc: str, *, actual: tuple[int, int], after: int, upto: int) -> None:
        self.arc, self.actual, self.after, self.upto = arc, actual, after, upto
        super().__init__(
            f"copy of arc {arc!r} needs epochs above {after} and up to {upto}, found "
            f"{actual[0]} to {actual[1]}; leave out revisions that were appended before"
        )
