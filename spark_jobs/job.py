"""What the processes of one job need to know: created by the driver, pickled to executors.

A slab is a range of event time whose windows share one entry of Spark's state store. A batch reads
and writes whole entries. With a slab for every few windows, a batch touches only the slabs of its
tuples, however long the history of the others is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
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
class Slab(Hopping):
    """Hopping windows that start within a slab; tuples touch no other windows.

    Args:
        from_ms: Where the slab begins.
        to_ms: Where it ends, exclusive.
    """

    from_ms: int = -FOREVER_MS
    to_ms: int = FOREVER_MS

    def touched(self, event_times: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return every pair of a tuple and a window of the slab that holds it."""
        return self._inside(*super().touched(event_times))

    def of_panes(
        self, starts: pl.Series, is_first: npt.NDArray[np.bool_]
    ) -> tuple[pl.Series, pl.Series]:
        """Return each window of the slab that holds one of some panes once."""
        return self._inside(*super().of_panes(starts, is_first))

    def _inside(self, rows: pl.Series, starts: pl.Series) -> tuple[pl.Series, pl.Series]:
        inside = (starts >= self.from_ms) & (starts < self.to_ms)
        return rows.filter(inside), starts.filter(inside)


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

    def of(self, start_ms: int) -> int:
        """Return the slab of the windows that start at an instant."""
        return 0 if self.is_one else start_ms // self.length_ms

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

    def closing(self, after_ms: int, upto_ms: int, held: tuple[int, int]) -> range:
        """Return the slabs that may have windows which end in (after, upto].

        Args:
            after_ms: An event time.
            upto_ms: A later one.
            held: The first and the last slab that have windows at all.
        """
        if self.is_one or upto_ms <= after_ms:
            return range(held[0], held[1] + (upto_ms > after_ms))
        first = max(held[0], self.of(after_ms - self.window.extent_ms))
        return range(first, min(held[1], self.of(upto_ms)) + 1)

    def within(self, slab: int) -> Hopping | Sliding | History:
        """Return the windows of one slab; for sliding windows all those that the tuples end."""
        if not isinstance(self.window, Hopping):
            return self.window
        window, (from_ms, to_ms) = self.window, self.bounds(slab)
        return Slab(window.size_ms, window.slide_ms, window.origin_ms, window.tz, from_ms, to_ms)


@dataclass(frozen=True)
class Job:
    """A Spark scope of a deployed plan, in one attempt of its driver.

    Args:
        plan: The plan, as deployed.
        scope: The scope.
        kafka: librdkafka settings.
        ids: Schema ids by subject.
        buckets: How many parts groups are hashed into.
        writers: How many tasks of a batch write: the shuffle's partitions.
        attempts: By partition, the number of its task's attempt.
        done: By partition, the last epoch that earlier attempts reported: not written again.
        compaction_lag_ms: How long superseded records stay in connection points.
        on_error: What happens to tuples that boxes refuse: ``dead-letter``, or ``stop``.
    """

    plan: CompiledPlan
    scope: Scope
    kafka: Mapping[str, str | int]
    ids: Mapping[str, int]
    buckets: int
    writers: int
    attempts: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    compaction_lag_ms: int = 0
    on_error: str = DEAD_LETTER

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
