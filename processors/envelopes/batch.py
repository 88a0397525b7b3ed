"""Batches of records: their decoded form, and the checks on every revision of a source, by column.

A decoded batch is a frame with ``__row`` (row number in the batch), ``op``, both sides of the
declared fields, ``has_before`` (the record states its original) and ``has_after``. A record that
fails a check is refused, with the reason of the first failed check. A format builds the columns
(`ColumnBuilder`) and gives an envelope a reader of tuples and one of revisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import is_not
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.wire.dead_letter import BAD_EVENT_TIME, UNDECODABLE
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import Fields, FieldType, physical

ROW = "__row"

EARLIEST_MS = -30_610_224_000_000
LATEST_MS = 221_845_392_000_000
"""Event times lie in the years 1000 to 8999: Avro readers know the years 1 to 9999, and windows
reach beyond their tuples."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_YEARS = {  # 1 to 9999
    "timestamp-millis": (_FIRST_MS, _LAST_MS),
    "timestamp-micros": (_FIRST_MS * 1000, _LAST_MS * 1000 + 999),
    "date": (_FIRST_MS // 86_400_000, _LAST_MS // 86_400_000),
}
LONGEST_VALUE = 200_000
"""Most bytes of a source record: a result may hold its values four times; a topic takes 1 MB."""


class Batch(NamedTuple):
    """Keys and values of records, in order; both lists have the same length."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]


@dataclass(frozen=True)
class Refusal:
    """A refused record: its row in the batch, a reason for counting, and the detail."""

    row: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Decoded:
    """A decoded batch of records.

    Args:
        frame: A row for each decoded record, in order; ``__row`` is its row in the batch.
        refused: The refused records.
        passed: Number of skipped records, which describe no tuple.
        absent: Rows in the batch of records whose value is null.
    """

    frame: pl.DataFrame
    refused: list[Refusal]
    passed: int = 0
    absent: tuple[int, ...] = ()

    def with_rows(self, rows: npt.NDArray[np.int64]) -> Decoded:
        """Return the batch with row numbers mapped through `rows`, which has one for each row."""
        places = pl.Series(rows, dtype=pl.Int64)[self.frame[ROW]]
        return replace(
            self,
            frame=by_column.beside(self.frame, places.alias(ROW)),
            refused=[replace(r, row=int(rows[r.row])) for r in self.refused],
            absent=tuple(rows[list(self.absent)].tolist()),
        )


def join_parts(parts: Sequence[Decoded]) -> Decoded:
    """Join parts of one batch; there must be at least one."""
    if len(parts) == 1:
        return parts[0]
    columns = parts[0].frame.columns
    return Decoded(
        pl.concat([part.frame.select(columns) for part in parts]).sort(ROW, maintain_order=True),
        [refusal for part in parts for refusal in part.refused],
        sum(part.passed for part in parts),
        tuple(sorted(row for part in parts for row in part.absent)),
    )


def decoded_each(
    decode: Callable[[bytes], Any],
    records: Sequence[bytes],
    *,
    errors: tuple[type[Exception], ...],
    need: str,
) -> tuple[list[Any], npt.NDArray[np.int64], list[Refusal]]:
    """Decode each record; return the results, their rows, and refusals of the others.

    Args:
        decode: Decodes one record.
        records: The records.
        errors: What it raises for a bad one.
        need: What a bad one is not, for its refusal.
    """
    try:
        return list(map(decode, records)), np.arange(len(records)), []
    except errors:  # some record is bad: decode them one by one
        results, rows, refused = [], [], []
        for row, record in enumerate(records):
            try:
                results.append(decode(record))
            except errors as error:
                refused.append(Refusal(row, UNDECODABLE, f"{need}: {error}"))
            else:
                rows.append(row)
        return results, np.array(rows, np.int64), refused


def columns(fields: Fields) -> dict[str, type[pl.DataType]]:
    """Return the polars schema of a decoded batch of revisions."""
    sides = {"has_before": pl.Boolean, "has_after": pl.Boolean}
    return {ROW: pl.Int64, **frames.schema(fields), **sides}


def needed(fields: Fields, identity: Sequence[str]) -> list[str]:
    """Return the fields of an identity that are never null.

    Those of a source all are; not those of an arc whose sinks are read back.
    """
    return [name for name in identity if not fields[name].optional]


def is_nameless(fields: Fields, identity: Sequence[str], prefix: str = "") -> pl.Expr:
    """Whether a row lacks a part of its identity."""
    parts = (pl.col(prefix + name).is_null() for name in needed(fields, identity))
    return pl.any_horizontal(pl.lit(False), *parts)


def no_revisions(fields: Fields) -> pl.DataFrame:
    """Return a decoded batch of no records."""
    return pl.DataFrame(schema=columns(fields))


def with_all_columns(fields: Fields, frame: pl.DataFrame) -> pl.DataFrame:
    """Return a batch of revisions with all columns; missing ones become null or false."""
    sides = ("has_before", "has_after")
    return pl.DataFrame(
        [
            frame[name]
            if name in frame.columns
            else by_column.constant(False if name in sides else None, frame.height, kind).alias(
                name
            )
            for name, kind in columns(fields).items()
        ]
    )


def split_nulls(
    values: Sequence[bytes | None],
) -> tuple[npt.NDArray[np.int64], list[bytes], list[int]]:
    """Return the row numbers of the values that are not None, the values, and the other rows.

    Example:
        >>> split_nulls([b"a", None])
        (array([0]), [b'a'], [1])
    """
    present = [value for value in values if value is not None]
    if len(present) == len(values):
        return np.arange(len(values)), present, []
    is_present = np.fromiter(map(is_not, values, repeat(None)), np.bool_, len(values))
    return np.flatnonzero(is_present), present, np.flatnonzero(~is_present).tolist()


def no_tuples(fields: Fields) -> pl.DataFrame:
    """Return a decoded batch of no tuples."""
    return pl.DataFrame(schema={ROW: pl.Int64, **physical(fields)})


class Checks:
    """The checks on the revisions of a source.

    Args:
        arc: The source's arc, which may have more than the declared fields.
    """

    def __init__(self, arc: Arc) -> None:
        op, delete = pl.col("op"), frames.DELETE
        faults = list(_faults(arc))
        self._texts = [(reason, detail) for reason, detail, _ in faults]
        self._first = pl.coalesce(
            pl.when(bad.fill_null(False)).then(number) for number, (_, _, bad) in enumerate(faults)
        ).alias("__fault")
        # null out sides that the op does not have
        sides = {
            side + name: pl.when(op != absent).then(pl.col(side + name)).alias(side + name)
            for side, absent in ((frames.BEFORE, frames.INSERT), (frames.AFTER, delete))
            for name in arc.fields
        }
        sides["has_before"] = pl.col("has_before") & (op != frames.INSERT)
        names = (name for name in columns(arc.fields) if name != "has_after")
        self._checked = [sides.get(name, pl.col(name)) for name in names]

    def __call__(self, frame: pl.DataFrame) -> Decoded:
        """Split off and refuse revisions that the arc can't hold.

        Args:
            frame: A decoded batch; op is null where it is unknown.
        """
        fault = frame.select(self._first).to_series()
        refused = list[Refusal]()
        if fault.null_count() < frame.height:
            bad = fault.is_not_null()
            rows = zip(frame[ROW].filter(bad), fault.filter(bad), strict=True)
            refused = [Refusal(row, *self._texts[number]) for row, number in rows]
            frame = frame.filter(~bad)
        return Decoded(frame.select(self._checked), refused)


def _faults(arc: Arc) -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield the faults of a revision, the ones that count first: reason, detail, and where."""
    op, delete = pl.col("op"), frames.DELETE
    enters = (op != delete) & pl.col("has_after")
    yield UNDECODABLE, "needs an op of insert, delete or replace", op.is_null()
    lacks_after = (op != delete) & ~pl.col("has_after")
    yield UNDECODABLE, "an insert or replace needs 'after'", lacks_after
    names = needed(arc.fields, arc.identity)
    if names:
        nameless = pl.all_horizontal(pl.col(frames.BEFORE + n).is_null() for n in names)
        yield UNDECODABLE, "a delete needs 'before'", (op == delete) & nameless
    at = pl.col(frames.AFTER + arc.event_time)
    what = f"event time {arc.event_time!r}" if arc.event_time in arc.visible else "event time"
    yield BAD_EVENT_TIME, f"{what} is null", enters & at.is_null()
    outside = enters & ~at.is_between(EARLIEST_MS, LATEST_MS)
    yield BAD_EVENT_TIME, f"{what} is not in years 1000 to 8999", outside
    for name, kind in arc.fields.items():
        if not kind.optional and name != arc.event_time:
            missing = enters & pl.col(frames.AFTER + name).is_null()
            yield UNDECODABLE, f"missing field {name!r} (never null)", missing
        if name in names:
            missing = (op == delete) & pl.col(frames.BEFORE + name).is_null()
            yield UNDECODABLE, f"missing identity {name!r} in 'before'", missing
        if kind.kind in _YEARS:
            for side in (frames.BEFORE, frames.AFTER):
                beyond = ~pl.col(side + name).is_between(*_YEARS[kind.kind])
                yield UNDECODABLE, f"{name!r} is not in years 1 to 9999", beyond


_SHOWN = 60


@dataclass
class ColumnBuilder:
    """The columns built so far from the records of a batch.

    Args:
        columns: By name, all of one height.
        faults: Text by row in these columns.
    """

    columns: dict[str, pl.Series] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def add_constant(
        self, column: str, value: object, dtype: type[pl.DataType], height: int
    ) -> None:
        """Add a column of one value; null for a missing field."""
        self.columns[column] = pl.Series([value], dtype=dtype).new_from_index(0, height)

    def checked(
        self,
        name: str,
        converted: pl.Series,
        *,
        original: pl.Series,
        kind: FieldType,
        places: npt.NDArray[np.int64] | None = None,
        hint: str = "",
    ) -> pl.Series:
        """Note a fault where a value could not be converted; return the column.

        Args:
            name: Name of the field, for the fault.
            converted: The converted values, null where conversion failed.
            original: The original values.
            kind: The declared type.
            places: The row of each value; None if every record has one.
            hint: Text to add to the fault.
        """
        if converted.null_count() > original.null_count():
            for i in (converted.is_null() & original.is_not_null()).arg_true().to_list():
                shown = str(original[i])[:_SHOWN]
                place = i if places is None else int(places[i])
                self.faults.setdefault(
                    place, f"{name!r} needs {kind.required}, found {shown}{hint}"
                )
        return converted

    def decoded(self, rows: npt.NDArray[np.int64], **more: pl.Series) -> Decoded:
        """Return the good records and the refused ones.

        Args:
            rows: The row in the batch of each record.
            more: Further columns.
        """
        frame = pl.DataFrame({ROW: pl.Series(rows, dtype=pl.Int64), **more, **self.columns})
        if not self.faults:
            return Decoded(frame, [])
        good = np.ones(len(rows), np.bool_)
        good[list(self.faults)] = False
        refused = [Refusal(int(rows[i]), UNDECODABLE, reason) for i, reason in self.faults.items()]
        return Decoded(frame.filter(pl.Series(good)), refused)


Tuples = Callable[[Sequence[bytes]], Decoded]
"""Reads tuples: one column per field, null where it is missing."""

Revisions = Callable[[Sequence[bytes]], Decoded]
"""Reads revisions: op as a code (null if unknown), both sides, and which sides are present."""
