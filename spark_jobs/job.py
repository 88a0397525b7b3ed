"""What the processes of one job need to know: created by the driver, pickled to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.tasks.shared import DEAD_LETTER
from errata.processors.wire.task_id import ScopeId
from errata.spark_jobs.executor import Registered, connected
from errata.spark_jobs.place import Place
from errata.spark_jobs.steps import READING, Step, steps_of
from errata.topics.kafka import KafkaCluster


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

    @property
    def name(self) -> str:
        """The name of its scope."""
        return self.scope.name

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
        return {box.arc.name: step for step in self.steps for box in step.boxes}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The arcs that it writes to topics."""
        return self.scope.outputs

    @property
    def places(self) -> list[Place]:
        """The partitions of its inputs."""
        counts = self.plan.placement.partitions
        return [Place(arc, p) for arc in self.scope.inputs for p in range(counts[arc])]

    @property
    def task_count(self) -> int:
        """The number of tasks that it reports for: one for each number of a partition."""
        return len(self.plan.placement.tasks(self.scope.name))

    def task(self, partition: int) -> str:
        """Return the task name under which it reports on a partition of its arcs."""
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
