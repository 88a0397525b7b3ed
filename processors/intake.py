"""What an ingest task makes of a batch: decoded, judged by what the arc holds, spread over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from processors.arc_topic import ArcCodec
from processors.dead_letter import TOO_LARGE, UNDECODABLE
from processors.envelopes.checks import ROW, Decoded, Refusal, nothing
from processors.envelopes.native_avro import NativeAvro
from processors.envelopes.native_json import NativeJson
from processors.graves import Emission
from processors.index import LONGEST_KEY, Index
from processors.taking import KEY, Taken, split_moves, take
from processors.typed import Source
from schemas import revisions as frames
from schemas.avro import tuple_schema
from schemas.decode import Decoder
from schemas.encode import Encoder
from schemas.partition import partitions
from topics.cluster import TopicPartition

LONGEST_VALUE = 200_000
"""Bytes of a source record at most: a result may hold its values four times; a topic takes 1 MB."""


class Intake:
    """Takes in batches of one source.

    Args:
        source: The source.
        codec: Codec of its arc.
        partition_count: Partitions of its arc.
    """

    def __init__(self, source: Source, codec: ArcCodec, *, partition_count: int) -> None:
        self.arc = arc = source.arc
        self.codec, self.partition_count = codec, partition_count
        self.envelope = (
            NativeJson(arc) if source.format == "json" else NativeAvro(arc, codec.registry)
        )
        key = tuple_schema("Key", {name: arc.fields[name] for name in arc.identity})
        spread = tuple_schema("Partition", {name: arc.fields[name] for name in arc.partition_by})
        self.key_encoder, self.partition_encoder = Encoder(key), Encoder(spread)
        content = tuple_schema("Tuple", arc.fields)
        self.encoder, self.decoder = Encoder(content), Decoder(content)

    def decode(self, values: list[bytes | None]) -> Decoded:
        """Return the revisions of a batch and the records that can't be taken in."""
        refused: list[Refusal] = []
        longest = max(map(len, filter(None, values)), default=0)
        usable: list[Any] = values
        rows: list[int] | None = None
        if longest > LONGEST_VALUE or None in values:
            rows = []
            for row, value in enumerate(values):
                if value is None:
                    refused.append(Refusal(row, UNDECODABLE, "no value: a tombstone"))
                elif len(value) > LONGEST_VALUE:
                    need = f"needs at most {LONGEST_VALUE} bytes, found {len(value)}"
                    refused.append(Refusal(row, TOO_LARGE, need))
                else:
                    rows.append(row)
            usable = [values[row] for row in rows]
        found = self.envelope.decode(usable) if usable else Decoded(nothing(self.arc), [])
        frame, told = found.frame, found.refused
        if rows is not None:
            places = pl.Series(rows, dtype=pl.Int64)
            frame = frame.with_columns(places.gather(frame[ROW]).alias(ROW))
            told = [replace(refusal, row=rows[refusal.row]) for refusal in told]
        frame = split_moves(self.arc, frame)
        frame = frame.with_columns(
            pl.Series(KEY, self._keys(self.codec.identities(frame)), dtype=pl.Binary)
        )
        long = frame.filter(pl.col(KEY).bin.size() > LONGEST_KEY)
        if long.height:
            need = f"needs an identity of at most {LONGEST_KEY} bytes, found more"
            refused += [Refusal(row, TOO_LARGE, need) for row in long[ROW].unique().to_list()]
            frame = frame.filter(~pl.col(ROW).is_in(long[ROW].implode()))
        return Decoded(frame, refused + told)

    def judge(
        self, index: Index, given: pl.DataFrame, *, oldest_ms: int | None, watermark: int
    ) -> Taken:
        """Return what a batch changes, given what the arc holds; see `taking.take`."""
        keys = given[KEY].unique()
        found = pl.DataFrame(
            {KEY: keys, "held": pl.Series(index.get(keys.to_list()), dtype=pl.Binary)}
        )
        found = found.filter(pl.col("held").is_not_null())
        held = self.decoder.decode(found["held"].to_list()).with_columns(found[KEY])
        return take(self.arc, given, held, oldest_ms=oldest_ms, watermark=watermark)

    def change(
        self,
        index: Index,
        revisions: pl.DataFrame,
        *,
        done: int,
        positions: dict[TopicPartition, int],
    ) -> None:
        """Begin to make the revisions' changes in the index; see `Index.begin`."""
        names_ = list(self.arc.fields)
        gone, there = frames.DELETE, revisions.filter(pl.col("op") != frames.DELETE)
        dead = revisions.filter(pl.col("op") == gone)
        after = frames.side(there, frames.AFTER, names_)
        before = frames.side(dead, frames.BEFORE, names_)
        index.begin(
            put=(self._keys(after), self.encoder.encode(after)),
            delete=self._keys(before),
            done=done,
            positions=positions,
        )

    def _keys(self, tuples: pl.DataFrame) -> list[bytes]:
        return self.key_encoder.encode(tuples.select(self.arc.identity))

    def emissions(self, revisions: pl.DataFrame, epoch: int) -> list[Emission]:
        """Return the revisions by partition: a replace that moves is a delete and an insert."""
        if revisions.is_empty():
            return []
        before = self._partitions(revisions, frames.BEFORE, frames.INSERT)
        after = self._partitions(revisions, frames.AFTER, frames.DELETE)
        moved = (revisions["op"] == frames.REPLACE) & (before != after)
        stay = revisions["op"] == frames.DELETE
        target = after.zip_with(~stay, before)
        emissions = [Emission(self.arc.name, epoch, revisions, target)]
        if moved.any():
            emissions = [
                Emission(self.arc.name, epoch, revisions.filter(~moved), target.filter(~moved))
            ]
            movers = revisions.filter(moved)
            for op, side, where in (
                (frames.DELETE, frames.AFTER, before),
                (frames.INSERT, frames.BEFORE, after),
            ):
                half = movers.with_columns(
                    pl.lit(op, pl.UInt8).alias("op"),
                    *(pl.lit(None, t.dtype).alias(side + n) for n, t in self.arc.fields.items()),
                )
                emissions.append(Emission(self.arc.name, epoch, half, where.filter(moved)))
        return [emission for emission in emissions if emission.revisions.height]

    def _partitions(self, revisions: pl.DataFrame, side: str, absent: int) -> pl.Series:
        """Return the partition of one side of each revision; 0 where it has none."""
        there = revisions["op"] != absent
        fields = list(self.arc.partition_by)
        encoded = (
            self.partition_encoder.encode(frames.side(revisions.filter(there), side, fields))
            if fields
            else [b""] * int(there.sum())
        )
        found = pl.Series(partitions(encoded, self.partition_count))
        result = pl.Series([0], dtype=pl.Int32).new_from_index(0, revisions.height)
        return result.scatter(there.arg_true(), found.cast(pl.Int32))
