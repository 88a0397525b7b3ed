"""The expected content of an arc as of an epoch, recomputed from the connection points upstream.

Executors do the work. Tuples travel as blocks: one Spark row is a packed frame. Each task reads one
Kafka partition of a connection point; filters, maps and unions are applied to each block where it
is created; before an aggregate, blocks are shuffled by hash bucket of its groups. Aggregates may
follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa

from errata.processors.arcs.partitioner import Spread, parted
from errata.processors.boxes.base import Box
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.replay import pack, unpack
from errata.processors.wire.report import NEVER
from errata.schemas.arc import Arc
from errata.schemas.fields import physical
from errata.spark_jobs.reading import Arcs, Part

SCHEMA = "bucket int, side int, block binary"
_ARROW = pa.schema([("bucket", pa.int32()), ("side", pa.int32()), ("block", pa.binary())])


@dataclass(frozen=True)
class Way:
    """One way to an arc, through boxes that process one tuple at a time.

    Args:
        start: The arc it begins at.
        is_computed: Whether it is recomputed, by an aggregate or a join, instead of what a topic
            holds.
        boxes: The boxes on it, in order; of a union it is one input's part.
    """

    start: str
    is_computed: bool
    boxes: tuple[Box, ...] = ()


def ways_to(plan: CompiledPlan, arc: str) -> list[Way]:
    """Return the ways by which an arc is recomputed.

    Args:
        plan: The plan.
        arc: An arc that a box writes.
    """
    box = plan.boxes[arc]
    if not box.is_stateless:
        return [Way(arc, is_computed=True)]
    return [
        replace(way, boxes=(*way.boxes, box.of_input(above)))
        for above in box.inputs
        for way in ways_from(plan, above)
    ]


def ways_from(plan: CompiledPlan, arc: str) -> list[Way]:
    """Return the ways to an arc as an input: it is read if it has history, else recomputed."""
    if arc in plan.topology.sources or plan.topology.arcs[arc].is_connection_point:
        return [Way(arc, is_computed=False)]
    return ways_to(plan, arc)


def walk(plan: CompiledPlan, ways: Sequence[Way]) -> Iterator[Way]:
    """Yield ways, and those by which the aggregates and joins at their starts are recomputed."""
    for way in ways:
        yield way
        for above in plan.boxes[way.start].history_inputs if way.is_computed else ():
            yield from walk(plan, ways_from(plan, above.arc.name))


def starts(plan: CompiledPlan, ways: Sequence[Way], *, recomputed: bool = False) -> list[str]:
    """Return the arcs at which some ways begin, or from which those arcs are recomputed.

    Args:
        plan: The plan.
        ways: The ways.
        recomputed: Whether to return the arcs that are recomputed, instead of those that are read.
    """
    arcs = (way.start for way in walk(plan, ways) if way.is_computed == recomputed)
    return list(dict.fromkeys(arcs))


@dataclass(frozen=True)
class Division:
    """Applies some ways to the tuples at their start, and divides the results by hash.

    Args:
        chains: For each way that begins there, its boxes in order.
        arc: The arc at their end.
        by: The fields whose hash gives the bucket.
        columns: The required fields of the arc.
        buckets: Number of hash buckets.
        side: The number that marks the rows.
    """

    chains: tuple[tuple[Box, ...], ...]
    arc: Arc
    by: tuple[str, ...]
    columns: tuple[str, ...]
    buckets: int
    side: int

    def rows(self, tuples: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Yield a row for each bucket that has tuples."""
        results = pl.concat(
            reduce(lambda content, box: box.recompute(content), chain, tuples).select(self.columns)
            for chain in self.chains
        )
        places = Spread(replace(self.arc, partition_by=self.by), self.buckets).places(results)
        for (bucket,), part in parted(results, places):
            values = [[bucket], [self.side], [pack(part)]]
            arrays = [pa.array(v, f.type) for v, f in zip(values, _ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


@dataclass(frozen=True)
class Recomputation:
    """Arcs as of one epoch, as Spark data frames of `SCHEMA`.

    Args:
        session: The Spark session.
        arcs: The arcs.
        parts: By arc that is read: its partitions.
        epoch: The epoch.
        watermarks: By aggregate that is recomputed: wm(epoch) of its scope.
        buckets: How many parts groups are hashed into: one of them is in memory at a time.
    """

    session: Any
    arcs: Arcs
    parts: Mapping[str, list[Part]]
    epoch: int
    watermarks: Mapping[str, int]
    buckets: int

    def blocks(
        self,
        ways: Sequence[Way],
        arc: Arc,
        *,
        by: tuple[str, ...],
        columns: Sequence[str],
        side: int = 0,
    ) -> Any:
        """Return the tuples of an arc, divided by some fields.

        Args:
            ways: The ways to it.
            arc: The arc.
            by: The fields.
            columns: The required fields.
            side: The number that marks the rows.
        """
        chains = dict[tuple[str, bool], list[tuple[Box, ...]]]()
        for way in ways:
            chains.setdefault((way.start, way.is_computed), []).append(way.boxes)
        divided = []
        for (start, is_computed), from_start in chains.items():
            division = Division(tuple(from_start), arc, by, tuple(columns), self.buckets, side)
            divided.append((self._computed if is_computed else self._read)(start, division))
        return united(divided)

    def _read(self, arc: str, division: Division) -> Any:
        """Return the content of an arc's topic, one task for each partition."""
        arcs, parts, epoch = self.arcs, self.parts[arc], self.epoch

        def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():  # one, the task's own
                    yield from division.rows(arcs.content(parts[number], epoch))

        count = len(parts)
        return self.session.range(0, count, 1, count).mapInArrow(read, SCHEMA)

    def _computed(self, name: str, division: Division) -> Any:
        """Return the results of an aggregate or a join."""
        box, wm = self.arcs.plan.boxes[name], self.watermarks.get(name, NEVER)
        read = box.history_inputs
        blocks = [
            self.blocks(
                ways_from(self.arcs.plan, above.arc.name),
                above.arc,
                by=above.by,
                columns=above.columns,
                side=number,
            )
            for number, above in enumerate(read)
        ]

        def results(table: pa.Table) -> pa.Table:
            inputs = (
                unpacked(table, above.arc, above.columns, side=number)
                for number, above in enumerate(read)
            )
            computed = box.recompute(*inputs, wm=wm)
            return pa.Table.from_batches(division.rows(computed), schema=_ARROW)

        return by_bucket(united(blocks), results, SCHEMA)


def united(frames: Sequence[Any]) -> Any:
    """Return the union of some data frames."""
    return reduce(lambda one, other: one.unionAll(other), frames)


def by_bucket(blocks: Any, work: Callable[[pa.Table], pa.Table], schema: str) -> Any:
    """Return the result of `work` on the rows of each bucket, which are processed together."""

    def alone(table: pa.Table) -> pa.Table:  # Spark counts the arguments of a plain function only
        return work(table)

    return blocks.groupBy("bucket").applyInArrow(alone, schema)


def unpacked(table: pa.Table, arc: Arc, columns: Sequence[str], *, side: int = 0) -> pl.DataFrame:
    """Return the tuples in the rows of one side."""
    fields = {name: arc.fields[name] for name in columns}
    rows = zip(table["side"].to_pylist(), table["block"].to_pylist(), strict=True)  # a row a block
    blocks = [unpack(block) for row_side, block in rows if row_side == side]
    return pl.concat([pl.DataFrame(schema=physical(fields)), *blocks])
