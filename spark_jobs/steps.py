"""The steps of a job: which boxes of its scope run together in a batch, and in which order.

A job is one streaming query, and a step is a part of it:

* the tasks that read the scope's inputs run the filters and maps directly behind them;
* a *grouped* step is one aggregate, whose groups Spark's shuffle divides among the writers;
* any other step runs boxes on the partitions of their arcs, as a scope of Errata's processes does.

The job of a source has one step, which keeps the source's tuples (`ingest`): Spark's shuffle
divides their identities among the writers.

An exchange is Spark's shuffle between two steps: it has no topic. Steps of a level are one stateful
operator; what goes to a later level passes through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from errata.processors.boxes.aggregate import Aggregate
from errata.processors.boxes.base import Box
from errata.processors.boxes.modes import UPSTREAM
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.propagation.graph import Graph
from errata.processors.propagation.orders import choose_order
from errata.spark_jobs.slabs import Slabs

READING = 0
"""The level of the tasks that read the inputs."""


@dataclass(frozen=True)
class Step:
    """Boxes that run together.

    Args:
        number: Its number in the job.
        level: The stateful operator that it is in, from 1; `READING`: the tasks that read.
        boxes: Its boxes, in topological order.
        inputs: The arcs that they read from elsewhere.
        slots: In how many parts it runs, each with a key of its own: the partitions of its arcs, or
            the writers among which its groups are divided.
        horizon_ms: Of a grouped step: how long a window's state is kept after the window closes.
        is_grouped: Whether Spark's shuffle divides its groups: those of its one aggregate, or the
            identities of a source.
    """

    number: int
    level: int
    boxes: tuple[Box, ...] = ()
    inputs: tuple[str, ...] = ()
    slots: int = 0
    horizon_ms: int = 0
    is_grouped: bool = False

    @cached_property
    def aggregate(self) -> Aggregate:
        """The aggregate of a grouped step, with states up to its horizon."""
        (box,) = self.boxes
        assert isinstance(box, Aggregate)
        return replace(box, mode=UPSTREAM, filters=(), horizon_ms=self.horizon_ms)

    @cached_property
    def slabs(self) -> Slabs:
        """The slabs of the windows of a grouped step."""
        return Slabs(self.aggregate.window)

    @cached_property
    def scope(self) -> Scope:
        """The step as a scope that a task may run."""
        reads = {box.arc.name: box.inputs for box in self.boxes}
        order = choose_order(Graph.of(reads))
        return Scope(self.boxes[0].arc.name, tuple(reads), self.inputs, (), True, order)


def steps_of(plan: CompiledPlan, scope: Scope, *, writers: int) -> list[Step]:
    """Return the steps of a job, each after those that it reads.

    Args:
        plan: The plan, placed.
        scope: The job's scope.
        writers: How many writers a batch has.
    """
    if not scope.boxes:
        return [Step(0, READING), Step(1, 1, slots=writers, is_grouped=True)]
    made = [Step(number, READING, inputs=(arc,)) for number, arc in enumerate(scope.inputs)]
    step_of = {arc: number for number, arc in enumerate(scope.inputs)}
    for name in scope.boxes:
        box = plan.boxes[name]
        step = _placed(plan, scope, box, made, step_of)
        made[step.number : step.number + 1] = [replace(step, boxes=(*step.boxes, box))]
        step_of[name] = step.number
    return [_finished(plan, step, writers) for step in made]


def _placed(
    plan: CompiledPlan, scope: Scope, box: Box, made: list[Step], step_of: Mapping[str, int]
) -> Step:
    """Return the step that a box joins: one that writes an arc that it reads, or a new one."""
    name, above = box.arc.name, [made[step_of[arc]] for arc in box.inputs]
    is_grouped = box.is_grouped_on_spark and name in plan.topology.spark
    level = max(_first_level(plan, arc, made[step_of[arc]]) for arc in box.inputs)
    is_read_on = box.is_stateless and name not in plan.topology.emitted(scope)
    if level == READING and not is_grouped and is_read_on and len({s.number for s in above}) == 1:
        return above[0]
    if is_grouped:
        return Step(len(made), level + 1, is_grouped=True)
    level = max(level, 1)
    here = {step.number for step in above if step.level == level and not step.is_grouped}
    if len(here) == 1:
        return made[here.pop()]
    return Step(len(made), level + 1 if here else level)


def _first_level(plan: CompiledPlan, arc: str, step: Step) -> int:
    """Return the first level that may read an arc: Spark's shuffle brings some to their places."""
    return step.level + (plan.topology.arcs[arc].exchange or step.is_grouped)


def _finished(plan: CompiledPlan, step: Step, writers: int) -> Step:
    if step.level == READING:
        return step
    own = {box.arc.name for box in step.boxes}
    inputs = tuple(dict.fromkeys(a for box in step.boxes for a in box.inputs if a not in own))
    counts, slots = plan.placement.partitions, writers
    if not step.is_grouped:
        slots = max((counts.get(arc, 0) for arc in inputs), default=0)  # 0 before it is placed
    horizon_ms = plan.topology.spark.get(step.boxes[0].arc.name, 0) if step.is_grouped else 0
    return replace(step, inputs=inputs, slots=slots, horizon_ms=horizon_ms)
