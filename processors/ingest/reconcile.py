"""Reconciles a batch of source revisions with the arc: one net revision per identity, or a refusal.

The arc wins: a second insert of the same tuple is ignored; an insert with other values becomes a
replace; a `before` that differs from the arc is counted and ignored; a revision of an identity that
the arc does not hold is refused. Records of one identity apply in their order. All work is by
column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from errata.processors.wire.dead_letter import TOO_OLD, UNKNOWN_IDENTITY
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc

KEY, ROW, NEWEST = "__key", "__row", "__newest"


_NOT_HELD = "the arc holds no tuple of this identity"


@dataclass(frozen=True)
class Taken:
    """The result of reconciling a batch.

    Args:
        revisions: Net revisions of the arc, at most one per identity.
        keys: The encoded identity of each.
        refused: ``__row`` (row in the batch), ``reason`` and ``detail``.
        newest_ms: Largest accepted event time; None if nothing was accepted.
        counts: Number of records by outcome.
    """

    revisions: pl.DataFrame
    keys: pl.Series
    refused: pl.DataFrame
    newest_ms: int | None
    counts: Mapping[str, int]


def take(arc: Arc, given: pl.DataFrame, held: pl.DataFrame) -> Taken:
    """Return the net changes of a batch of source revisions.

    Args:
        arc: The source's arc.
        given: In order of arrival: op, both sides, ``__key`` (encoded identity), ``__row``,
            ``has_before`` (whether the record states its original), ``__newest`` (newest event time
            that its source partition had seen before, less lateness: older tuples are late, and
            those older by more than `keep` are refused).
        held: The arc's tuples of these keys, with ``__key``; keys that it does not hold are absent.
    """
    fresh, rest = _parted(given, held)
    rest_taken = _judge(arc, rest, held)
    if fresh.is_empty():
        return rest_taken
    refused = rest_taken.refused
    old = fresh.select(_is_old(arc, pl.col(frames.AFTER + arc.event_time))).to_series()
    if old.any():
        refused = pl.concat([_too_old(arc, fresh.filter(old)), refused])
        fresh = fresh.filter(~old)
    at = fresh[frames.AFTER + arc.event_time]
    counts = Counter(rest_taken.counts)
    counts.update(inserted=fresh.height, late=int((at < fresh[NEWEST]).sum()))
    newest: int | None = pl.Series([at.max(), rest_taken.newest_ms]).max()  # type: ignore[assignment]
    return Taken(
        pl.concat([fresh.select(list(frames.schema(arc.fields))), rest_taken.revisions]),
        pl.concat([fresh[KEY], rest_taken.keys]),
        refused,
        newest,
        counts,
    )


def _parted(given: pl.DataFrame, held: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split off inserts whose identity occurs nowhere else in the batch or the arc.

    In most feeds these are nearly all records, and they need no reconciling.
    """
    alone = (given["op"] == frames.INSERT) & ~given[KEY].is_duplicated()
    if held.height:
        alone &= ~given[KEY].is_in(held[KEY].implode())
    if given["moved"].any():
        alone &= ~given[ROW].is_in(given.filter("moved")[ROW].implode())
    return given.filter(alone), given.filter(~alone)


def _judge(arc: Arc, given: pl.DataFrame, held: pl.DataFrame) -> Taken:
    """Return the net changes of any batch: the general case of `take`."""
    names = list(arc.fields)
    known = held.rename({name: f"held.{name}" for name in names}).with_columns(
        pl.lit(True).alias("held")
    )
    rows = given.join(known, on=KEY, how="left", maintain_order="left").with_columns(
        pl.col("held").fill_null(False)
    )
    at, was = frames.AFTER + arc.event_time, "held." + arc.event_time
    entering = (pl.col("op") != frames.DELETE) & _is_old(arc, pl.col(at))
    rows = rows.with_columns((entering | (pl.col("held") & _is_old(arc, pl.col(was)))).alias("old"))
    if rows["moved"].any():  # both halves of a record are accepted, or neither
        rows = rows.with_columns(pl.col("old").any().over(ROW))
    aged = rows.filter("old")
    rows = _with_history(rows.filter(~pl.col("old")), names)
    unknown = rows.filter(~pl.col("alive") & (pl.col("op") != frames.INSERT) & ~pl.col("moved"))
    rows = rows.filter(pl.col("alive") | (pl.col("op") == frames.INSERT))

    same = pl.all_horizontal(
        pl.col(frames.AFTER + name).eq_missing(pl.col("was." + name)) for name in names
    )
    differs = pl.any_horizontal(
        pl.col(frames.BEFORE + name).ne_missing(pl.col("was." + name)) for name in names
    )
    alive, op = pl.col("alive"), pl.col("op")
    counts = rows.select(
        (~alive & (op == frames.INSERT)).sum().alias("inserted"),
        (alive & (op == frames.INSERT) & same).sum().alias("duplicates"),
        (alive & (op == frames.REPLACE) & same).sum().alias("unchanged"),
        (alive & (op != frames.DELETE) & ~same).sum().alias("replaced"),
        (op == frames.DELETE).sum().alias("deleted"),
        (alive & pl.col("has_before") & differs).sum().alias("disagreed"),
        (~alive & (op == frames.INSERT) & (pl.col(at) < pl.col(NEWEST))).sum().alias("late"),
    ).row(0, named=True)

    last = rows.unique(subset=KEY, keep="last", maintain_order=True)
    before = last.select(pl.col(f"held.{name}").alias(name) for name in names)
    after = frames.side(last, frames.AFTER, names)
    revisions = frames.between(
        before.with_columns(last[KEY]),
        last["held"],
        after.with_columns(last[KEY]),
        last["op"] != frames.DELETE,
    )
    keys = revisions.select(pl.coalesce(frames.AFTER + KEY, frames.BEFORE + KEY).alias(KEY))[KEY]
    return Taken(
        revisions.drop(frames.AFTER + KEY, frames.BEFORE + KEY),
        keys,
        pl.concat(
            [
                _too_old(arc, aged),
                _refusal(unknown, UNKNOWN_IDENTITY, pl.lit(_NOT_HELD)),
            ]
        ).unique(subset=ROW, maintain_order=True),
        rows.filter(op != frames.DELETE)[at].max(),  # type: ignore[arg-type]
        {name: int(count) for name, count in counts.items()},
    )


def _with_history(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Add to each row whether its identity is alive just before it, and with which values.

    Within a batch a row sees the effect of earlier rows of its identity: an insert makes it alive,
    a delete ends it, a replace changes only its values.
    """
    held = [pl.col(f"held.{name}").alias(f"was.{name}") for name in names]
    repeated = rows[KEY].is_duplicated()
    alone = rows.filter(~repeated).with_columns(pl.col("held").alias("alive"), *held)
    if not repeated.any():
        return alone
    rows = rows.filter(repeated)
    op = pl.col("op")
    alive = pl.when(op == frames.INSERT).then(True).when(op == frames.DELETE).then(False)
    rows = rows.with_row_index("__n").with_columns(
        alive.shift(1).forward_fill().over(KEY).fill_null(pl.col("held")).alias("alive")
    )
    brings = (op == frames.INSERT) | ((op == frames.REPLACE) & pl.col("alive"))
    rows = rows.with_columns(
        pl.when(brings).then("__n").shift(1).forward_fill().over(KEY).alias("__from")
    )
    earlier = frames.side(rows, frames.AFTER, names)[rows["__from"].fill_null(0)]
    inside = pl.col("__from").is_not_null()
    followed = rows.with_columns(
        pl.when(inside).then(earlier[name]).otherwise(pl.col(f"held.{name}")).alias(f"was.{name}")
        for name in names
    )
    return pl.concat([alone, followed.select(alone.columns)])


def _is_old(arc: Arc, at: pl.Expr) -> pl.Expr:
    return pl.lit(False) if arc.keep_ms is None else at < pl.col(NEWEST) - arc.keep_ms


def _too_old(arc: Arc, rows: pl.DataFrame) -> pl.DataFrame:
    oldest = pl.col(NEWEST) - (arc.keep_ms or 0)
    detail = pl.format("event time before {}, the oldest that is kept", oldest)
    return _refusal(rows, TOO_OLD, detail)


def _refusal(rows: pl.DataFrame, reason: str, detail: pl.Expr) -> pl.DataFrame:
    return rows.select(ROW, pl.lit(reason).alias("reason"), detail.alias("detail"))


def split_moves(arc: Arc, given: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions, each replace that changes the identity as a delete and an insert.

    The delete's row is marked ``moved``: if the arc does not hold it, the insert still counts.
    """
    names = list(arc.fields)
    moves = (
        (pl.col("op") == frames.REPLACE)
        & pl.col("has_before")
        & pl.any_horizontal(
            pl.col(frames.BEFORE + name).is_not_null()
            & (pl.col(frames.BEFORE + name) != pl.col(frames.AFTER + name))
            for name in arc.identity
        )
    )
    given = given.with_columns(pl.lit(False).alias("moved"))
    found = given.filter(moves)
    if found.is_empty():
        return given
    nothing = {
        side: [pl.lit(None, arc.fields[name].dtype).alias(side + name) for name in names]
        for side in (frames.BEFORE, frames.AFTER)
    }
    leave = found.with_columns(
        pl.lit(frames.DELETE, pl.UInt8).alias("op"),
        pl.lit(True).alias("moved"),
        *nothing[frames.AFTER],
    )
    enter = found.with_columns(
        pl.lit(frames.INSERT, pl.UInt8).alias("op"),
        pl.lit(False).alias("has_before"),
        *nothing[frames.BEFORE],
    )
    return pl.concat([given.filter(~moves), leave, enter]).sort(ROW, maintain_order=True)
