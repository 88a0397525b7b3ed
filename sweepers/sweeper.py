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
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import cast

import polars as pl

from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.boxes.replay import ReplayQuery
from errata.processors.tasks.elapsed import elapsed_ms, wall_clock_ms
from errata.processors.tasks.expiry import expired_before, oldest_requested
from errata.processors.tasks.replay_client import (
    Fetch,
    Gathered,
    ReplayRefusedError,
    part_bytes,
)
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire import report as reports
from errata.processors.wire.replay import ALL, ALL_MS, Reply, Request
from errata.processors.wire.report import FOR_ROOM, FOREIGN, FOREVER, PENDING, Report
from errata.processors.wire.task_id import ScopeId
from errata.schemas import framing
from errata.sweepers.ranges import HistoryRemovedError, NotYetCompleteError
from errata.sweepers.requests import Requests
from errata.sweepers.segments import DamagedCopyError, StoreError
from errata.sweepers.store import NO_LIMIT, Part, Store
from errata.topics import names
from errata.topics.cluster import LostOffsetError, Records, TopicPartition

log = logging.getLogger("errata")

TURN_S = 0.05
"""How long a sweeper answers a task beside it before others have their turn."""
REPORT_MS = 1_000
SEALS_A_LAG = 4
"""How often, while superseded records stay in the topic, what is only in memory is written."""
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
        clock_ms: Callable[[], int] = wall_clock_ms,
        segment_rows: int = 65_536,
    ) -> None:
        self.shared, self.arc, self.partition = shared, shared.plan.topology.arcs[arc], partition
        self.name, self.clock_ms = str(ScopeId.of_sweeper(arc).task(partition)), clock_ms
        self.folder, self.segment_rows = folder, segment_rows
        self.foreign, self._foreign_count = ForeignRecords(), 0
        self.noted = [self.foreign]
        """What its report counts: foreign records of the arc, and of the topic of requests."""
        self._open()
        self.reported_ms = 0
        self.renewed = -1
        self._told = (-1, 0, 0)

    def _open(self) -> None:
        self.store = Store(
            self.folder,
            arc=self.arc,
            clustered=self.shared.plan.requested_by(self.arc.name),
            segment_rows=self.segment_rows,
        )
        if self.store.rebuilt:
            log.warning(
                "%s: its copy is read from the topic again: %s", self.name, self.store.rebuilt
            )
        self.input = self.shared.input(
            self.arc.name,
            self.partition,
            done=self.store.upto,
            resume=self.store.resume,
            watch=self._watch,
            foreign=self.foreign,
            is_awaited=False,
        )
        self.incomplete_upto = self.store.incomplete_upto
        self.reads_old = self._caught_up = self._has_read_old = False
        self.complete_ms = -FOREVER
        """When the copy was last complete; unknown of one that is found on the disk."""
        self._sealed_ms = -FOREVER
        self.unappended: _CompleteEpochs | None = None
        self.full = ""
        """Why it neither answers nor reads on; "" if it does."""
        self.full_ms = -FOREVER
        """When its disk was found full last."""

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
            self._has_read_old = True
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
        if self.full and elapsed_ms(self.full_ms, now_ms=now) < RETRY_MS:
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
            self.full, self.full_ms = str(error), now
            self._tell()
            return False
        if self.full:
            log.warning("%s: its disk has room again; it answers requests", self.name)
            self.full = ""
            self._tell()
        return busy

    def _follow(self) -> bool:
        self.shared.view.poll()
        if self._waits_for_lost():
            return False
        read = 0
        if self.unappended is None:
            self._has_read_old = False
            try:
                read = self.input.poll()
            except LostOffsetError as error:
                self._start_over(str(error))
                return True
            if self._was_away():
                self._start_over("it was away for longer than superseded records are kept")
                return True
            if self.store.upto < self.input.floor:
                self.incomplete_upto = max(self.incomplete_upto, self.input.floor)
            frontier = self.input.frontier()
            if frontier > self.store.upto:
                self.complete_ms = self.clock_ms()
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

    def _was_away(self) -> bool:
        """Whether deletes that the copy lacks may be gone from the topic by now.

        Tombstones wait for the sweeper of the partition, but other copies report under its name.
        """
        age_ms = elapsed_ms(self.complete_ms, now_ms=self.clock_ms())
        is_late = age_ms > self.shared.compaction_lag_ms
        return self._has_read_old and self.store.upto >= 0 and is_late

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

    def answer(
        self, as_of: int, ranges: pl.DataFrame, *, most_bytes: int = NO_LIMIT
    ) -> Part | None:
        """Return the tuples in the ranges; None while the epoch is not complete in the copy.

        Args:
            as_of: The epoch.
            ranges: The ranges.
            most_bytes: Size of the tuples above which the answer covers less; see `Store.part`.

        Raises:
            HistoryRemovedError: If a complete answer is no longer possible.
        """
        if self.full or self._unsettled() or self._waits_for_lost():
            return None
        meter = self.shared.meter
        try:
            part = self.store.part(as_of, ranges, most_bytes=most_bytes)
        except NotYetCompleteError:
            return None
        except DamagedCopyError as error:
            self._start_over(str(error))
            return None
        except HistoryRemovedError:
            meter.refused[self.arc.name] += 1
            raise
        meter.answered[self.arc.name] += 1
        meter.tuples[self.arc.name] += part.tuples.height
        return part

    def _report(self) -> None:
        """Report, once a second, the last sealed epoch: tombstones wait for it."""
        now = self.clock_ms()
        if elapsed_ms(self.reported_ms, now_ms=now) < REPORT_MS:
            return
        self.reported_ms = now
        self.store.scrub()
        asked = oldest_requested(self.shared, self.arc.name, self.partition)
        assert asked is not None  # a sweeper serves some box
        self.store.raise_floor(max(self.store.floor, asked))
        self.store.drop_before(expired_before(self.shared, self.arc.name, upto=asked, now_ms=now))
        self._seal(now)
        self._tell()

    def _seal(self, now_ms: int) -> None:
        """Write to the disk what is only in memory, once it is caught up and now and then.

        A restarted sweeper of a feed with few records then reads none again that are so old that
        its copy would not count as complete.
        """
        lag_ms = self.shared.compaction_lag_ms
        since_ms = elapsed_ms(self._sealed_ms, now_ms=now_ms)
        if self.has_caught_up() and since_ms >= lag_ms // SEALS_A_LAG:
            self.store.seal()
            self._sealed_ms = now_ms

    def _tell(self) -> None:
        """Report, if anything has changed."""
        self._foreign_count += sum(foreign.taken() for foreign in self.noted)
        foreign, waits = self._foreign_count, FOR_ROOM if self.full else 0
        # A lost copy reads the topic from its start, and another one may report under this name,
        # too: what has been passed once stays passed.
        done = max(self.store.sealed, self.shared.view.of(self.name).done)
        if (done, foreign, waits) == self._told:
            return
        topic = names.progress_topic(self.shared.plan.network)
        plan = self.shared.plan.fingerprint
        counts = {FOREIGN: foreign} if foreign else {}
        report = replace(Report(self.name), plan=plan, done=done, counts=counts, waits=waits)
        schema_id = self.shared.registry.register(f"{topic}-value", reports.SCHEMA)
        value = framing.frame([reports.encode(report)], schema_id)[0]
        self.shared.cluster.send(topic, partition=0, key=self.name.encode(), value=value)
        self._told = done, foreign, waits

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
        sweeper.noted.append(self.requests.foreign)

    def steps(self) -> Generator[bool, None, None]:
        """Follow the arc and answer requests for ever; yields whether there was work."""
        while True:
            busy = self.sweeper.follow()
            self._listen()
            yield self._answer() or busy

    def _listen(self) -> None:
        for records in self.reader.poll():
            for offset, value in zip(records.offsets, records.values, strict=True):
                self.requests.receive(value, offset=offset)

    def _answer(self) -> bool:
        """Answer requests for `ANSWERING_S` at most; return whether any was answered."""
        until_s, answered = monotonic() + ANSWERING_S, False
        for pending in self.requests.due():
            request = pending.request
            limit = request.most_bytes if request.most_bytes > 0 else NO_LIMIT
            try:
                part = self.sweeper.answer(request.as_of, pending.ranges, most_bytes=limit)
            except HistoryRemovedError as error:
                self._reply(request, [b""], refused=str(error))
            else:
                if part is None:
                    continue
                blocks = list(replay.blocks(part.tuples))
                self._reply(request, blocks, covered=part.covered, upto_ms=part.upto_ms)
            self.requests.done(pending)
            answered = True
            if monotonic() > until_s:
                break
        return answered

    def _reply(
        self,
        request: Request,
        blocks: Sequence[bytes],
        *,
        covered: int = ALL,
        upto_ms: int = ALL_MS,
        refused: str | None = None,
    ) -> None:
        topic, answer = request.reply_topic, secrets.randbits(62)
        schema_id = self.shared.registry.register(f"{topic}-value", replay.REPLY_SCHEMA)
        for number, block in enumerate(blocks):
            reply = Reply(
                requester=request.requester,
                number=request.number,
                answer=answer,
                block=number,
                blocks=len(blocks),
                refused=refused,
                tuples=block,
                covered=covered,
                upto_ms=upto_ms,
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


class LocalSweepers:
    """Answers replay requests from the sweepers of the same process.

    Args:
        sweepers: By name of the connection point and by partition.
        partition: The partition of the requesting task.
    """

    def __init__(
        self, sweepers: Mapping[str, Mapping[int, Sweeper]], *, partition: int = 0
    ) -> None:
        self.sweepers, self.partition, self.foreign = sweepers, partition, ForeignRecords()

    def fetch(
        self, queries: Sequence[ReplayQuery], *, task: str, attempt: int, epoch: int
    ) -> Fetch:
        """Yield until all answers have arrived, then return what no query has taken, in order."""
        addressed = [
            list(self.sweepers[query.arc].values())
            if query.everywhere
            else [self.sweepers[query.arc][self.partition]]
            for query in queries
        ]
        limit, turn_s = part_bytes(sum(map(len, addressed))), monotonic()
        answers = []
        for query, sweepers in zip(queries, addressed, strict=True):
            gathered = [Gathered(query, sweeper.arc) for sweeper in sweepers]
            for each, sweeper in zip(gathered, sweepers, strict=True):
                while not each.is_whole:
                    try:
                        part = sweeper.answer(query.as_of, each.left, most_bytes=limit)
                    except HistoryRemovedError as error:
                        raise ReplayRefusedError(
                            f"the replay request of task {task} to arc {query.arc!r} was refused: "
                            f"{error}"
                        ) from error
                    if part is None:
                        yield sweeper.follow()
                        continue
                    each.add(part.tuples, part.covered, part.upto_ms)
                    if monotonic() > turn_s + TURN_S:
                        yield True
                        turn_s = monotonic()
            answers.append(pl.concat(each.answer for each in gathered))
        return answers
