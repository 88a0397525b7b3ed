"""The task of a scope of boxes on one partition."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import polars as pl

from processors.arc_topic import ArcInput
from processors.desk import Answering, Desk
from processors.plan import Scope
from processors.replay import Ask
from processors.scope import EpochResult, Memory, ScopeRun
from processors.task import Emission, Shared, Task
from schemas import revisions as frames
from topics.cluster import TopicPartition

ROWS_A_COMMIT = 100_000
EPOCHS_A_COMMIT = 100


class ScopeTask(Task):
    """Processes every epoch that its input has completed, as one batch.

    Args:
        shared: What its process shares.
        scope: The scope.
        partition: Its partition.
        desk: Where it asks for history.
    """

    def __init__(self, shared: Shared, scope: Scope, *, partition: int, desk: Desk) -> None:
        super().__init__(shared, f"{scope.name}.{partition}", outputs=scope.outputs)
        self.scope, self.desk = scope, desk
        self.run = ScopeRun(self.plan, scope)
        self.inputs: dict[str, ArcInput] = {}

    def start(self) -> Iterator[bool]:
        """Rebuild the open windows as of the last committed epoch, from the connection points."""
        for arc in self.scope.inputs:
            codec = self.shared.codec(arc)
            place = TopicPartition(codec.topic, self.partition)
            self.inputs[arc] = ArcInput(
                self.view,
                codec,
                self.partition,
                done=self.report.done,
                resume=self.report.resume.get(place, 0),
            )
        done, wm = self.report.done, self.report.watermark
        live = {name: box.no_states() for name, box in self.run.aggregates.items()}
        if done >= 0:
            paths = [self.plan.paths[name] for name in live]
            asks = [
                Ask(path.anchor.name, done, path.ranges_from(wm - path.box.window.size_ms + 1))
                for path in paths
            ]
            answers = yield from self._answers(asks, done)
            for path, tuples in zip(paths, answers, strict=True):
                box = path.box
                states = box.states_of(path.inputs(tuples, wm=wm))
                open_now = pl.col("window_start") + box.window.size_ms > wm
                live[box.arc.name] = states.filter(open_now)
        self.memory = Memory(done, wm, live)
        yield True

    def close(self) -> None:
        """Give all connections back."""
        for reader in self.inputs.values():
            reader.close()
        super().close()

    def _answers(self, asks: list[Ask], epoch: int) -> Answering:
        if not asks:
            return []
        return (
            yield from self.desk.answers(
                asks, task=self.name, attempt=self.report.attempt, epoch=epoch
            )
        )

    def step(self) -> Iterator[bool]:
        """Take the epochs that are complete, process them one by one, commit them together."""
        self.view.poll()
        for reader in self.inputs.values():
            reader.poll()
        frontier = min(reader.frontier() for reader in self.inputs.values())
        results = yield from self._process(frontier)
        if not results:
            buried = False
            for _ in self.bury():
                buried = True
                yield True
            yield buried
            return
        last = results[-1].memory
        resume = {reader.place: reader.drop(last.done) for reader in self.inputs.values()}
        counts = dict(self.report.counts)
        for result in results:
            for name, count in result.counts.items():
                counts[name] = counts.get(name, 0) + count
        report = replace(
            self.report, done=last.done, watermark=last.watermark, resume=resume, counts=counts
        )
        emissions = [
            self._emission(arc, result)
            for result in results
            for arc in self.scope.outputs
            if result.revisions[arc].height
        ]
        yield from self.commit(emissions, report)
        self.memory = last

    def _emission(self, arc: str, result: EpochResult) -> Emission:
        revisions = result.revisions[arc]
        here = pl.Series([self.partition], dtype=pl.Int32).new_from_index(0, revisions.height)
        return Emission(arc, result.memory.done, revisions, here)

    def _process(self, frontier: int) -> Generator[bool, None, list[EpochResult]]:
        """Return the results of some complete epochs, oldest first; [] when there is nothing."""
        done = self.report.done
        if frontier <= done:
            return []
        found = {arc: reader.epochs(frontier) for arc, reader in self.inputs.items()}
        moves = dict(self.view.moves(self.name, since=done, upto=frontier))
        epochs = sorted({e for own in found.values() for e in own} | set(moves))
        epochs = epochs[:EPOCHS_A_COMMIT]
        if not epochs:
            return []
        taken = {arc: reader.take(epochs[-1]) for arc, reader in self.inputs.items()}
        memory, results, rows = self.memory, [], 0
        own: dict[str, list[pl.DataFrame]] = {}
        wm = memory.watermark
        for epoch in epochs:
            inputs = {
                arc: frame.filter(pl.col("epoch") == epoch) if len(epochs) > 1 else frame
                for arc, frame in taken.items()
            }
            height = sum(frame.height for frame in inputs.values())
            wm = moves.get(epoch, wm)
            if height or self.run.has_to_run(memory, wm):
                result = yield from self._epoch(epoch, inputs, memory, wm, own)
            else:
                empty = {n: frames.none(b.arc.fields) for n, b in self.run.boxes.items()}
                result = EpochResult(Memory(epoch, wm, memory.live), empty)
            memory, rows = result.memory, rows + height
            results.append(result)
            for arc, revisions in result.revisions.items():
                own.setdefault(arc, []).append(revisions)
            if rows >= ROWS_A_COMMIT:
                break
        return results

    def _epoch(
        self,
        epoch: int,
        inputs: dict[str, pl.DataFrame],
        memory: Memory,
        wm: int,
        own: dict[str, list[pl.DataFrame]],
    ) -> Generator[bool, None, EpochResult]:
        run = self.run.epoch(
            epoch, inputs, memory=memory, watermark=wm, own=own, committed=self.report.done
        )
        try:
            asks = next(run)
            while True:
                answers = yield from self._answers(asks, epoch)
                asks = run.send(answers)
        except StopIteration as stop:
            result: EpochResult = stop.value
            return result
