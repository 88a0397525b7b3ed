"""Decodes a batch of a source's records and reconciles it with the tuples that the arc holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.envelopes.checks import LONGEST_VALUE, ROW, Batch, Decoded, Refusal, check
from errata.processors.envelopes.make import make
from errata.processors.ingest.identity_index import LONGEST_KEY, Index
from errata.processors.ingest.reconcile import KEY, Taken, split_moves, take
from errata.processors.plan.source import Source
from errata.processors.wire.dead_letter import TOO_LARGE
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.avro import tuple_schema
from errata.schemas.decode import Decoder
from errata.schemas.encode import Encoder
from errata.schemas.partition import partitions
from errata.topics.cluster import TopicPartition


class Intake:
    """Decodes and reconciles batches of one source.

    Args:
        source: The source.
        codec: Codec of its arc.
    """

    def __init__(self, source: Source, codec: ArcCodec) -> None:
        self.arc = arc = source.arc
        self.codec, self.event_time = codec, source.event_time
        self.envelope = make(source, codec.registry)
        self.key_encoder = key_encoder(arc)
        content = tuple_schema("Tuple", arc.fields)
        self.encoder, self.decoder = Encoder(content), Decoder(content)

    def decode(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None
    ) -> Decoded:
        """Return the revisions of a batch and the records that are refused.

        Args:
            values: Values of the records, in order.
            keys: Keys of the records; None: they have none.
        """
        batch = Batch(values, [None] * len(values) if keys is None else keys)
        rows, refused = _usable(batch)
        if len(rows) < len(values):
            chosen = rows.tolist()
            batch = Batch(*([column[row] for row in chosen] for column in batch))
        found = self.envelope.decode(batch)
        told = check(self.arc, self._timed(found.frame))
        refused += Decoded(told.frame, found.refused + told.refused).placed(rows).refused
        frame = split_moves(self.arc, told.placed(rows).frame)
        frame = frame.with_columns(
            pl.Series(KEY, self._keys(self.codec.identities(frame)), dtype=pl.Binary)
        )
        long = frame.filter(pl.col(KEY).bin.size() > LONGEST_KEY)
        if long.height:
            need = f"needs an identity of at most {LONGEST_KEY} bytes, found more"
            refused += [Refusal(row, TOO_LARGE, need) for row in long[ROW].unique().to_list()]
            frame = frame.filter(~pl.col(ROW).is_in(long[ROW].implode()))
        return Decoded(frame, refused, found.passed)

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

    def judge(self, index: Index, given: pl.DataFrame) -> Taken:
        """Reconcile a batch with the tuples that the arc holds; see `reconcile.take`."""
        keys = given[KEY].unique().sort()  # sorted keys share pages of the index
        there, contents = index.get(keys.to_list())
        held = self.decoder.decode(contents).with_columns(pl.Series(KEY, there, dtype=pl.Binary))
        return take(self.arc, given, held)

    def change(
        self,
        index: Index,
        revisions: pl.DataFrame,
        *,
        keys: pl.Series | None = None,
        done: int,
        positions: dict[TopicPartition, int],
    ) -> None:
        """Apply revisions to the index, in an open transaction; see `Index.begin`."""
        if keys is None:
            keys = pl.Series(self._keys(self.codec.identities(revisions)), dtype=pl.Binary)
        dead = revisions["op"] == frames.DELETE
        content = frames.side(revisions, frames.AFTER, list(self.arc.fields))
        gone: list[bytes] = []
        if dead.any():
            gone, keys, content = (
                keys.filter(dead).to_list(),
                keys.filter(~dead),
                content.filter(~dead),
            )
        order = keys.arg_sort()  # sorted keys share pages of the index
        tuples = self.encoder.encode(content)
        index.begin(
            put=(keys.gather(order).to_list(), list(map(tuples.__getitem__, order.to_list()))),
            delete=gone,
            done=done,
            positions=positions,
        )

    def _keys(self, tuples: pl.DataFrame) -> list[bytes]:
        return self.key_encoder.encode(tuples.select(self.arc.identity))


def key_encoder(arc: Arc) -> Encoder:
    """Return the encoder of an arc's identities as keys of an index."""
    return Encoder(tuple_schema("Key", {name: arc.fields[name] for name in arc.identity}))


def owners(given: pl.DataFrame, count: int) -> pl.Series:
    """Return which of `count` owners has each revision's identity, by the hash of its key."""
    return pl.Series(partitions(given[KEY].to_list(), count)).cast(pl.Int32)


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
