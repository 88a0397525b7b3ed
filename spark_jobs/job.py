"""What the processes of one job need to know: created by the driver, pickled to executors.

Each of a batch's writers holds the groups of some *places*, a hash of the group; it has one key in
Spark's state store. It keeps the windows of each *slab*, a range of event time, apart: a batch
touches only the slabs of its tuples, however long the history of the others is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.base import Stateless
from errata.processors.boxes.modes import UPSTREAM
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.tasks.shared import DEAD_LETTER
from errata.processors.windows.time_windows import FOREVER_MS, History, Hopping, Sliding
from errata.processors.wire.task_id import ScopeId
from errata.spark_jobs.executor import Registered, connected
from errata.topics.kafka import KafkaCluster

WINDOWS = 32
"""Approximate number of consecutive windows in a slab."""
EXTENTS = 4
"""Smallest length of a slab in window lengths, if windows overlap."""


@dataclass(frozen=True)
class Slabs:
    """The slabs into which a box's windows are divided, by window start.

    Args:
        window: The windows.

    Example:
        >>> slabs = Slabs(Hopping(60_000, 60_000))
        >>> slabs.length_ms, slabs.bounds(2)
        (1920000, (3840000, 5760000))
        >>> rows, numbers = slabs.touched(pl.Series([0, 1_920_000]))
        >>> rows.to_list(), numbers.to_list()
        ([0, 0, 1, 1], [-1, 0, 0, 1])
    """

    window: Hopping | Sliding | History

    @property
    def is_one(self) -> bool:
        """Whether there is only one slab."""
        return isinstance(self.window, History)

    @property
    def length_ms(self) -> int:
        """The length of a slab in event time."""
        if isinstance(self.window, Hopping):
            return max(WINDOWS * self.window.slide_ms, EXTENTS * self.window.extent_ms)
        return WINDOWS * self.window.extent_ms

    def bounds(self, slab: int) -> tuple[int, int]:
        """Return the first window start in a slab, and the first one after it."""
        if self.is_one:
            return -FOREVER_MS, FOREVER_MS
        return slab * self.length_ms, (slab + 1) * self.length_ms

    def of(self, starts: pl.Series) -> pl.Series:
        """Return the slabs of the windows that start at some instants."""
        return starts * 0 if self.is_one else starts // self.length_ms

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return every pair of a tuple's row and a slab whose windows may hold it."""
        times = event_times.to_numpy()
        if self.is_one:
            rows = np.arange(len(times), dtype=np.uint32)
            return pl.Series(rows), pl.Series(np.zeros(len(times), dtype=np.int64))
        first = (times - self.window.extent_ms + 1) // self.length_ms
        counts = times // self.length_ms - first + 1
        rows = np.repeat(np.arange(len(times), dtype=np.uint32), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return pl.Series(rows), pl.Series(np.repeat(first, counts) + np.arange(len(rows)) - before)

    def behind(self, slab: int) -> range:
        """Return the slabs whose states the windows of a slab are computed from.

        A sliding window is merged from instants, the first of which may be in the slab before.
        """
        return range(slab - isinstance(self.window, Sliding), slab + 1)

    def may_close(self, slab: int, after_ms: int, upto_ms: int) -> bool:
        """Whether a slab may have windows that end in (after, upto]."""
        first, end = self.bounds(slab)
        return upto_ms > after_ms and (
            self.is_one or (first <= upto_ms and end + self.window.extent_ms > after_ms)
        )

    def is_past(self, slab: int, until_ms: int) -> bool:
        """Whether no tuple at an event time later than `until_ms` is in a window of a slab.

        Nor, for sliding windows, in one that is computed from the slab's states.
        """
        _, end = self.bounds(slab)
        return not self.is_one and end + 2 * self.window.extent_ms <= until_ms


@dataclass(frozen=True)
class Job:
    """A Spark scope of a deployed plan, in one attempt of its driver.

    Args:
        plan: The plan, as deployed.
        scope: The scope.
        kafka: librdkafka settings.
        ids: Schema ids by subject.
        keys: By writer, the key that Spark sends to it: each of the shuffle's partitions has one.
        attempts: By partition, the number of its task's attempt.
        done: By partition, the last epoch that earlier attempts reported: not written again.
        compaction_lag_ms: How long superseded records stay in connection points.
        on_error: What happens to tuples that boxes refuse: ``dead-letter``, or ``stop``.
        max_records: About how many records a batch takes at most; None: no limit.
    """

    plan: CompiledPlan
    scope: Scope
    kafka: Mapping[str, str | int]
    ids: Mapping[str, int]
    keys: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    compaction_lag_ms: int = 0
    on_error: str = DEAD_LETTER
    max_records: int | None = None

    @property
    def name(self) -> str:
        """Name of the aggregate and of its arc."""
        return self.scope.boxes[-1]

    @cached_property
    def box(self) -> Aggregate:
        """The aggregate, with states up to its horizon; older windows are replayed."""
        box = self.plan.boxes[self.name]
        assert isinstance(box, Aggregate)  # Spark's store holds the states of an aggregate
        horizon_ms = self.plan.topology.spark[self.name]
        return replace(box, mode=UPSTREAM, filters=(), horizon_ms=horizon_ms)

    @cached_property
    def chain(self) -> list[Stateless]:
        """The boxes before the aggregate, in order."""
        boxes = [self.plan.boxes[name] for name in self.scope.boxes[:-1]]
        return [box for box in boxes if isinstance(box, Stateless)]  # all are: see `scopes`

    @cached_property
    def slabs(self) -> Slabs:
        """The slabs of the aggregate's windows."""
        return Slabs(self.box.window)

    @property
    def input(self) -> str:
        """The name of the arc that it reads."""
        return self.scope.inputs[0]

    @property
    def partition_count(self) -> int:
        """The number of partitions of its input and of its own arc."""
        return self.plan.placement.partitions[self.input]

    def task(self, partition: int) -> str:
        """Return the task name under which it reports on a partition of its arc."""
        return str(ScopeId.of_boxes(self.scope.name).task(partition))

    @property
    def transactional_id(self) -> str:
        """The driver's transactional id, for its reports."""
        return f"{self.plan.network}.{self.scope.name}.spark"

    def writer_id(self, number: int) -> str:
        """Return the transactional id of one of a batch's writers."""
        return f"{self.transactional_id}.{number}"

    @cached_property
    def registry(self) -> Registered:
        """The registry of recorded schema ids."""
        return Registered(self.ids)

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc."""
        return ArcCodec(
            self.plan.topology.arcs[arc], self.plan.deployment.topic(arc), self.registry
        )

    def cluster(self) -> KafkaCluster:
        """Return this process's connection."""
        return connected(self.kafka)
