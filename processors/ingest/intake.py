"""Decodes a batch of a source's records and reconciles it with the tuples that the arc holds.

Each identity gets one net revision, or a refusal. The arc wins: a second insert of the same tuple
is ignored; an insert with other values becomes a replace; a `before` that differs from the arc is
counted and ignored; a revision of an identity that the arc does not hold is refused. Records of one
identity apply in their order. All work is by column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.batch import LONGEST_VALUE, ROW, Batch, Checks, Decoded, Refusal
from errata.processors.envelopes.make import make
from errata.processors.expressions.expression import compile_event_time
from errata.processors.ingest.identity_index import LONGEST_KEY, Index
from errata.processors.plan.topology import Source
from errata.processors.wire.dead_letter import AHEAD, TOO_LARGE, TOO_OLD, UNKNOWN_IDENTITY
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.avro import AFTER_BYTES, IDENTITY_BYTES, tuple_schema
from errata.schemas.decode import Decoder
from errata.schemas.encode import Encoder
from errata.schemas.partition import partitions
from errata.topics.cluster import Records, TopicPartition

_PART_ROWS = 50_000


class Intake:
    """Decodes and reconciles batches of one source.

    Args:
        source: The source.
        codec: Codec of its arc.
        reach_ms: How old a tuple may be behind the newest one and still count as held; None: of any
            age.
    """

    def __init__(self, source: Source, codec: ArcCodec, *, reach_ms: int | None = None) -> None:
        self.arc = arc = source.arc
        self.codec, self.reach_ms = codec, reach_ms
        declared = {name: arc.fields[name] for name in arc.fields if name != arc.event_time}
        text = source.event_time
        self.event_time = None if text is None else compile_event_time(text, declared)
        self.envelope = make(source, codec.registry)
        self.checks, self.key_encoder = Checks(arc), key_encoder(arc)
        content = tuple_schema("Tuple", arc.fields)
        self.encoder, self.decoder = Encoder(content), Decoder(content)

    def decode(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None
    ) -> Decoded:
        """Return the revisions of a batch and the records that are refused.

        Args:
            values: Values of the records, in order.
            keys: Keys of the records; None if they have none.
        """
        batch = Batch(values, [None] * len(values) if keys is None else keys)
        rows, refused = _usable(batch)
        if len(rows) < len(values):
            chosen = rows.tolist()
            batch = Batch(*([column[row] for row in chosen] for column in batch))
        decoded = self.envelope.decode(batch)
        checked = self.checks(self._timed(decoded.frame))
        refused += Decoded(checked.frame, decoded.refused + checked.refused).with_rows(rows).refused
        frame = split_moves(self.arc, checked.with_rows(rows).frame)
        frame = frame.hstack([self._keys(self.codec.identities(frame)).alias(KEY)])
        sizes = frame[KEY].bin.size()
        if cast(int, sizes.max() or 0) > LONGEST_KEY:
            long = frame.filter(sizes > LONGEST_KEY)
            need = f"needs an identity of at most {LONGEST_KEY} bytes, found more"
            refused += [Refusal(row, TOO_LARGE, need) for row in long[ROW].unique().to_list()]
            frame = frame.filter(~pl.col(ROW).is_in(long[ROW].implode()))
        return Decoded(frame, refused, decoded.passed)

    def _timed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a batch with the event time of both sides, if an expression computes it."""
        expression = self.event_time
        if expression is None:
            return frame
        declared = [name for name in self.arc.fields if name != self.arc.event_time]
        return frame.with_columns(
            expression.evaluate(frames.side(frame, side, declared)).alias(
                side + self.arc.event_time
            )
            for side in (frames.BEFORE, frames.AFTER)
        )

    def reconcile(self, index: Index, revisions: pl.DataFrame) -> Reconciled:
        """Reconcile a batch with the tuples that the arc holds; see `reconcile`."""
        keys = revisions[KEY].unique().sort()  # sorted keys share pages of the index
        known_keys, contents = index.get(keys.to_list())
        held = self.decoder.decode(contents).hstack([pl.Series(KEY, known_keys, dtype=pl.Binary)])
        young = not_expired(self.arc, held, revisions, reach_ms=self.reach_ms)
        return reconcile(self.arc, revisions, young)

    def remove_expired(self, index: Index, *, before_ms: int, limit: int) -> None:
        """Remove tuples of an event time before this one from an index.

        Raises:
            StoredIndexError: If it can't be read or written.
        """
        lists, keys = index.listed_before(before_ms, limit=limit)
        if lists:
            known, contents = index.get(sorted(set(keys)))
            expired = self.arc.event_times(self.decoder.decode(contents)) < before_ms
            index.remove([*lists, *compress(known, expired.to_list())])

    def held(self, index: Index, *, since_ms: int) -> Iterator[pl.DataFrame]:
        """Yield all tuples of an index from an event time on, in parts."""
        for _, contents in index.parts(_PART_ROWS):
            tuples = self.decoder.decode(contents)
            yield tuples.filter(self.arc.event_times(tuples) >= since_ms)

    def encoded(self, revisions: pl.DataFrame, keys: pl.Series | None = None) -> pl.DataFrame:
        """Return revisions with `IDENTITY_BYTES` and `AFTER_BYTES`.

        Args:
            revisions: The revisions.
            keys: Their encoded identities, if they are known.
        """
        if keys is None:
            keys = self._keys(self.codec.identities(revisions))
        is_there = revisions["op"] != frames.DELETE
        entering = frames.entering(revisions, list(self.arc.fields))
        after = self.encoder.series(entering)
        if entering.height < revisions.height:
            after = (
                pl.Series([None], dtype=pl.Binary)
                .new_from_index(0, revisions.height)
                .scatter(is_there.arg_true(), after)
            )
        return by_column.beside(revisions, keys.alias(IDENTITY_BYTES), after.alias(AFTER_BYTES))

    def change(
        self,
        index: Index,
        revisions: pl.DataFrame,
        *,
        done: int,
        positions: dict[TopicPartition, int],
        resume: int | None,
    ) -> None:
        """Apply revisions to the index, in an open transaction; see `encoded`, `Index.begin`."""
        at, is_delete = self.arc.event_time, revisions["op"] == frames.DELETE
        names = {name: name for name in (IDENTITY_BYTES, AFTER_BYTES)} | {at: frames.AFTER + at}
        put = by_column.kept(by_column.renamed(revisions, names), ~is_delete)
        put = put.sort(IDENTITY_BYTES)  # sorted keys share pages of the index
        index.begin(
            put=(put[IDENTITY_BYTES].to_list(), put[AFTER_BYTES].to_list()),
            times_ms=self.arc.event_times(put),
            delete=revisions[IDENTITY_BYTES].filter(is_delete).to_list(),
            done=done,
            positions=positions,
            resume=resume,
        )

    def _keys(self, tuples: pl.DataFrame) -> pl.Series:
        return self.key_encoder.series(by_column.pick(tuples, self.arc.identity))


def key_encoder(arc: Arc) -> Encoder:
    """Return the encoder of an arc's identities as keys of an index."""
    return Encoder(tuple_schema("Key", {name: arc.fields[name] for name in arc.identity}))


def refuse_ahead(
    decoded: Decoded, source: Source, records: Sequence[Records], *, now_ms: int
) -> Decoded:
    """Refuse revisions whose event time is too far after the time at which they were written.

    One such tuple would move the watermark so far that all later ones count as older than `keep`.
    The time of writing is the record's timestamp: a topic that is read again is judged alike. Where
    producers write that timestamp it may be as wrong as the event time, so the clock bounds it.

    Args:
        decoded: A batch; its rows are those of the records.
        source: The source.
        records: The records of the batch, in order.
        now_ms: The clock.
    """
    if source.max_ahead_ms is None or decoded.frame.is_empty():
        return decoded
    written_ms = np.concatenate([np.fromiter(each.times_ms, np.int64) for each in records])
    written_ms = np.where(written_ms > 0, np.minimum(written_ms, now_ms), now_ms)  # <= 0: unknown
    latest_ms = pl.Series(written_ms + source.max_ahead_ms)[decoded.frame[ROW]]
    at = decoded.frame[frames.AFTER + source.arc.event_time]
    ahead = at > latest_ms
    if not ahead.any():
        return decoded
    bad = decoded.frame.select(ROW).with_columns(
        detail=pl.concat_str(
            pl.lit("event time "),
            at.cast(pl.Datetime("ms")).dt.to_string("iso:strict"),
            pl.lit(" is after "),
            latest_ms.cast(pl.Datetime("ms")).dt.to_string("iso:strict"),
            pl.lit(", the latest at the time of writing (max_ahead)"),
        )
    )
    bad = bad.filter(ahead).unique(subset=ROW, maintain_order=True)
    refused = [Refusal(row, AHEAD, detail) for row, detail in bad.iter_rows()]
    kept = decoded.frame.filter(~pl.col(ROW).is_in(bad[ROW].implode()))
    return replace(decoded, frame=kept, refused=decoded.refused + refused)


def owners(revisions: pl.DataFrame, count: int) -> pl.Series:
    """Return which of `count` owners has each revision's identity, by the hash of its key."""
    return pl.Series(partitions(revisions[KEY].to_list(), count)).cast(pl.Int32)


def _usable(batch: Batch) -> tuple[npt.NDArray[np.int64], list[Refusal]]:
    """Return the row numbers of records within `LONGEST_VALUE`, and refusals of the others."""
    longest = max(map(len, filter(None, chain(*batch))), default=0)
    if longest <= LONGEST_VALUE:
        return np.arange(len(batch.values)), []
    sizes = [
        max(len(value or b""), len(key or b""))
        for value, key in zip(batch.values, batch.keys, strict=True)
    ]
    refused = [
        Refusal(row, TOO_LARGE, f"needs at most {LONGEST_VALUE} bytes, found {size}")
        for row, size in enumerate(sizes)
        if size > LONGEST_VALUE
    ]
    return np.flatnonzero(np.array(sizes) <= LONGEST_VALUE), refused


KEY, NEWEST = "__key", "__newest"


_NOT_HELD = "the arc holds no tuple of this identity"


@dataclass(frozen=True)
class Reconciled:
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


def reconcile(arc: Arc, revisions: pl.DataFrame, held: pl.DataFrame) -> Reconciled:
    """Return the net changes of a batch of source revisions.

    Args:
        arc: The source's arc.
        revisions: In order of arrival: op, both sides, ``__key`` (encoded identity), ``__row``,
            ``has_before`` (whether the record states its original), ``__newest`` (newest event time
            that its source partition had read before, less lateness: older tuples are late, and
            those older by more than `keep` are refused).
        held: The arc's tuples of these keys, with ``__key``; keys without a tuple are absent.
    """
    fresh, rest = _split_fresh(revisions, held)
    rest_reconciled = _reconcile_any(arc, rest, held)
    if fresh.is_empty():
        return rest_reconciled
    refused = rest_reconciled.refused
    if arc.keep_ms is not None:
        old = fresh[frames.AFTER + arc.event_time] < fresh[NEWEST] - arc.keep_ms
        if old.any():
            refused = pl.concat([_too_old(arc, fresh.filter(old)), refused])
            fresh = fresh.filter(~old)
    at = fresh[frames.AFTER + arc.event_time]
    counts = Counter(rest_reconciled.counts)
    counts.update(inserted=fresh.height, late=int((at < fresh[NEWEST]).sum()))
    newest: int | None = pl.Series([at.max(), rest_reconciled.newest_ms]).max()  # type: ignore[assignment]
    return Reconciled(
        pl.concat([by_column.pick(fresh, frames.schema(arc.fields)), rest_reconciled.revisions]),
        pl.concat([fresh[KEY], rest_reconciled.keys]),
        refused,
        newest,
        counts,
    )


def not_expired(
    arc: Arc, held: pl.DataFrame, revisions: pl.DataFrame, *, reach_ms: int | None
) -> pl.DataFrame:
    """Drop held tuples that are too old to be held, whether they still are or not.

    Args:
        arc: The source's arc.
        held: As of `reconcile`.
        revisions: As of `reconcile`.
        reach_ms: How old a tuple may be behind the newest one and still count as held; None: of any
            age.
    """
    if reach_ms is None or held.is_empty():
        return held
    newest = revisions[NEWEST]
    if newest.n_unique() > 1:
        of_held = revisions.select(KEY, NEWEST).join(held.select(KEY), on=KEY, how="semi")
        first = of_held.group_by(KEY).agg(pl.col(NEWEST).min())
        newest = held.join(first, on=KEY, how="left", maintain_order="left")[NEWEST]
    return by_column.kept(held, arc.event_times(held) >= newest[: held.height] - reach_ms)


def _split_fresh(revisions: pl.DataFrame, held: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split off inserts whose identity occurs nowhere else in the batch or the arc.

    In most feeds these are nearly all records, and they need no reconciling.
    """
    is_fresh, keys = revisions["op"] == frames.INSERT, revisions[KEY]
    if keys.n_unique() < len(keys):
        is_fresh &= ~keys.is_duplicated()
    if held.height:
        is_fresh &= ~keys.is_in(held[KEY].implode())
    if revisions["moved"].any():
        is_fresh &= ~revisions[ROW].is_in(revisions.filter("moved")[ROW].implode())
    return by_column.kept(revisions, is_fresh), by_column.kept(revisions, ~is_fresh)


def _reconcile_any(arc: Arc, revisions: pl.DataFrame, held: pl.DataFrame) -> Reconciled:
    """Return the net changes of any batch: the general case of `reconcile`."""
    if revisions.is_empty():
        none, keys = frames.none(arc.fields), pl.Series(KEY, [], dtype=pl.Binary)
        return Reconciled(none, keys, _too_old(arc, revisions), None, {})
    names = list(arc.fields)
    known = by_column.renamed(held, {f"held.{name}": name for name in names} | {KEY: KEY})
    known = known.hstack([by_column.constant(True, held.height, pl.Boolean).alias("held")])
    rows = revisions.join(known, on=KEY, how="left", maintain_order="left").with_columns(
        pl.col("held").fill_null(False)
    )
    at, was = frames.AFTER + arc.event_time, "held." + arc.event_time
    entering = (pl.col("op") != frames.DELETE) & _is_old(arc, pl.col(at))
    stated = (pl.col("op") != frames.INSERT) & _is_old(arc, pl.col(frames.BEFORE + arc.event_time))
    leaving = pl.when("held").then(_is_old(arc, pl.col(was))).otherwise(stated)
    rows = rows.with_columns((entering | leaving).fill_null(False).alias("old"))
    if rows["moved"].any():  # both halves of a record are accepted, or neither
        rows = rows.with_columns(pl.col("old").any().over(ROW))
    too_old = by_column.kept(rows, rows["old"])
    rows = _with_history(by_column.kept(rows, ~rows["old"]), names)
    stays = rows["alive"] | (rows["op"] == frames.INSERT)
    unknown = by_column.kept(rows, ~(stays | rows["moved"]))
    rows = by_column.kept(rows, stays)

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

    last = rows
    if rows[KEY].n_unique() < rows.height:
        last = rows.unique(subset=KEY, keep="last", maintain_order=True)
    net = frames.between(
        by_column.renamed(last, {name: f"held.{name}" for name in names} | {KEY: KEY}),
        last["held"],
        by_column.renamed(last, {name: frames.AFTER + name for name in names} | {KEY: KEY}),
        last["op"] != frames.DELETE,
    )
    keys = net.select(pl.coalesce(frames.AFTER + KEY, frames.BEFORE + KEY).alias(KEY))[KEY]
    return Reconciled(
        net.drop(frames.AFTER + KEY, frames.BEFORE + KEY),
        keys,
        pl.concat(
            [
                _too_old(arc, too_old),
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
    if rows[KEY].n_unique() == rows.height:
        return rows.with_columns(pl.col("held").alias("alive"), *held)
    repeated = rows[KEY].is_duplicated()
    single = rows.filter(~repeated).with_columns(pl.col("held").alias("alive"), *held)
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
    return pl.concat([single, followed.select(single.columns)])


def _is_old(arc: Arc, at: pl.Expr) -> pl.Expr:
    return pl.lit(False) if arc.keep_ms is None else at < pl.col(NEWEST) - arc.keep_ms


def _too_old(arc: Arc, rows: pl.DataFrame) -> pl.DataFrame:
    oldest = pl.col(NEWEST) - (arc.keep_ms or 0)
    detail = pl.concat_str(
        pl.lit("event time before "), oldest, pl.lit(", the oldest that is kept")
    )
    return _refusal(rows, TOO_OLD, detail)


def _refusal(rows: pl.DataFrame, reason: str, detail: pl.Expr) -> pl.DataFrame:
    if rows.is_empty():
        return pl.DataFrame(schema={ROW: pl.Int64, "reason": pl.String, "detail": pl.String})
    return rows.select(ROW, pl.lit(reason).alias("reason"), detail.alias("detail"))


def split_moves(arc: Arc, revisions: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions, each replace that changes the identity as a delete and an insert.

    The delete's row is marked ``moved``: if the arc does not hold it, the insert still counts.
    """
    names = list(arc.fields)
    stays = by_column.constant(False, revisions.height, pl.Boolean).alias("moved")
    revisions = by_column.beside(revisions, stays)
    if not (revisions["op"] == frames.REPLACE).any():
        return revisions
    moves = (
        (pl.col("op") == frames.REPLACE)
        & pl.col("has_before")
        & pl.any_horizontal(
            pl.col(frames.BEFORE + name).is_not_null()
            & (pl.col(frames.BEFORE + name) != pl.col(frames.AFTER + name))
            for name in arc.identity
        )
    )
    moved = revisions.filter(moves)
    if moved.is_empty():
        return revisions
    nothing = {
        side: [pl.lit(None, arc.fields[name].dtype).alias(side + name) for name in names]
        for side in (frames.BEFORE, frames.AFTER)
    }
    leave = moved.with_columns(
        pl.lit(frames.DELETE, pl.UInt8).alias("op"),
        pl.lit(True).alias("moved"),
        *nothing[frames.AFTER],
    )
    enter = moved.with_columns(
        pl.lit(frames.INSERT, pl.UInt8).alias("op"),
        pl.lit(False).alias("has_before"),
        *nothing[frames.BEFORE],
    )
    return pl.concat([revisions.filter(~moves), leave, enter]).sort(ROW, maintain_order=True)
