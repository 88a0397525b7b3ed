"""What every decoded source revision must satisfy, by column; and the form envelopes decode to.

A decoded batch is a frame with ``__row`` (place in the batch), ``op``, both sides, ``has_before``
(the record told its original) and ``has_after``. What fails is told with a reason, first fault
first.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from processors.dead_letter import BAD_EVENT_TIME, UNDECODABLE
from schemas import revisions as frames
from schemas.arc import Arc

ROW = "__row"

EARLIEST_MS = -30_610_224_000_000
LATEST_MS = 221_845_392_000_000
"""Event times lie in the years 1000 to 8999: Avro readers know the years 1 to 9999, and windows
reach beyond their tuples."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999


@dataclass(frozen=True)
class Refusal:
    """A record that can't be taken in: its place in the batch, a kind for counting, the detail."""

    row: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Decoded:
    """The good revisions of a batch, and the refused records."""

    frame: pl.DataFrame
    refused: list[Refusal]


def columns(arc: Arc) -> dict[str, type[pl.DataType]]:
    """Return the polars schema of a decoded batch."""
    return {ROW: pl.Int64, **frames.schema(arc.fields), "has_before": pl.Boolean}


def nothing(arc: Arc) -> pl.DataFrame:
    """Return a decoded batch of no records."""
    return pl.DataFrame(schema=columns(arc))


def check(arc: Arc, frame: pl.DataFrame) -> Decoded:
    """Part the revisions that an arc can hold from those that it can't.

    Args:
        arc: The source's arc.
        frame: Columns as said above, ``has_after`` besides; op is null where it is no op.
    """
    faults: list[tuple[str, str, pl.Expr]] = []
    op, delete = pl.col("op"), frames.DELETE
    enters = (op != delete) & pl.col("has_after")
    faults.append((UNDECODABLE, "needs an op of insert, delete or replace", op.is_null()))
    faults.append(
        (UNDECODABLE, "an insert or replace needs 'after'", (op != delete) & ~pl.col("has_after"))
    )
    faults.append((UNDECODABLE, "a delete needs 'before'", (op == delete) & ~pl.col("has_before")))
    at = pl.col(frames.AFTER + arc.event_time)
    faults.append((BAD_EVENT_TIME, f"event time {arc.event_time!r} is null", enters & at.is_null()))
    outside = ~at.is_between(EARLIEST_MS, LATEST_MS)
    faults.append(
        (
            BAD_EVENT_TIME,
            f"event time {arc.event_time!r} is not in years 1000 to 8999",
            enters & outside,
        )
    )
    for name, kind in arc.fields.items():
        if not kind.optional and name != arc.event_time:
            missing = enters & pl.col(frames.AFTER + name).is_null()
            faults.append((UNDECODABLE, f"missing field {name!r} (never null)", missing))
        if name in arc.identity:
            missing = (op == delete) & pl.col(frames.BEFORE + name).is_null()
            faults.append((UNDECODABLE, f"missing identity {name!r} in 'before'", missing))
        if kind.kind == "timestamp-millis":
            for side in (frames.BEFORE, frames.AFTER):
                beyond = ~pl.col(side + name).is_between(_FIRST_MS, _LAST_MS)
                faults.append((UNDECODABLE, f"{name!r} is not in years 1 to 9999", beyond))
    first = pl.coalesce(
        [pl.when(bad.fill_null(False)).then(number) for number, (_, _, bad) in enumerate(faults)]
    )
    judged = frame.with_columns(first.alias("__fault"))
    bad = judged.filter(pl.col("__fault").is_not_null())
    refused = [
        Refusal(row, faults[fault][0], faults[fault][1])
        for row, fault in bad.select(ROW, "__fault").iter_rows()
    ]
    good = judged.filter(pl.col("__fault").is_null()) if refused else judged
    # what is no side of the op is not looked at again
    sides = [
        pl.when(op != frames.INSERT).then(pl.col(frames.BEFORE + n)).alias(frames.BEFORE + n)
        for n in arc.fields
    ] + [
        pl.when(op != delete).then(pl.col(frames.AFTER + n)).alias(frames.AFTER + n)
        for n in arc.fields
    ]
    has_before = (pl.col("has_before") & (op != frames.INSERT)).alias("has_before")
    return Decoded(good.with_columns(*sides, has_before).select(list(columns(arc))), refused)
