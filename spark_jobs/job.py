"""What the processes of one job need to know: created by the driver, pickled to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope, Source
from errata.processors.tasks.on_error import DEAD_LETTER
from errata.processors.wire.task_id import ScopeId
from errata.spark_jobs.executor import Registered, connected, schemas
from errata.spark_jobs.place import Place
from errata.spark_jobs.steps import READING, Step, steps_of
from errata.topics.cluster import Cluster, TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.registry import Registry


@dataclass(frozen=True)
class Job:
    """A Spark scope of a deployed plan, in one attempt of its driver.

    Args:
        plan: The plan, as deployed.
        scope: The scope.
        kafka: librdkafka settings.
        ids: Schema ids by subject.
        writers: How many writers a batch has.
        keys: The key of each part of a step with a state, one after the other (`slot`): Spark sends
            it to one of the writers.
        attempts: By partition, the number of its task's attempt.
        done: By partition, the last epoch that earlier attempts reported: not written again.
        compaction_lag_ms: How long superseded records stay in connection points.
        on_error: What happens to tuples that boxes refuse: ``dead-letter``, or ``stop``.
        max_records: About how many records a batch takes at most; None: no limit.
        registry_at: Settings of the registry server that has the schemas of a source's records;
            None: they are in a topic of the cluster.
    """

    plan: CompiledPlan
    scope: Scope
    kafka: Mapping[str, str | int]
    ids: Mapping[str, int]
    writers: int
    keys: tuple[int, ...] = ()
    attempts: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    compaction_lag_ms: int = 0
    on_error: str = DEAD_LETTER
    max_records: int | None = None
    registry_at: Mapping[str, str | int] | None = None

    @property
    def name(self) -> str:
        """The name of its scope."""
        return self.scope.name

    @cached_property
    def source(self) -> Source | None:
        """The source that it ingests; None: it runs boxes."""
        scope = ScopeId.parse(self.scope.name)
        return self.plan.topology.sources[scope.name] if scope.is_ingest else None

    @cached_property
    def steps(self) -> list[Step]:
        """The steps of a batch: the tasks that read come first."""
        return steps_of(self.plan, self.scope, writers=self.writers)

    @cached_property
    def stateful(self) -> list[Step]:
        """The steps that keep a state."""
        return [step for step in self.steps if step.level > READING]

    @property
    def levels(self) -> int:
        """How many stateful operators there are, one after the other."""
        return max(step.level for step in self.steps)

    @cached_property
    def _first_slots(self) -> dict[int, int]:
        """By number of a step: its first place among the keys."""
        counts = [step.slots for step in self.stateful]
        firsts = (sum(counts[:number]) for number in range(len(counts)))
        return dict(zip((step.number for step in self.stateful), firsts, strict=True))

    @property
    def slots(self) -> int:
        """How many keys there are."""
        return sum(step.slots for step in self.stateful)

    def key(self, step: Step, slot: int) -> int:
        """Return the key of a part of a step."""
        return self.keys[self._first_slots[step.number] + slot]

    @cached_property
    def by_key(self) -> dict[int, tuple[Step, int]]:
        """By key: the step, and the number of the part."""
        return {
            self.key(step, slot): (step, slot)
            for step in self.stateful
            for slot in range(step.slots)
        }

    @cached_property
    def readers(self) -> dict[str, list[Step]]:
        """By arc: the steps with a state that read it from elsewhere."""
        arcs = (*self.scope.inputs, *self.scope.boxes)
        return {arc: [step for step in self.stateful if arc in step.inputs] for arc in arcs}

    @cached_property
    def writing(self) -> dict[str, Step]:
        """By arc of the job: the step that writes it."""
        if self.source is not None:
            return {self.source.arc.name: self.stateful[0]}
        return {box.arc.name: step for step in self.steps for box in step.boxes}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The arcs that it writes to topics."""
        return self.scope.outputs

    @property
    def places(self) -> list[Place]:
        """The partitions of its inputs; those of a source's topic are named by the job."""
        counts = self.plan.placement.partitions
        if self.source is not None:
            return [Place(self.name, p) for p in range(self.task_count)]
        return [Place(arc, p) for arc in self.scope.inputs for p in range(counts[arc])]

    def topic_partition(self, place: Place) -> TopicPartition:
        """Return a partition of an input, or of an arc that it writes, as brokers know it."""
        if self.source is not None and place.arc == self.name:
            return TopicPartition(self.source.topic, place.partition)
        return TopicPartition(self.plan.deployment.topic(place.arc), place.partition)

    def writes(self, partition: int) -> int:
        """Return the number of the task that a partition of its arcs is written for.

        A batch of records of a source is one: what becomes of an identity may follow from records
        in several partitions. So one task stands for all that is written.
        """
        return partition if self.source is None else 0

    @property
    def task_count(self) -> int:
        """The number of tasks that it reports for: one for each number of a partition."""
        return len(self.plan.placement.tasks(self.scope.name))

    def task(self, partition: int) -> str:
        """Return the task name under which it reports on a partition of its arcs."""
        return str(ScopeId.parse(self.scope.name).task(partition))

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

    def schemas(self, cluster: Cluster) -> Registry:
        """Return this process's registry, for the schemas of a source's records."""
        return schemas(cluster, self.registry_at)

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc."""
        return ArcCodec(
            self.plan.topology.arcs[arc], self.plan.deployment.topic(arc), self.registry
        )

    def cluster(self) -> KafkaCluster:
        """Return this process's connection."""
        return connected(self.kafka)
