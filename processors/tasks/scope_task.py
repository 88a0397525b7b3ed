"""The task of a scope of boxes on one partition."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import polars as pl

from errata.processors.arcs.arc_topic import history
from errata.processors.arcs.partitioner import Emission, Spread
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.boxes.sharing import Sharing
from errata.processors.plan.topology import Scope
from errata.processors.tasks import lost_records, rebuild
from errata.processors.tasks.attempt import RecordsByTopic
from errata.processors.tasks.contents import Contents
from errata.processors.tasks.dead_letters import (
    dead_letter_records,
    dead_letters_of_tuples,
    fail_on_refused,
    tally_dead_letters,
)
from errata.processors.tasks.lost_records import Loss
from errata.processors.tasks.on_error import STOP
from errata.processors.tasks.replay_client import Fetch, ReplayClient, ReplayRefusedError
from errata.processors.tasks.scope_run import EpochResult, Memory, ScopeRun
from errata.processors.tasks.shared import AnyInput, Shared
from errata.processors.tasks.sink_content import sink_content
from errata.processors.tasks.task import Task
from errata.processors.wire.report import INTERVAL_MS, NEVER, SETTLES, Report
from errata.processors.wire.task_id import ScopeId
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.errors import ErrataError
from errata.schemas.fields import physical
from errata.topics.cluster import FencedError, LostOffsetError, Records, TopicPartition

log = logging.getLogger("errata")

_READ_AGAIN = "the brokers have lost records of its input, which are written again"
_PUT_BACK = "a watermark was put back"

ROWS_A_COMMIT = 100_000
EPOCHS_A_COMMIT = 100
REPORTS_A_LAG = 4
"""Reports that an idle task writes per compaction lag (how long superseded records are kept)."""


class BehindError(ErrataError):
    """A task has not read revisions before compaction could remove some of them."""


class ScopeTask(Task):
    """Processes each complete epoch of its input as one batch.

    Args:
        shared: State shared by the tasks of the process.
        scope: The scope.
        partition: Its partition.
        replays: Fetches history.
    """

    def __init__(
        self, shared: Shared, scope: Scope, *, partition: int, replays: ReplayClient
    ) -> None:
        super().__init__(
            shared, ScopeId.of_boxes(scope.name).task(partition), outputs=scope.outputs
        )
        self.scope, self.replays, self.foreign = scope, replays, replays.foreign
        self.run = ScopeRun(self.plan, scope, partition=self.partition)
        self.spreads: dict[str, Spread] = {}
        self.inputs: dict[str, AnyInput] = {}

    def start(self) -> Iterator[bool]:
        """Rebuild the open windows as of the last committed epoch, from the connection points."""
        yield from self.read_reports()  # with its own first one, which tells the time
        self._open_inputs(done=self.report.done, resume=self.report.resume)
        if self.has_lost_records:
            yield from self._rebuild("the brokers have lost records that it had written")
            return
        if why := self._why_rebuild():
            yield from self._rebuild(why)
            return
        done, wm = self.report.done, self.report.watermark
        live = {name: box.no_live() for name, box in self.run.stateful.items()}
        if done >= 0:
            since = {name: box.live_from_ms(wm) for name, box in self.run.stateful.items()}
            kept = {name: from_ms for name, from_ms in since.items() if from_ms is not None}
            queries = [
                ReplayQuery(anchor.arc.name, done, anchor.ranges_from(from_ms), anchor.everywhere)
                for name, from_ms in kept.items()
                for anchor in self.plan.paths[name].anchors
            ]
            sharing = Sharing(queries, self.plan.topology.arcs)
            try:
                received = yield from self._replayed(sharing.sent, done)
            except (BehindError, LostOffsetError, ReplayRefusedError) as error:
                yield from self._rebuild(str(error))
                return
            answers = iter(sharing.answers(received))
            for name in kept:
                replayed = list(islice(answers, len(self.plan.paths[name].anchors)))
                inputs = self.run.inputs(name, replayed, watermark=wm)
                live[name] = self.run.stateful[name].restore(*inputs, wm=wm)
        memory = Memory.of(self.run.stateful, live, done=done, watermark=wm)
        self.memory = self.run.informed(memory, self.report.counts)
        yield True

    def _replayed(self, queries: Sequence[ReplayQuery], epoch: int) -> Fetch:
        """Fetch the content of the open windows."""
        schemas = [physical(self.plan.topology.arcs[query.arc].fields) for query in queries]
        parts = [[pl.DataFrame(schema=schema)] for schema in schemas]
        with self.again.of("replays its open windows"):
            yield from self._answers(list(map(self.again.counting, queries, parts)), epoch)
        return list(map(pl.concat, parts))

    def _open_inputs(
        self, *, done: int, resume: Mapping[TopicPartition, int], is_rebuilt: bool = False
    ) -> None:
        for reader in self.inputs.values():
            reader.close()
        for arc in self.scope.inputs:
            place = TopicPartition(self.plan.deployment.topic(arc), self.partition)
            keeps = self.plan.topology.arcs[arc].is_connection_point
            watch = self._check_age if keeps and done >= 0 and not is_rebuilt else None
            self.inputs[arc] = self.shared.input(
                arc,
                self.partition,
                done=done,
                resume=resume.get(place, 0),
                watch=watch,
                foreign=self.foreign,
            )

    def _check_age(self, records: Records, revisions: pl.DataFrame) -> None:
        """Check that compaction can't have removed some of the revisions that are read now.

        Raises:
            BehindError: If revisions that follow the last report are older than it leaves them.
        """
        horizon_ms = self.view.newest_ms - self.shared.compaction_lag_ms  # by the brokers' clock
        old = bisect_left(records.times_ms, horizon_ms)
        if old == 0:
            return
        unread = revisions.filter(pl.col("offset") <= records.offsets[old - 1])
        if (unread["epoch"] > self.report.done).any():
            raise BehindError(
                f"it has not read revisions of {records.source.topic} that are older than "
                "superseded ones are kept"
            )

    def close(self) -> None:
        """Close all connections."""
        for reader in self.inputs.values():
            reader.close()
        super().close()

    def _answers(self, queries: list[ReplayQuery], epoch: int) -> Fetch:
        """Fetch the answers; before the first epoch they are empty, and not requested."""
        sent = [query for query in queries if query.as_of >= 0]
        replies = iter(list[pl.DataFrame]())
        if sent:
            fetch = self.replays.fetch(
                sent, task=self.name, attempt=self.report.attempt, epoch=epoch
            )
            replies = iter((yield from self._reading_ahead(fetch)))
        return [
            next(replies)
            if query.as_of >= 0
            else pl.DataFrame(schema=physical(self.plan.topology.arcs[query.arc].fields))
            for query in queries
        ]

    def _reading_ahead(self, fetch: Fetch) -> Fetch:
        """Read and decode input while the answers are awaited.

        Reports are read too: the sweepers may have moved to a new version of the plan.

        Raises:
            FencedError: If a newer attempt has taken over: sweepers answer only that one.
            DoubtfulCommitError: If the brokers have lost what this task has written: a sweeper of
                its own arc waits until it is written again.
        """
        try:
            while True:
                is_busy = next(fetch)
                self.view.poll()
                if self.is_superseded:
                    raise FencedError(
                        f"task {self.name}: a newer attempt has taken over, and this one's replay "
                        "requests are not answered any more"
                    )
                yield from self.tell_reading()
                yield from self.check_ends()
                yield any([is_busy, *(reader.poll() for reader in self.inputs.values())])
        except StopIteration as stop:
            answers: list[pl.DataFrame] = stop.value
            return answers

    def step(self) -> Iterator[bool]:
        """Process the complete epochs one by one, and commit them together.

        The steps, in this order:

        1. Read the reports and the inputs that have arrived. The smallest frontier of the inputs is
           the last complete epoch.
        2. Process the epochs up to it that bring input or close a window, oldest first
           (`_process`). Sweepers send the history that boxes lack; nothing is produced meanwhile.
        3. If history of such an epoch is gone, rebuild the task in one epoch (`_rebuild`).
        4. Without such an epoch, write tombstones, or a report if the last one gets old (`_idle`).
        5. Commit the results of all epochs in one transaction (`Attempt.commit`), with a report of
           the last one.
        6. Keep the memory of the last epoch.
        """
        self.view.poll()
        if why := self._why_rebuild():
            yield from self._rebuild(why)
            return
        try:
            for reader in self.inputs.values():
                reader.poll()
            frontier = min(reader.frontier() for reader in self.inputs.values())
            results = yield from self._process(frontier)
        except (BehindError, LostOffsetError, ReplayRefusedError) as error:
            yield from self._rebuild(str(error))
            return
        if not results:
            yield from self._idle(frontier)
            return
        last = results[-1].memory
        records, counts = self._dead_letters(results)
        report = self._report_after(last, counts, settled_ms=self._settled(last.done))
        emissions = [
            emission
            for result in results
            for arc in self.plan.topology.emitted(self.scope)
            if arc in result.revisions
            for emission in self._emissions(arc, result.revisions[arc], result.memory.done)
        ]
        yield from self.commit(emissions, report, records=records)
        self.memory = last

    def _dead_letters(
        self, results: Sequence[EpochResult]
    ) -> tuple[RecordsByTopic, dict[str, int]]:
        """Return the dead letters of some epochs as records, and the counts of their report."""
        dead_letters = dead_letters_of_tuples(
            self.shared, results, partition=self.partition, report=self.report
        )
        counts = Counter(self.report.counts)
        for result in results:
            counts.update(result.counts)
        counts.update(tally_dead_letters(dead_letters))
        counts.update(self.foreign.tally())
        return dead_letter_records(self.shared, dead_letters), dict(counts)

    def _idle(self, frontier: int) -> Iterator[bool]:
        """Write tombstones, or a report if one is due, while no epoch brings anything.

        Peers infer the progress of an idle task. But history is kept only as of its last report,
        which must not become older than the compaction lag. A report is also due when `closes` has
        changed: the first one after a switch does not know which windows are open; or if foreign
        records were logged.
        """
        idle_ms, closes = (frontier - self.report.done) * INTERVAL_MS, self.run.closes(self.memory)
        is_old = idle_ms * REPORTS_A_LAG > self.shared.compaction_lag_ms
        is_due = closes != self.report.closes or is_old or self.foreign.is_news
        if self.report.done < 0 or not is_due:
            yield from self.compaction.write_tombstones()
            return
        done = max(frontier, self.report.done)
        memory = replace(
            self.memory, done=done, watermark=self.view.watermark(self.name, upto=done)
        )
        counts = Counter(self.report.counts)
        counts.update(self.foreign.tally())
        report = self._report_after(memory, counts, settled_ms=self.report.settled_ms)
        yield from self.commit([], report)
        self.memory = memory

    def _report_after(
        self, memory: Memory, counts: Mapping[str, int], *, settled_ms: int
    ) -> Report:
        """Return the report after these epochs, and drop them from the inputs."""
        return replace(
            self.report,
            done=memory.done,
            watermark=memory.watermark,
            closes=self.run.closes(memory),
            resume={reader.place: reader.drop(memory.done) for reader in self.inputs.values()},
            counts=counts,
            settled_ms=settled_ms,
        )

    def _emissions(self, arc: str, revisions: pl.DataFrame, epoch: int) -> list[Emission]:
        """Return an arc's revisions with their partitions: its own, except in an exchange."""
        if revisions.is_empty():
            return []
        if self.plan.topology.arcs[arc].exchange:
            if arc not in self.spreads:
                self.spreads[arc] = Spread(
                    self.plan.topology.arcs[arc], self.plan.placement.partitions[arc]
                )
            return self.spreads[arc].emissions(revisions, epoch)
        here = pl.Series([self.partition], dtype=pl.Int32).new_from_index(0, revisions.height)
        return [Emission(arc, epoch, revisions, here)]

    def _rebuild(self, why: str) -> Iterator[bool]:
        """Rebuild at the frontier in one coalesced epoch, as history is gone (`rebuild`)."""
        for _ in self.read_reports():
            yield True
        if self.is_superseded:
            raise FencedError(f"task {self.name}: a newer attempt has taken over; {why}")
        rebuild.check(self.plan, self.scope, why=why)
        log.warning("task %s is behind: %s; it is rebuilt at the frontier", self.name, why)
        content = Contents(self.shared, self.scope, partition=self.partition, again=self.again)
        try:
            with self.again.of("is rebuilt from its inputs"):
                epoch = yield from self.checking(self._rebuilt_epoch(content))
            wm = self.view.watermark(self.name, upto=epoch)
            recomputed, result = self._recomputed(content, epoch, wm)
            if result.refused:
                done, wm_done = self.report.done, self.report.watermark
                _, before = self._recomputed(content, done, wm_done)
                result = rebuild.only_new_refusals(result, before)
        finally:
            content.close()
        if self.shared.on_error == STOP:
            fail_on_refused(self.plan, result)
        emissions = yield from self.checking(self._corrections(recomputed, result))
        result.counts["rebuilt"] = 1
        records, counts = self._dead_letters([result])
        report = self._report_after(result.memory, counts, settled_ms=self._settled(epoch))
        passes_on = any(rebuild.passes_on(self.plan, arc) for arc in self.scope.outputs)
        if self.has_lost_records or passes_on:
            report = replace(report, rebuilt=epoch)
        yield from self.commit(emissions, report, records=records)
        self.memory = self.run.informed(result.memory, report.counts)

    def _corrections(
        self, recomputed: Mapping[str, pl.DataFrame], result: EpochResult
    ) -> Generator[bool, None, list[Emission]]:
        """Return the emissions that turn what was emitted last into what was recomputed.

        An arc's topic and its sinks get the same ones, unless the sinks tell of more than the topic
        does (`rebuild.told_by_sinks`). Counts the results in the epoch's result.
        """
        emissions = list[Emission]()
        told = rebuild.told_by_sinks(self.plan, self.scope, has_lost_records=self.has_lost_records)
        for name in self.plan.topology.emitted(self.scope):
            arc, settled_ms = self.plan.topology.arcs[name], self.report.settled_ms
            emitted = list[tuple[bool, pl.DataFrame]]()  # by whether it is what the topic has
            if name in told:
                sink = self.plan.topology.sinks_of(name)[0]
                sunk = yield from sink_content(self.shared, sink, partition=self.partition)
                emitted.append((False, sunk))
            if name in self.scope.outputs and not rebuild.passes_on(self.plan, name):
                emitted.append((True, (yield from self._emitted(name, settled_ms))))
            for to_topic, tuples in emitted:
                changed = rebuild.difference(arc, tuples, recomputed[name], settled=settled_ms)
                emissions += [
                    replace(each, to_topic=to_topic, to_sinks=not to_topic or name not in told)
                    for each in self._emissions(name, changed, result.memory.done)
                ]
            if emitted and (box := self.run.stateful.get(name)):
                result.count(name, box.count_results(changed, wm_before=self.report.watermark))
        return emissions

    def _rebuilt_epoch(self, content: Contents) -> Generator[bool, None, int]:
        """Return the epoch at which the task is rebuilt, once all inputs have come so far."""
        while (epoch := self._rebuilt_at(content)) is None:
            yield False
        return epoch

    def _rebuilt_at(self, content: Contents) -> int | None:
        """Read on; return the epoch at which the task is rebuilt, or None if it is still to come.

        The inputs are opened again: from the start where their history is read, else only for the
        epochs that follow.
        """
        self.view.poll()
        lowered = self.view.line(self.scope.name).lowered
        first = max(self.report.done + 1, self._rebuilt_above(), lowered, self.restored_from)
        try:
            if not content.is_open:
                self._open_inputs(done=self.report.done, resume={}, is_rebuilt=True)
                content.open()
            for reader in self.inputs.values():
                reader.poll()
            epoch = min(content.poll(), *(reader.frontier() for reader in self.inputs.values()))
        except LostOffsetError:
            content.close()  # the brokers have lost records, or deleted some: from the start again
            return None
        return epoch if epoch >= max(first, content.floor) else None

    def _emitted(self, name: str, settled_ms: int) -> Generator[bool, None, pl.DataFrame]:
        """Return the tuples that this task has emitted to an output, as its topic has them."""
        codec, arc = self.shared.codec(name), self.plan.topology.arcs[name]
        place = TopicPartition(codec.topic, self.partition)
        written = yield from history(self.cluster, codec, place, 0)
        wrote = place in self.report.ends
        first: int | None = written["offset"].min()  # type: ignore[assignment]
        if rebuild.may_lack(arc, first=first, wrote=wrote, settled_ms=settled_ms):
            log.warning(
                "task %s: %s keeps no history, and may lack records by their age: what it lacks is "
                "emitted again",
                self.name,
                codec.topic,
            )
        covered = self.view.covered(written.filter(pl.col("task") == self.name))
        return frames.fold(covered, arc.identity, list(arc.fields))

    def _rebuilt_above(self) -> int:
        """Return the last epoch in which a writer of an input wrote again what was lost."""
        return max(self.view.rebuilt(arc, self.partition) for arc in self.inputs)

    def _why_rebuild(self) -> str:
        """Return why the task must be rebuilt in an epoch to come; "" if it must not."""
        if self.report.done < self._rebuilt_above():
            return _READ_AGAIN
        return _PUT_BACK if self.view.frontiers.falls(self.name) else ""

    def require_restorable(self, lost: Sequence[Loss]) -> None:
        """Check that the task can be rebuilt, and that its lost outputs keep their history."""
        rebuild.check(self.plan, self.scope, why=lost_records.text(lost))
        known = [arc for arc in self.scope.outputs if not rebuild.passes_on(self.plan, arc)]
        lost_records.require_history(self.shared, lost, known)

    def _recomputed(
        self, content: Contents, epoch: int, wm: int
    ) -> tuple[dict[str, pl.DataFrame], EpochResult]:
        """Recompute the boxes from scratch, from the content of the inputs as of an epoch."""
        inputs = content.as_of(epoch)
        return rebuild.recompute(self.plan, self.scope, inputs, epoch=epoch, watermark=wm)

    def _settled(self, epoch: int) -> int:
        """Return the event time before which no output tuple can be revised after an epoch."""
        times_ms = [self.view.settled(arc, upto=epoch) for arc in self.scope.outputs]
        return max(min(times_ms, default=NEVER), self.report.settled_ms)

    def _process(self, frontier: int) -> Generator[bool, None, list[EpochResult]]:
        """Return the results of some complete epochs, oldest first; [] if there is nothing to do.

        Epochs that bring no input and close no window are skipped, unless the task has to settle.
        """
        if frontier <= self.report.done:
            return []
        epochs = sorted({epoch for i in self.inputs.values() for epoch in i.epochs(frontier)})
        unsettled = self.view.unsettled(self.scope.name, self.name)
        if unsettled and epochs[-1:] != [frontier]:
            epochs.append(frontier)
        epochs = epochs[:EPOCHS_A_COMMIT]
        upto = epochs[-1] if len(epochs) == EPOCHS_A_COMMIT else frontier
        memory, rows = self.memory, 0
        epoch = self._next_epoch(epochs, memory, upto)
        if epoch is None:
            return []
        taken = {arc: reader.take(upto) for arc, reader in self.inputs.items()}
        results: list[EpochResult] = []
        uncommitted: dict[str, list[pl.DataFrame]] = {}
        line = self.view.line(self.scope.name)
        while epoch is not None and rows < ROWS_A_COMMIT and len(results) < EPOCHS_A_COMMIT:
            epochs = [later for later in epochs if later > epoch]
            inputs = {
                arc: by_column.kept(frame, frame["epoch"] == epoch) for arc, frame in taken.items()
            }
            wm = line.following(memory.done, memory.watermark, epoch=epoch)
            settles = unsettled if epoch == frontier else 0
            result = yield from self._epoch(
                epoch, inputs, memory, wm, uncommitted, settles=bool(settles)
            )
            if settles:
                result.counts[SETTLES] = settles
            memory, rows = result.memory, rows + sum(map(len, inputs.values()))
            results.append(result)
            for arc, revisions in result.revisions.items():
                uncommitted.setdefault(arc, []).append(revisions)
            epoch = self._next_epoch(epochs, memory, upto)
        return results

    def _next_epoch(self, epochs: list[int], memory: Memory, upto: int) -> int | None:
        """Return the next epoch that brings input or closes a window; None if none is known."""
        closing = self.view.frontiers.closing(
            self.name, after=memory.done, closes=self.run.closes(memory)
        )
        closings = [] if closing is None or closing > upto else [closing]
        return min([*epochs[:1], *closings], default=None)

    def _epoch(
        self,
        epoch: int,
        inputs: dict[str, pl.DataFrame],
        memory: Memory,
        wm: int,
        uncommitted: dict[str, list[pl.DataFrame]],
        *,
        settles: bool,
    ) -> Generator[bool, None, EpochResult]:
        run = self.run.epoch(
            epoch,
            inputs,
            memory=memory,
            watermark=wm,
            uncommitted=uncommitted,
            committed=self.report.done,
            settles=settles,
        )
        try:
            queries = next(run)
            while True:
                answers = yield from self._answers(queries, epoch)
                queries = run.send(answers)
        except StopIteration as stop:
            result: EpochResult = stop.value
            if self.shared.on_error == STOP:
                fail_on_refused(self.plan, result)
            return result
