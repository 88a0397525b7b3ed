"""Runs one epoch through the boxes of a scope, in the order that its plan chose (`propagation`).

Glitch-free by construction: a box runs once per epoch, after all boxes above it (Streamulus).
Requests for history are batched: boxes that don't wait for one another send theirs together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

import polars as pl

from errata.processors.arcs.partitioner import Spread
from errata.processors.boxes.base import (
    RESULTS,
    Box,
    BoxSteps,
    Live,
    Need,
    Outcome,
    Refused,
)
from errata.processors.boxes.replay import ReplayQuery, overlay, without_revised
from errata.processors.boxes.sharing import Sharing
from errata.processors.expressions.errors import UserFunctionError
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.propagation.graph import Graph
from errata.processors.propagation.orders import ORDERS
from errata.processors.wire.report import FOREVER, CountKey
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import physical


@dataclass(frozen=True)
class Memory:
    """The state of a scope between epochs.

    Args:
        done: The last epoch.
        watermark: wm(done).
        live: State of each stateful box, such as its open windows.
        closes: For each box with open windows, the watermark at which the first one closes.
    """

    done: int
    watermark: int
    live: Mapping[str, Live]
    closes: Mapping[str, int]

    @classmethod
    def of(
        cls, boxes: Mapping[str, Box], live: Mapping[str, Live], *, done: int, watermark: int
    ) -> Memory:
        """Return the memory for this state of the boxes; computes `closes`."""
        ends = {name: box.closes(live[name], wm=watermark) for name, box in boxes.items()}
        closes = {name: end for name, end in ends.items() if end is not None}
        return cls(done, watermark, live, closes)


@dataclass
class EpochResult:
    """The result of one epoch.

    Args:
        memory: State after the epoch.
        revisions: By arc, of the scope's boxes and inputs; arcs without revisions are absent.
        counts: To add to the running totals.
        refused: By box, the tuples that it refused.
    """

    memory: Memory
    revisions: dict[str, pl.DataFrame]
    counts: dict[str, int] = field(default_factory=dict)
    refused: dict[str, list[Refused]] = field(default_factory=dict)

    def take(self, box: str, outcome: Outcome) -> None:
        """Add the outcome of a box."""
        if outcome.revisions.height:
            self.revisions[box] = outcome.revisions
        self.count(box, outcome.counts)
        if outcome.refused:
            self.refused[box] = list(outcome.refused)
            self.counts[str(CountKey("refused", box))] = sum(
                r.tuples.height for r in outcome.refused
            )

    def count(self, box: str, counts: Mapping[str, int]) -> None:
        """Add the counts of a box."""
        for what, count in counts.items():
            self.counts[str(CountKey(what, box))] = count


class BoxError(ErrataError):
    """A box failed: a user's function raised, or it refused a tuple under ``on_error = "stop"``.

    Args:
        box: Name of the box.
        epoch: The epoch that it processed.
        failure: The failure and the tuple.
        remedy: What the user can do.
    """

    def __init__(
        self,
        box: str,
        epoch: int,
        failure: str,
        *,
        remedy: str = "correct the function, or keep such tuples from it",
    ) -> None:
        self.box, self.epoch = box, epoch
        super().__init__(f"box {box!r}, epoch {epoch}: {failure}; {remedy}")


@contextmanager
def _as_box_error(box: str, epoch: int) -> Iterator[None]:
    """Re-raise the failure of a user's function with its box and epoch."""
    try:
        yield
    except UserFunctionError as error:
        failure = "; ".join([str(error), *getattr(error, "__notes__", [])])
        raise BoxError(box, epoch, failure) from error


EpochSteps = Generator[list[ReplayQuery], list[pl.DataFrame], EpochResult]
"""Yields requests for history, is sent the replies, and returns the result of an epoch."""


class ScopeRun:
    """Processes epochs of a scope.

    Args:
        plan: The whole plan, placed.
        scope: The scope to run.
        partition: The partition of the task.
    """

    def __init__(self, plan: CompiledPlan, scope: Scope, *, partition: int) -> None:
        self.plan, self.scope, self.partition = plan, scope, partition
        self.boxes = {name: plan.boxes[name] for name in scope.boxes}
        self.stateful = {n: b for n, b in self.boxes.items() if not b.is_stateless}
        self.graph, self.order = (
            Graph.of({name: box.inputs for name, box in self.boxes.items()}),
            ORDERS[scope.order],
        )
        self.names = list(self.boxes)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.readers = {
            arc: [n for n, box in enumerate(self.boxes.values()) if arc in box.inputs]
            for arc in scope.inputs
        }
        self.nothing = {
            name: frames.none(plan.topology.arcs[name].fields)
            for name in (*scope.inputs, *self.boxes)
        }

    def informed(self, memory: Memory, counts: Mapping[str, int]) -> Memory:
        """Return a restored memory with what the running totals tell of the time before."""
        told: dict[str, dict[str, int]] = {name: {} for name in self.stateful}
        for key, count in counts.items():
            known = CountKey.parse(key)
            if known.box in told:
                told[known.box][known.what] = count
        live = {n: self.stateful[n].informed(each, told[n]) for n, each in memory.live.items()}
        return replace(memory, live=live)

    def closes(self, memory: Memory) -> int:
        """Return when the first open window of any box ends; `FOREVER` if none is open."""
        return min(memory.closes.values(), default=FOREVER)

    def epoch(
        self,
        epoch: int,
        inputs: Mapping[str, pl.DataFrame],
        *,
        memory: Memory,
        watermark: int,
        uncommitted: Mapping[str, list[pl.DataFrame]],
        committed: int,
        settles: bool = False,
    ) -> EpochSteps:
        """Process one epoch; yields requests for history and is sent the replies.

        The steps, in this order:

        1. Net the revisions of inputs that several tasks write (exchanges), by identity.
        2. Activate the boxes that read one of them, or have a window that closes.
        3. Run activated boxes in topological order. A box returns its revisions, which activate its
           readers, or the history that it lacks, and waits.
        4. When no box can run, request the history that all waiting boxes lack, together, and that
           of one connection point once (`Sharing`). Continue with 3 when the replies arrive, with
           this task's newer revisions applied to them.
        5. When no box waits, the epoch is done.

        Args:
            epoch: Its number.
            inputs: Its revisions by input arc.
            memory: State after the epoch before.
            watermark: wm(epoch).
            uncommitted: By arc, this task's revisions since `committed`, in the order of epochs.
            committed: Last epoch that this task committed. The history of arcs that the task
                writes is requested as of this epoch, and `uncommitted` is applied to the reply.
            settles: Whether boxes emit what they keep back.
        """
        netted = {name: self._net(name, revisions) for name, revisions in inputs.items()}
        changes = {name: revisions for name, revisions in netted.items() if revisions.height}
        live, closes = dict(memory.live), dict(memory.closes)
        result = EpochResult(Memory(epoch, watermark, live, closes), changes)
        counts = result.counts
        running: dict[str, tuple[BoxSteps, Need]] = {}
        nothing_kept = Live()
        active = {*self._active(changes, closes, watermark)}
        if settles:
            active |= {self.numbers[name] for name, box in self.boxes.items() if box.reads_back}
        order = self.order(self.graph, active)

        def advance(name: str, run: BoxSteps, answers: list[pl.DataFrame] | None) -> None:
            with _as_box_error(name, epoch):
                try:
                    running[name] = run, next(run) if answers is None else run.send(answers)
                except StopIteration as stop:
                    outcome: Outcome = stop.value
                    if name in self.stateful:
                        live[name] = self._with_costs(name, outcome, counts)
                        closes.pop(name, None)
                        end = self.stateful[name].closes(outcome.live, wm=watermark)
                        if end is not None:
                            closes[name] = end
                    result.take(name, outcome)
                    order.done(self.numbers[name], emitted=name in changes)
                else:
                    order.wait(self.numbers[name])

        while True:
            for number in iter(order.next, None):
                name = self.names[number]
                box = self.boxes[name]
                box_inputs = [changes.get(arc, self.nothing[arc]) for arc in box.inputs]
                if box.is_stateless and not any(revisions.height for revisions in box_inputs):
                    order.done(number, emitted=False)  # the static order runs idle boxes too
                    continue
                kept = self.live_of(name, live, box_inputs) or nothing_kept
                if settles and box.reads_back:
                    kept = replace(kept, settles=True)
                run = box.process(*box_inputs, live=kept, wm_before=memory.watermark, wm=watermark)
                advance(name, run, None)
            if not running:
                return result
            waiting, running = running, {}
            own = OwnRevisions(epoch, watermark, committed, uncommitted, changes)
            needs = {name: need for name, (_, need) in waiting.items()}
            for name, history in (yield from self.histories(needs, own, counts)):
                advance(name, waiting[name][0], history)

    def live_of(
        self, name: str, live: Mapping[str, Live], inputs: Sequence[pl.DataFrame]
    ) -> Live | None:
        """Return what a box has kept; None if it keeps nothing.

        Args:
            name: The box.
            live: The state of each stateful box.
            inputs: The revisions that it gets.
        """
        return live.get(name)

    def histories(
        self, needs: Mapping[str, Need], own: OwnRevisions, counts: dict[str, int]
    ) -> Generator[list[ReplayQuery], list[pl.DataFrame], Iterable[tuple[str, list[pl.DataFrame]]]]:
        """Return what boxes need, each box's as it is taken; yields requests for it.

        Args:
            needs: By box.
            own: What this task knows, and the connection points may not hold yet.
            counts: Gets the numbers of requests and tuples.
        """
        requests = {name: _HistoryRequest(self, name, need, own) for name, need in needs.items()}
        queries = {name: each.queries() for name, each in requests.items()}
        sharing = Sharing(list(chain.from_iterable(queries.values())), self.plan.topology.arcs)
        replies = zip(sharing.answers((yield sharing.sent)), sharing.leads, strict=True)

        def answered() -> Iterator[tuple[str, list[pl.DataFrame]]]:
            for name, request in requests.items():
                answers, leads = zip(*islice(replies, len(queries[name])), strict=True)
                key = str(CountKey("requests" if any(leads) else "shared", name))
                counts[key] = counts.get(key, 0) + 1
                history = request.history(answers)
                if request.anchor_tuples:
                    key = str(CountKey("anchor_tuples", name))
                    counts[key] = counts.get(key, 0) + request.anchor_tuples
                yield name, history

        return answered()

    @staticmethod
    def _with_costs(name: str, outcome: Outcome, counts: Mapping[str, int]) -> Live:
        """Return what a box keeps, with what its replays took in this epoch."""
        sent = counts.get(str(CountKey("anchor_tuples", name)))
        if not sent:
            return outcome.live
        sizes = outcome.live.sizes.with_replay(outcome.counts.get("replayed", 0), sent)
        return replace(outcome.live, sizes=sizes)

    def _active(
        self, inputs: Iterable[str], closes: Mapping[str, int], watermark: int
    ) -> Iterator[int]:
        """Yield the boxes to run first: those with input, and those whose windows close."""
        for arc in inputs:
            yield from self.readers[arc]
        yield from (self.numbers[name] for name, end in closes.items() if end <= watermark)

    def _net(self, name: str, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return an input's revisions; those of an exchange, which has many writers, are netted."""
        arc = self.plan.topology.arcs[name]
        if not arc.exchange:
            return revisions
        plain = by_column.pick(revisions, frames.schema(arc.fields))
        return frames.net(plain, arc.identity, list(arc.fields))

    def inputs(
        self, name: str, replayed: Sequence[pl.DataFrame], *, watermark: int
    ) -> list[pl.DataFrame]:
        """Return a box's inputs on this partition, from what its anchors replayed."""
        path = self.plan.paths[name]
        inputs = path.inputs(replayed, wm=watermark)
        if not path.everywhere:
            return inputs
        spreads = [Spread(arc, self.plan.placement.partitions[arc.name]) for arc in path.targets]
        return [
            by_column.kept(tuples, spread.places(tuples) == self.partition)
            for spread, tuples in zip(spreads, inputs, strict=True)
        ]


@dataclass(frozen=True)
class OwnRevisions:
    """What a task knows in an epoch that the connection points may not hold yet.

    Args:
        epoch, watermark, committed, uncommitted: See `ScopeRun.epoch`.
        changes: By arc, the revisions of this epoch so far.
    """

    epoch: int
    watermark: int
    committed: int
    uncommitted: Mapping[str, list[pl.DataFrame]]
    changes: Mapping[str, pl.DataFrame]


class _HistoryRequest:
    """What a box needs in an epoch: the requests that cover it, and what comes of the answers.

    This task's revisions since its last commit are applied to what the connection points hold. The
    box takes its inputs in parts if they come from parts of what the anchors replay.

    Args:
        run: The scope.
        name: The box.
        need: Its need.
        own: The task's revisions.
    """

    def __init__(self, run: ScopeRun, name: str, need: Need, own: OwnRevisions) -> None:
        self._run, self._name, self._need, self._own = run, name, need, own
        self.anchor_tuples = 0
        """How many tuples of connection points its inputs are computed from."""
        self._newer: list[tuple[Arc, list[pl.DataFrame]]]
        """For each request: the arc, and the task's own revisions of it."""
        if need.kind == RESULTS:
            # a downstream scope may store them; it has read committed revisions only
            self._newer = [(run.boxes[name].stored, own.uncommitted.get(name, []))]
            return
        anchors = run.plan.paths[name].anchors
        self._newer = [(anchor.arc, self._since_commit(anchor.arc.name)) for anchor in anchors]

    def queries(self) -> list[ReplayQuery]:
        """Return the requests; not kept, for a cycle would keep all that they were answered."""
        run, need, own = self._run, self._need, self._own
        if need.kind == RESULTS:
            arcs = run.plan.fetched_by(self._name)
            take = partial(self._take, 0) if need.take and len(arcs) == 1 else None
            return [ReplayQuery(arc, own.committed, need.ranges, take=take) for arc in arcs]
        path = run.plan.paths[self._name]
        in_parts = need.take is not None and path.is_linear
        return [
            ReplayQuery(
                anchor.arc.name,
                own.committed if anchor.arc.name in run.boxes else own.epoch,
                anchor.ranges(need.ranges),
                anchor.everywhere,
                partial(self._take, number) if in_parts else None,
            )
            for number, anchor in enumerate(path.anchors)
        ]

    def _since_commit(self, arc: str) -> list[pl.DataFrame]:
        """Return the revisions of an arc since the last commit; none if others write it."""
        if arc not in self._run.boxes:
            return []
        changes = self._own.changes.get(arc, self._run.nothing[arc])
        return [*self._own.uncommitted.get(arc, []), changes]

    def _take(self, number: int, tuples: pl.DataFrame) -> None:
        """Give the box what comes of a part of the answer to one of the requests."""
        self._count(tuples)
        parts = [pl.DataFrame(schema=physical(arc.fields)) for arc, _ in self._newer]
        parts[number] = without_revised(tuples, *self._newer[number])
        assert self._need.take is not None
        with _as_box_error(self._name, self._own.epoch):
            for part in self._of_box(parts):
                self._need.take(part)

    def history(self, answers: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return what the box has not taken, and the task's own newer tuples."""
        if len(answers) > len(self._newer):  # results, and those of them that are kept back
            stored, kept = answers
            box = self._run.plan.boxes[self._run.plan.fetched_by(self._name)[0]]
            answers = [box.exact_results(by_column.pick(stored, self._newer[0][0].fields), kept)]
        for tuples in answers:
            self._count(tuples)
        pairs = zip(answers, self._newer, strict=True)
        with _as_box_error(self._name, self._own.epoch):
            return self._of_box([overlay(tuples, *newer) for tuples, newer in pairs])

    def _count(self, tuples: pl.DataFrame) -> None:
        if self._need.kind != RESULTS:
            self.anchor_tuples += tuples.height

    def _of_box(self, replayed: list[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return what the box asked for, from what was replayed: results, or its inputs."""
        if self._need.kind == RESULTS:
            return replayed
        return self._run.inputs(self._name, replayed, watermark=self._own.watermark)
