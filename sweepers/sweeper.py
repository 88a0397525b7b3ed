"""A sweeper: follows one partition of a connection point and answers requests from its copy.

Borealis' sweeper puts historical tuples into the input queue of the box that requested them. This
one returns them either directly, in the process of the task (`LocalSweepers`), or over topics, as
its own process (`Service`). There a reply is complete or a refusal, never partial. It is sent in
blocks of many tuples, outside any transaction. The requester recognises its replies by (task,
attempt, epoch, number).
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import polars as pl

from errata.processors.arcs.arc_topic import ArcInput
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks.expiry import expired_before, passed
from errata.processors.tasks.replay_client import ReplayRefusedError
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire import report as reports
from errata.processors.wire.replay import Reply, Request, pack
from errata.processors.wire.report import PENDING, Report
from errata.processors.wire.task_id import ScopeId
from errata.schemas import framing
from errata.sweepers.ranges import HistoryRemovedError, NotYetCompleteError
from errata.sweepers.requests import Requests
from errata.sweepers.segments import DamagedCopyError, StoreError
from errata.sweepers.store import Store
from errata.topics import names
from errata.topics.cluster import LostOffsetError, Records, TopicPartition

log = logging.getLogger("errata")

REPORT_MS = 1_000
RETRY_MS = 1_000
"""How long to wait before a full disk is tried again."""


@dataclass(frozen=True)
class _CompleteEpochs:
    """Revisions of complete epochs, as arguments of `Store.append`."""

    revisions: pl.DataFrame
    upto: int
    resume: int


class Sweeper:
    """Maintains the copy of one partition of a connection point and answers from it.

    Args:
        shared: State shared by the actors of the process.
        arc: Name of the connection point.
        partition: The partition.
        folder: Folder of the copy; a lost or damaged copy is read from the topic again.
        clock_ms: The wall clock.
        segment_rows: How many changes are collected before they are written to the disk.
    """

    def __init__(
        self,
        shared: Shared,
        arc: str,
        *,
        partition: int,
        folder: Path,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        segment_rows: int = 65_536,
    ) -> None:
        self.shared, self.arc, self.partition = shared, shared.plan.topology.arcs[arc], partition
        self.name, self.clock_ms = str(ScopeId.of_sweeper(arc).task(partition)), clock_ms
        self.folder, self.segment_rows = folder, segment_rows
        self._open()
        self.reported_ms = 0
        self.reported = self.renewed = -1

    def _open(self) -> None:
        self.store = Store(self.folder, arc=self.arc, segment_rows=self.segment_rows)
        if self.store.rebuilt:
            log.warning(
                "%s: its copy is read from the topic again: %s", self.name, self.store.rebuilt
            )
        self.input = ArcInput(
            self.shared.view,
            self.shared.codec(self.arc.name),
            self.partition,
            done=self.store.upto,
            resume=self.store.resume,
            watch=self._watch,
        )
        self.incomplete_upto = self.store.incomplete_upto
        self.reads_old = self._caught_up = False
        self.unappended: _CompleteEpochs | None = None
        self.full = ""
        """Why it neither answers nor reads on; "" if it does."""
        self.retry_ms = 0

    def _start_over(self, reason: str) -> None:
        """Drop the copy: it is damaged, or the topic no longer holds the records that follow it."""
        log.warning("%s: its copy is dropped and read from the topic again: %s", self.name, reason)
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._open()

    def _watch(self, records: Records, frame: pl.DataFrame) -> None:
        """Note the epochs whose versions compaction may have removed before they were read."""
        horizon = self.clock_ms() - self.shared.compaction_lag_ms
        old = bisect_left(records.times_ms, horizon)
        self.reads_old = old > 0
        if old:
            epochs = frame.filter(pl.col("offset") <= records.offsets[old - 1])["epoch"]
            self.incomplete_upto = max(
                self.incomplete_upto, cast(int, epochs.max()) if epochs.len() else -1
            )

    def follow(self) -> bool:
        """Append the epochs that have become complete; return whether anything was read.

        While the disk is full nothing is appended and no request is answered; it retries.

        Raises:
            StoreError: If the disk fails for another reason.
        """
        now = self.clock_ms()
        if self.full and now < self.retry_ms:
            return False
        try:
            busy = self._follow()
        except DamagedCopyError as error:
            self._start_over(str(error))
            return True
        except StoreError as error:
            if not error.is_full:
                raise
            if not self.full:
                log.error("%s answers no requests until its disk has room: %s", self.name, error)
            self.full, self.retry_ms = str(error), now + RETRY_MS
            return False
        if self.full:
            log.warning("%s: its disk has room again; it answers requests", self.name)
            self.full = ""
        return busy

    def _follow(self) -> bool:
        self.shared.view.poll()
        if self._waits_for_lost():
            return False
        read = 0
        if self.unappended is None:
            try:
                read = self.input.poll()
            except LostOffsetError as error:
                self._start_over(str(error))
                return True
            frontier = self.input.frontier()
            if frontier > self.store.upto:
                taken = self.input.take(frontier).drop("task", "attempt", "offset")
                self.unappended = _CompleteEpochs(taken, frontier, self.input.drop(frontier))
        if self.unappended is not None:
            new = self.unappended
            self.store.append(
                new.revisions,
                upto=new.upto,
                resume=new.resume,
                incomplete_upto=self.incomplete_upto,
            )
            self.unappended = None
        if (
            self._unsettled()
            and self.store.upto >= self.incomplete_upto
            and not (read and self.reads_old)
        ):
            self.store.settle(self.incomplete_upto)
            self.incomplete_upto = -1
        self._report()
        return read > 0

    def _waits_for_lost(self) -> bool:
        """Whether a writer of the arc has yet to write lost records again.

        Once it has, the copy is read from the topic again, and has no history from before.
        """
        rebuilt = self.shared.view.rebuilt(self.arc.name, self.partition)
        if 0 <= self.store.upto < rebuilt < PENDING and self.renewed < rebuilt:
            self._start_over("the brokers have lost records, which are written again")
            self.renewed = self.incomplete_upto = rebuilt
        return rebuilt == PENDING

    def _unsettled(self) -> bool:
        """Whether it has read records whose earlier versions compaction may have removed."""
        return self.incomplete_upto >= 0

    def has_caught_up(self) -> bool:
        """Whether it has once been able to answer for every epoch that reports say is complete."""
        if not self._caught_up:
            complete, _ = self.shared.view.complete(self.arc.name, self.partition)
            self._caught_up = not self._unsettled() and self.store.upto >= complete
        return self._caught_up

    def answer(self, as_of: int, ranges: pl.DataFrame) -> pl.DataFrame | None:
        """Return all tuples in the ranges; None while the epoch is not complete in the copy.

        Raises:
            HistoryRemovedError: If a complete answer is no longer possible.
        """
        if self.full or self._unsettled() or self._waits_for_lost():
            return None
        meter = self.shared.meter
        try:
            tuples = self.store.as_of(as_of, ranges)
        except NotYetCompleteError:
            return None
        except DamagedCopyError as error:
            self._start_over(str(error))
            return None
        except HistoryRemovedError:
            meter.refused[self.arc.name] += 1
            raise
        meter.answered[self.arc.name] += 1
        meter.tuples[self.arc.name] += tuples.height
        return tuples

    def _report(self) -> None:
        """Report, once a second, the last sealed epoch: tombstones wait for it."""
        now, done = self.clock_ms(), self.store.sealed
        if now - self.reported_ms < REPORT_MS:
            return
        self.reported_ms = now
        self.store.scrub()
        asked = self._oldest_requested()
        self.store.raise_floor(max(self.store.floor, asked))
        self.store.drop_before(expired_before(self.shared, self.arc.name, upto=asked, now_ms=now))
        if done == self.reported:
            return
        topic = names.progress_topic(self.shared.plan.network)
        plan = self.shared.plan.fingerprint
        report = replace(Report(self.name), plan=plan, done=done)
        schema_id = self.shared.registry.register(f"{topic}-value", reports.SCHEMA)
        value = framing.frame([reports.encode(report)], schema_id)[0]
        self.shared.cluster.send(topic, partition=0, key=self.name.encode(), value=value)
        self.reported = done

    def _oldest_requested(self) -> int:
        """Return the oldest epoch that a task may still request."""
        plan, arc = self.shared.plan, self.arc.name
        near = {name for name, choice in plan.choices.items() if choice.results == arc}
        tasks: set[str] = set()
        for name, path in plan.paths.items():
            if arc in plan.replayed_everywhere(name):
                tasks.update(plan.placement.tasks(plan.topology.scope_of(name)))
            elif any(anchor.arc.name == arc for anchor in path.anchors):
                near.add(name)
        scopes = (ScopeId.parse(plan.topology.scope_of(name)) for name in near)
        tasks.update(str(scope.task(self.partition)) for scope in scopes)
        return passed(self.shared, tasks)

    def steps(self) -> Generator[bool, None, None]:
        """Follow the arc for ever."""
        while True:
            yield self.follow()

    def close(self) -> None:
        """Stop reading and release the files."""
        self.input.close()


LOOK_BACK = 100
"""Requests before the log's end that it reads at startup: they may have come while it was down."""
ANSWERING_S = 0.2
"""How long requests are answered before the arc is followed again."""


class Service:
    """Serves the requests to one sweeper.

    Args:
        shared: State shared by the actors of the process.
        sweeper: The sweeper whose copy has the answers.
    """

    def __init__(self, shared: Shared, sweeper: Sweeper) -> None:
        self.shared, self.sweeper, self.name = shared, sweeper, sweeper.name
        topic = shared.plan.deployment.requests(sweeper.arc.name)
        self.place = TopicPartition(topic, sweeper.partition)
        start = max(0, shared.cluster.end(self.place) - LOOK_BACK)
        self.reader = shared.cluster.reader({self.place: start})
        self.requests = Requests(shared, sweeper.arc, partition=sweeper.partition)

    def steps(self) -> Generator[bool, None, None]:
        """Follow the arc and answer requests for ever; yields whether there was work."""
        while True:
            busy = self.sweeper.follow()
            self._listen()
            yield self._answer() or busy

    def _listen(self) -> None:
        for records in self.reader.poll():
            for value in records.values:
                self.requests.receive(value)

    def _answer(self) -> bool:
        """Answer requests for `ANSWERING_S` at most; return whether any was answered."""
        until_s, answered = time.monotonic() + ANSWERING_S, False
        for pending in self.requests.due():
            try:
                tuples = self.sweeper.answer(pending.request.as_of, pending.ranges)
            except HistoryRemovedError as error:
                self._reply(pending.request, iter([b""]), count=1, refused=str(error))
            else:
                if tuples is None:
                    continue
                self._reply(pending.request, blocks(tuples), count=block_count(tuples))
            self.requests.done(pending)
            answered = True
            if time.monotonic() > until_s:
                break
        return answered

    def _reply(
        self, request: Request, parts: Iterator[bytes], *, count: int, refused: str | None = None
    ) -> None:
        topic, answer = request.reply_topic, secrets.randbits(62)
        schema_id = self.shared.registry.register(f"{topic}-value", replay.REPLY_SCHEMA)
        for number, part in enumerate(parts):
            reply = Reply(
                request.requester, request.number, answer, number, count, refused, tuples=part
            )
            self.shared.cluster.send(
                topic,
                partition=request.reply_partition,
                key=None,
                value=replay.encode(reply, schema_id=schema_id),
            )

    def close(self) -> None:
        """Stop reading requests."""
        self.reader.close()
        self.sweeper.close()


def blocks(tuples: pl.DataFrame) -> Iterator[bytes]:
    """Yield a reply's tuples in parts of about `replay.BLOCK_BYTES`; at least one part."""
    starts = _starts(tuples)
    for start in starts:
        yield pack(tuples.slice(start, starts.step))


def block_count(tuples: pl.DataFrame) -> int:
    """Return how many parts `blocks` yields."""
    return len(_starts(tuples))


def _starts(tuples: pl.DataFrame) -> range:
    size = max(1, int(tuples.estimated_size()))
    rows = max(1, replay.BLOCK_BYTES * tuples.height // size)
    return range(0, max(1, tuples.height), rows)


class LocalSweepers:
    """Answers replay requests from the sweepers of the same process.

    Args:
        sweepers: By name of the connection point and by partition.
        partition: The partition of the requesting task.
    """

    def __init__(
        self, sweepers: Mapping[str, Mapping[int, Sweeper]], *, partition: int = 0
    ) -> None:
        self.sweepers, self.partition = sweepers, partition

    def fetch(
        self, queries: Sequence[ReplayQuery], *, task: str, attempt: int, epoch: int
    ) -> Generator[bool, None, list[pl.DataFrame]]:
        """Yield until all answers have arrived, then return them in order."""
        results = []
        for query in queries:
            sweepers = self.sweepers[query.arc]
            addressed = sweepers.values() if query.everywhere else [sweepers[self.partition]]
            parts = []
            for sweeper in addressed:
                try:
                    while (answer := sweeper.answer(query.as_of, query.ranges)) is None:
                        yield sweeper.follow()
                except HistoryRemovedError as error:
                    raise ReplayRefusedError(
                        f"the replay request of task {task} to arc {query.arc!r} was refused: "
                        f"{error}"
                    ) from error
                parts.append(answer)
            results.append(pl.concat(parts))
        return results
