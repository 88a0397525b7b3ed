"""One epoch through the boxes of a scope, in topological order.

Glitch-free by construction: a box runs once an epoch, after all boxes above it (Streamulus). What
boxes lack of history is gathered, so that the questions of boxes that don't wait for one another
travel together.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import polars as pl

from processors.boxes.aggregate import Aggregate
from processors.boxes.states import INPUTS, RESULTS, Answers, Need, Outcome
from processors.plan import Plan
from processors.replay import Ask, overlay
from processors.scopes import Scope
from schemas import revisions as frames


@dataclass(frozen=True)
class Memory:
    """What a scope remembers between epochs: the open windows of its aggregates, and wm(done)."""

    done: int
    watermark: int
    live: Mapping[str, pl.DataFrame]


@dataclass
class EpochResult:
    """What one epoch gave.

    Args:
        memory: What to remember.
        revisions: By arc of the scope.
        counts: Running totals to add.
    """

    memory: Memory
    revisions: dict[str, pl.DataFrame]
    counts: dict[str, int] = field(default_factory=dict)


Questions = Generator[list[Ask], list[pl.DataFrame], EpochResult]


class ScopeRun:
    """Takes a scope through epochs.

    Args:
        plan: The whole plan.
        scope: The scope to run.
    """

    def __init__(self, plan: Plan, scope: Scope) -> None:
        self.plan, self.scope = plan, scope
        self.boxes = {name: plan.boxes[name] for name in scope.boxes}
        self.aggregates = {n: b for n, b in self.boxes.items() if isinstance(b, Aggregate)}

    def has_to_run(self, memory: Memory, watermark: int) -> bool:
        """Whether an epoch without input has work: some open window closes."""
        for name, box in self.aggregates.items():
            starts = memory.live[name]["window_start"]
            if starts.len() and int(starts.min()) + box.window.size_ms <= watermark:  # type: ignore[arg-type]
                return True
        return False

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
        made: dict[str, pl.DataFrame] = dict(inputs)
        live = dict(memory.live)
        counts: dict[str, int] = {}
        running: dict[str, tuple[Answers, Need]] = {}
        waiting = list(self.boxes)
        while waiting or running:
            for name in [n for n in waiting if self._reads(n) in made]:
                waiting.remove(name)
                box = self.boxes[name]
                revisions = made[self._reads(name)]
                if not isinstance(box, Aggregate):
                    made[name] = (
                        box.revise(revisions) if revisions.height else frames.none(box.arc.fields)
                    )
                    continue
                run = box.process(
                    revisions, live=live[name], wm_before=memory.watermark, wm=watermark
                )
                self._advance(name, run, None, made, live, counts, running)
            if any(self._reads(n) in made for n in waiting) or not running:
                continue
            asked = list(running.items())
            answers = yield [self._ask(name, need, epoch, committed) for name, (_, need) in asked]
            running = {}
            for (name, (run, need)), tuples in zip(asked, answers, strict=True):
                counts[f"{name}.requests"] = counts.get(f"{name}.requests", 0) + 1
                tuples = self._with_own(name, need, tuples, own, made)
                if need.kind == INPUTS:
                    tuples = self.plan.paths[name].inputs(tuples, wm=watermark)
                self._advance(name, run, tuples, made, live, counts, running)
        revisions_made = {name: made[name] for name in self.boxes}
        return EpochResult(Memory(epoch, watermark, live), revisions_made, counts)

    def _reads(self, name: str) -> str:
        box = self.boxes[name]
        return box.input.name if isinstance(box, Aggregate) else box.input

    def _advance(
        self,
        name: str,
        run: Answers,
        answer: pl.DataFrame | None,
        made: dict[str, pl.DataFrame],
        live: dict[str, pl.DataFrame],
        counts: dict[str, int],
        running: dict[str, tuple[Answers, Need]],
    ) -> None:
        try:
            need = next(run) if answer is None else run.send(answer)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            made[name], live[name] = outcome.revisions, outcome.live
            for what, count in outcome.counts.items():
                counts[f"{name}.{what}"] = count
        else:
            running[name] = (run, need)

    def _ask(self, name: str, need: Need, epoch: int, committed: int) -> Ask:
        """Return the question that a need becomes."""
        if need.kind == INPUTS:
            path = self.plan.paths[name]
            as_of = committed if path.anchor.name in self.boxes else epoch
            return Ask(path.anchor.name, as_of, path.ranges(need.keys))
        results = self.plan.choices[name].results or name
        box = self.aggregates[name]
        last = pl.col("window_start") + (box.window.size_ms - 1)
        keys = need.keys.select(*box.by, last.alias("from_ms"), (last + 1).alias("to_ms"))
        return Ask(results, committed, keys)

    def _with_own(
        self,
        name: str,
        need: Need,
        tuples: pl.DataFrame,
        own: Mapping[str, list[pl.DataFrame]],
        made: Mapping[str, pl.DataFrame],
    ) -> pl.DataFrame:
        """Return an answer with what was made since laid over it.

        Results may be kept in another scope, further down, that has seen what is committed only.
        """
        if need.kind == RESULTS:
            box = self.aggregates[name]
            told = overlay(tuples, box.stored, own.get(name, []))
            return told.join(need.keys, on=box.keys, how="semi", nulls_equal=True)
        anchor = self.plan.paths[name].anchor
        if anchor.name not in self.boxes:
            return tuples
        return overlay(tuples, anchor, [*own.get(anchor.name, []), made[anchor.name]])
