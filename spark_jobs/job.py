"""What the processes of one job need to know: made by the driver, pickled to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.map import Map
from errata.processors.boxes.states import UPSTREAM
from errata.processors.boxes.where import Where
from errata.processors.plan.plan import Plan
from errata.processors.plan.scope import Scope
from errata.processors.tasks.shared import DEAD_LETTER
from errata.processors.wire.task_id import ScopeId
from errata.spark_jobs.connected import connected
from errata.spark_jobs.registered import Registered
from errata.spark_jobs.slabs import Slabs
from errata.topics.kafka import KafkaCluster


@dataclass(frozen=True)
class Job:
    """A Spark scope of a deployed plan, in one life of its driver.

    Args:
        plan: The plan, as deployed.
        scope: The scope.
        kafka: librdkafka settings.
        ids: Schema ids by subject.
        buckets: How many parts groups are hashed into.
        writers: How many tasks of a batch write: the shuffle's partitions.
        attempts: By partition, the number of this life of its task.
        done: By partition, the last epoch that earlier lives reported: not written again.
        compaction_lag_ms: How long superseded records stay in connection points.
        on_error: What becomes of tuples that boxes refuse: ``dead-letter``, or ``stop``.
    """

    plan: Plan
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
        """The aggregate, with states kept to its horizon, older windows replayed."""
        box = self.plan.boxes[self.name]
        assert isinstance(box, Aggregate)
        horizon_ms = self.plan.spark[self.name]
        return replace(box, mode=UPSTREAM, filters=(), horizon_ms=horizon_ms)

    @cached_property
    def chain(self) -> list[Where | Map]:
        """The boxes in front of the aggregate, in order."""
        boxes = [self.plan.boxes[name] for name in self.scope.boxes[:-1]]
        return [box for box in boxes if isinstance(box, Where | Map)]

    @cached_property
    def slabs(self) -> Slabs:
        """What the aggregate's windows are divided into."""
        return Slabs(self.box.window)

    @property
    def input(self) -> str:
        """The arc that it reads."""
        return self.scope.inputs[0]

    @property
    def partition_count(self) -> int:
        """How many partitions its input and its own arc have."""
        return self.plan.partition_count(self.input)

    def task(self, partition: int) -> str:
        """Return the name under which it reports on a partition of its arc."""
        return str(ScopeId.of_boxes(self.scope.name).task(partition))

    @property
    def transactional_id(self) -> str:
        """Of the driver, for its reports."""
        return f"{self.plan.network}.{self.scope.name}.spark"

    def writer_id(self, number: int) -> str:
        """Return the transactional id of one of those who write a batch."""
        return f"{self.transactional_id}.{number}"

    @cached_property
    def registry(self) -> Registered:
        """The schema ids."""
        return Registered(self.ids)

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc."""
        return ArcCodec(self.plan.arcs[arc], self.plan.topic(arc), self.registry)

    def cluster(self) -> KafkaCluster:
        """Return the connection that this process has."""
        return connected(self.kafka)
