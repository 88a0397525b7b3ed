"""Blocks: many tuples in one Spark row, so that no tuple is processed as a row of its own.

A block holds the entering and leaving tuples of one share of the groups: one hash bucket, in the
windows of one slab. The source emits rows of blocks, and the shuffle moves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl
import pyarrow as pa

from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.wire.replay import pack
from errata.spark_jobs.job import Job

SIGN = "@sign"
"""Column of a block: 1 for a tuple that enters, -1 for one that leaves."""

TUPLES, RESULTS, TICK, HEADER, LETTERS = range(5)
"""The content of a row.

Input tuples; results of the job's own arc; only the time (windows may close); the batch's metadata
(for the report); dead letters (sent with the report).
"""

SCHEMA = "bucket int, slab long, kind int, origin long, batch string, block binary"
_ARROW = pa.schema(
    [
        ("bucket", pa.int32()),
        ("slab", pa.int64()),
        ("kind", pa.int32()),
        ("origin", pa.int64()),
        ("batch", pa.string()),
        ("block", pa.binary()),
    ]
)


def record(
    bucket: int, slab: int, kind: int, origin: int, block: bytes, *, batch: str
) -> pa.RecordBatch:
    """Return one Spark row."""
    values = [[bucket], [slab], [kind], [origin], [batch], [block]]
    arrays = [pa.array(v, f.type) for v, f in zip(values, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


@dataclass(frozen=True)
class Shares:
    """Divides tuples and results among the shares of a job."""

    job: Job

    @cached_property
    def _spread(self) -> Spread:
        by_group = replace(self.job.box.input, partition_by=self.job.box.by)
        return Spread(by_group, self.job.buckets)

    def of_tuples(
        self, leaving: pl.DataFrame, entering: pl.DataFrame
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield bucket, slab and block of the tuples that leave and enter the input."""
        parts = [
            frame.select(self.job.box.looked_at).with_columns(pl.lit(sign, pl.Int8).alias(SIGN))
            for frame, sign in ((leaving, -1), (entering, 1))
        ]
        tuples = pl.concat(parts)
        rows, slabs = self.job.slabs.touched(self.job.box.input.event_times(tuples))
        buckets = self._spread.places(tuples)
        yield from _packed(tuples[rows], buckets.gather(rows), slabs)

    def of_results(self, results: pl.DataFrame) -> Iterator[tuple[int, int, bytes]]:
        """Yield bucket, slab and block of emitted results."""
        slabs = self.job.slabs
        starts = results[self.job.box.start]
        numbers = starts.clone() * 0 if slabs.is_one else starts // slabs.length_ms
        yield from _packed(results, self._spread.places(results), numbers)


def _packed(
    frame: pl.DataFrame, buckets: pl.Series, slabs: pl.Series
) -> Iterator[tuple[int, int, bytes]]:
    for (bucket, slab), part in parted(frame, buckets, slabs):
        yield bucket, slab, pack(part)
