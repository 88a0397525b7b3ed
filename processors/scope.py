"""One epoch through the boxes of a scope, in topological order.

Glitch-free by construction: a box runs once an epoch, after all boxes above it (Streamulus). What
boxes lack of history is gathered, so that the questions of boxes that don't wait for one another
travel together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import polars as pl

from processors.aggregates.user_function import UserFunctionError
from processors.boxes.aggregate import Aggregate
from processors.boxes.answers import INPUTS, RESULTS, Answers, Live, Need, Outcome, Refused
from processors.boxes.asking import Asking
from processors.boxes.where import Where
from processors.plan import Plan
from processors.replay import Ask, overlay
from processors.report import NONE_OPEN
from processors.scopes import Scope
from processors.spread import Spread
from schemas import revisions as frames
from schemas.errors import ErrataError


@dataclass(frozen=True)
class Memory:
    """What a scope remembers between epochs: the open windows of its aggregates, and wm(done)."""

    done: int
    watermark: int
    live: Mapping[str, Live]


@dataclass
class EpochResult:
    """What one epoch gave.

    Args:
        memory: What to remember.
        revisions: By arc: of the scope's boxes and of its inputs.
        counts: Running totals to add.
        refused: By box, what goes to the dead letters.
    """

    memory: Memory
    revisions: dict[str, pl.DataFrame]
    counts: dict[str, int] = field(default_factory=dict)
    refused: dict[str, list[Refused]] = field(default_factory=dict)

    def take(self, box: str, outcome: Outcome) -> None:
        """Take in what a box gave."""
        self.revisions[box] = outcome.revisions
        for what, count in outcome.counts.items():
            self.counts[f"{box}.{what}"] = count
        if outcome.refused:
            self.refused[box] = list(outcome.refused)


class BoxError(ErrataError):
    """A user's function failed in a box.

    Args:
        box: Name of the box.
        epoch: The epoch that it was working on.
        error: What the function did; its notes say for which tuple.
    """

    def __init__(self, box: str, epoch: int, error: UserFunctionError) -> None:
        self.box, self.epoch = box, epoch
        told = "; ".join([str(error), *getattr(error, "__notes__", [])])
        super().__init__(
            f"box {box!r}, epoch {epoch}: {told}; correct the function, or keep such tuples from it"
        )


@contextmanager
def _told_of(box: str, epoch: int) -> Iterator[None]:
    """Say in which box and epoch a user's function failed."""
    try:
        yield
    except UserFunctionError as error:
        raise BoxError(box, epoch, error) from error


Questions = Generator[list[Ask], list[pl.DataFrame], EpochResult]


class ScopeRun:
    """Takes a scope through epochs.

    Args:
        plan: The whole plan, placed.
        scope: The scope to run.
        partition: The partition of the task.
    """

    def __init__(self, plan: Plan, scope: Scope, *, partition: int) -> None:
        self.plan, self.scope, self.partition = plan, scope, partition
        self.boxes = {name: plan.boxes[name] for name in scope.boxes}
        self.asking = {n: b for n, b in self.boxes.items() if isinstance(b, Asking)}
        self.aggregates = {n: b for n, b in self.boxes.items() if isinstance(b, Aggregate)}

    def closes(self, memory: Memory) -> int:
        """Return when the first open window of any box ends; `NONE_OPEN` if none is open."""
        ends = [
            box.closes(memory.live[name], wm=memory.watermark) for name, box in self.asking.items()
        ]
        return min((end for end in ends if end is not None), default=NONE_OPEN)

    def epoch(
        self,
        epoch: int,
        inputs: Mapping[str, pl.DataFrame],
        *,
        memory: Memory,
        watermark: int,
        own: Mapping[str, list[pl.DataFrame]],
        committed: int,
    ) -> Questions:
        """Process one epoch; yields questions and is sent the answers.

        Args:
            epoch: Its number.
            inputs: Its revisions by input arc.
            memory: As of the epoch before.
            watermark: wm(epoch).
            own: By arc, what this task made since `committed`, in the order of epochs.
            committed: Last epoch this task committed: own arcs are asked as of then, and what was
                made since is laid over the answer.
        """
        made = {name: self._net(name, revisions) for name, revisions in inputs.items()}
        live = dict(memory.live)
        result = EpochResult(Memory(epoch, watermark, live), made)
        counts = result.counts
        running: dict[str, tuple[Answers, Need]] = {}
        waiting = list(self.boxes)

        def advance(name: str, run: Answers, answers: list[pl.DataFrame] | None) -> None:
            with _told_of(name, epoch):
                try:
                    running[name] = run, next(run) if answers is None else run.send(answers)
                except StopIteration as stop:
                    outcome: Outcome = stop.value
                    live[name] = outcome.live
                    result.take(name, outcome)

        while waiting or running:
            for name in [n for n in waiting if self._has_input(n, made)]:
                waiting.remove(name)
                box = self.boxes[name]
                given = [made[arc] for arc in box.inputs]
                if not isinstance(box, Asking):
                    some = any(revisions.height for revisions in given)
                    with _told_of(name, epoch):
                        made[name] = box.revise(*given) if some else frames.none(box.arc.fields)
                    if some and isinstance(box, Where):
                        counts[f"{name}.judged"] = given[0].height
                        counts[f"{name}.passed"] = made[name].height
                    continue
                working = box.process(
                    *given, live=live[name], wm_before=memory.watermark, wm=watermark
                )
                advance(name, working, None)
            if any(self._has_input(n, made) for n in waiting) or not running:
                continue
            asked = list(running.items())
            asks = [self._asks(name, need, epoch, committed) for name, (_, need) in asked]
            replies = yield [ask for put in asks for ask in put]
            left = iter(replies)
            running = {}
            for (name, (run, need)), put in zip(asked, asks, strict=True):
                counts[f"{name}.requests"] = counts.get(f"{name}.requests", 0) + 1
                answers = list(islice(left, len(put)))
                if need.kind == RESULTS:
                    found = [self._results(name, answers[0], own)]
                else:
                    answers = [
                        self._with_own(ask.arc, answer, own, made)
                        for ask, answer in zip(put, answers, strict=True)
                    ]
                    with _told_of(name, epoch):
                        found = self.inputs(name, answers, watermark=watermark)
                advance(name, run, found)
        return result

    def _has_input(self, name: str, made: Mapping[str, pl.DataFrame]) -> bool:
        return all(arc in made for arc in self.boxes[name].inputs)

    def _net(self, name: str, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of an input, one for each identity: exchanges have many writers."""
        arc = self.plan.arcs[name]
        if not arc.exchange:
            return revisions
        plain = revisions.select(list(frames.schema(arc.fields)))
        return frames.net(plain, arc.identity, list(arc.fields))

    def inputs(
        self, name: str, replayed: Sequence[pl.DataFrame], *, watermark: int
    ) -> list[pl.DataFrame]:
        """Return a box's inputs on this partition, from what its anchors replayed."""
        path = self.plan.paths[name]
        found = path.inputs(replayed, wm=watermark)
        if not path.everywhere:
            return found
        spreads = [Spread(arc, self.plan.partition_count(arc.name)) for arc in path.targets]
        return [
            tuples.filter(spread.places(tuples) == self.partition)
            for spread, tuples in zip(spreads, found, strict=True)
        ]

    def _asks(self, name: str, need: Need, epoch: int, committed: int) -> list[Ask]:
        """Return the questions that a need becomes."""
        if need.kind == INPUTS:
            return [
                Ask(
                    anchor.arc.name,
                    committed if anchor.arc.name in self.boxes else epoch,
                    anchor.ranges(need.ranges),
                    anchor.everywhere,
                )
                for anchor in self.plan.paths[name].anchors
            ]
        return [Ask(self.plan.choices[name].results or name, committed, need.ranges)]

    def _results(
        self,
        name: str,
        tuples: pl.DataFrame,
        own: Mapping[str, list[pl.DataFrame]],
    ) -> pl.DataFrame:
        """Return stored results with what was made since laid over them.

        They may be kept in another scope, further down, that has seen what is committed only.
        """
        return overlay(tuples, self.aggregates[name].stored, own.get(name, []))

    def _with_own(
        self,
        anchor: str,
        tuples: pl.DataFrame,
        own: Mapping[str, list[pl.DataFrame]],
        made: Mapping[str, pl.DataFrame],
    ) -> pl.DataFrame:
        """Return what an anchor replayed, with what this task made of it since laid over it."""
        if anchor not in self.boxes:
            return tuples
        return overlay(tuples, self.plan.arcs[anchor], [*own.get(anchor, []), made[anchor]])
