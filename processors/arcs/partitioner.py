"""Computes the partition of each tuple of an arc, and spreads revisions over the partitions.

The partition is the hash of the unframed Avro bytes of the tuple's ``partition_by`` fields; of an
optional field only the bytes of its value count. So equal values get the same partition in arcs
that differ in which fields may be null, such as the inputs of a union. A revision that moves a
tuple to another partition is a delete in one and an insert in the other, in one epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter

import polars as pl

from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.avro import tuple_schema
from errata.schemas.encode import Encoder
from errata.schemas.partition import partitions

_WITHOUT_BRANCH = itemgetter(slice(1, None))


@dataclass(frozen=True)
class Emission:
    """An arc's revisions from one epoch, and the partition of each.

    They go to the arc's topic and to its sinks, or to one of both.
    """

    arc: str
    epoch: int
    revisions: pl.DataFrame
    partitions: pl.Series
    to_topic: bool = True
    to_sinks: bool = True

    def in_order(self) -> Emission:
        """Return it with its revisions in the order of their partitions; within one, as they are.

        Example:
            >>> revisions = pl.DataFrame({"x": [7, 8, 9]})
            >>> ordered = Emission("trades", 1, revisions, pl.Series([1, 0, 1])).in_order()
            >>> ordered.revisions["x"].to_list(), ordered.partitions.to_list()
            ([8, 7, 9], [0, 1, 1])
        """
        if self.partitions.n_unique() == 1:
            return self
        rows = self.partitions.to_numpy().argsort(kind="stable")
        return replace(self, revisions=self.revisions[rows], partitions=self.partitions[rows])


def parted(
    tuples: pl.DataFrame, *places: pl.Series
) -> Iterable[tuple[tuple[int, ...], pl.DataFrame]]:
    """Group the rows of a frame by some numbers; groups are in order of first appearance.

    Args:
        tuples: The frame.
        places: Numbers by row; rows with equal numbers in all of them form a group.

    Example:
        >>> frame = pl.DataFrame({"x": [7, 8, 9]})
        >>> [(where, part["x"].to_list()) for where, part in parted(frame, pl.Series([1, 0, 1]))]
        [((1,), [7, 9]), ((0,), [8])]
    """
    names = [f"@{number}" for number in range(len(places))]
    numbered = tuples.with_columns(map(pl.Series.alias, places, names))
    return numbered.partition_by(
        names, as_dict=True, include_key=False, maintain_order=True
    ).items()


class Spread:
    """Spreads the revisions of one arc over its partitions.

    Args:
        arc: The arc.
        partition_count: How many partitions it has.
    """

    def __init__(self, arc: Arc, partition_count: int) -> None:
        self.arc, self.partition_count = arc, partition_count
        fields = {name: arc.fields[name] for name in arc.partition_by}
        self._encoders = [Encoder(tuple_schema("Partition", {n: t})) for n, t in fields.items()]

    def places(self, tuples: pl.DataFrame) -> pl.Series:
        """Return the partition of each tuple."""
        if not self.arc.partition_by or self.partition_count == 1:
            partition = 0 if self.partition_count == 1 else self._of([b""])[0]
            return pl.Series([partition], dtype=pl.Int32).new_from_index(0, tuples.height)
        first, *more = map(self._encoded, self.arc.partition_by, self._encoders, repeat(tuples))
        return self._of(list(map(b"".join, zip(first, *more, strict=True))) if more else first)

    def _encoded(self, name: str, encoder: Encoder, tuples: pl.DataFrame) -> list[bytes]:
        """Encode a field of each tuple; an optional one without the byte of its union branch."""
        encoded = encoder.encode(tuples.select(name))
        return list(map(_WITHOUT_BRANCH, encoded)) if self.arc.fields[name].optional else encoded

    def _of(self, encoded: list[bytes]) -> pl.Series:
        return pl.Series(partitions(encoded, self.partition_count)).cast(pl.Int32)

    def emissions(self, revisions: pl.DataFrame, epoch: int) -> list[Emission]:
        """Return the revisions with their partitions; one that moves a tuple is split in two."""
        if revisions.is_empty():
            return []
        before = self._sides(revisions, frames.BEFORE, frames.INSERT)
        after = self._sides(revisions, frames.AFTER, frames.DELETE)
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

    def _sides(self, revisions: pl.DataFrame, side: str, absent: int) -> pl.Series:
        """Return the partition of one side of each revision; 0 where the side is absent."""
        is_present = revisions["op"] != absent
        fields = list(self.arc.partition_by)
        present = by_column.kept(revisions, is_present)
        places = self.places(frames.side(present, side, fields) if fields else present)
        if present.height == revisions.height:
            return places
        result = by_column.constant(0, revisions.height, pl.Int32)
        return result.scatter(is_present.arg_true(), places)
