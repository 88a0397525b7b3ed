"""The loop that all tasks share; one run of it is one attempt (``docs/protocol.md``).

A task is a generator that its process advances step by step. At every ``yield`` other tasks may
run, and the process may die. The task's progress is in its report, which is committed in the same
transaction as the work; a new attempt resumes from it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TypeVar

from errata.processors.arcs.partitioner import Emission
from errata.processors.reports.validation import InvalidReport
from errata.processors.tasks import lost_records
from errata.processors.tasks.attempt import Attempt, RecordsByTopic
from errata.processors.tasks.compaction import CompactionGuard
from errata.processors.tasks.lost_records import Loss, LostRecordsError
from errata.processors.tasks.reading_again import ReadingAgain
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.trimming import Trimmer
from errata.processors.wire.report import COUNTED, FOR_ROOM, PENDING, Note, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas.errors import ErrataError
from errata.topics.cluster import (
    DoubtfulCommitError,
    FencedError,
    TopicPartition,
    Transactions,
)

log = logging.getLogger("errata")

T = TypeVar("T")

RETRY_S = 5.0
"""Time after which a waiting task tries again, in s: for a registry's answer, or for disk space."""


class WrongPlanError(ErrataError):
    """A task was started with another plan than the one that is deployed."""


class Task:
    """One task; each run of its loop is an attempt.

    Args:
        shared: State shared by the tasks of the process.
        task: Its id; ``<network>.<task>`` is also its transactional id.
        outputs: The arcs that it writes.
    """

    def __init__(self, shared: Shared, task: TaskId, *, outputs: tuple[str, ...]) -> None:
        self.shared, self.id, self.outputs = shared, task, outputs
        self.name = str(task)
        self.cluster, self.plan, self.view = shared.cluster, shared.plan, shared.view
        self.partition = task.partition
        self.attempt = Attempt(shared, task)
        self.compaction = CompactionGuard(self.attempt, outputs)
        self.trimmer = Trimmer(self.compaction, self.name)
        self.stays_open = lost_records.StaysOpen()
        self.started = False
        self.again = ReadingAgain()
        self.waits_for = ""
        """The fault that it waits for others to repair; "" if none."""
        self._waits = 0
        self._retry_s = 0.0
        self._overridden: InvalidReport | None = None
        self._checked: Report | None = None
        self._claimed: int | None = None
        """The attempt that this process has claimed last; it may not know whether it has got it.
        None: none yet."""
        self.restored_from = 0
        """Lost records are written again in this epoch or later: no reader has passed it yet."""
        self.plan_name = self.plan.fingerprint
        self.accepted = {"", self.plan_name}

    @property
    def report(self) -> Report:
        """The last report that it committed."""
        return self.attempt.report

    # ---------------------------------------------------------------- an attempt

    def steps(self) -> Generator[bool, None, None]:
        """Run one attempt until it fails; yields whether there was work.

        Raises:
            FencedError: If a newer attempt has taken over; this one must end.
            DoubtfulCommitError: If the outcome of a commit is not known: start a new attempt.
        """
        self.started = False
        try:
            yield from self._begin_or_retry()
            self.started = True
            yield False
            while True:
                yield from self._override_forged()
                yield from self.check_ends()
                yield from self._tell()
                self.trimmer.trim(now_ms=time.time_ns() // 1_000_000)
                yield from self.step()
        finally:
            self.attempt.is_committing = False
            self.close()

    def close(self) -> None:
        """Close all connections."""
        if self.attempt.transactions is not None:
            self.attempt.transactions.close()

    def _begin_or_retry(self) -> Iterator[bool]:
        """Begin this attempt, unless the end of a transaction of its own is lost meanwhile.

        That hides what it waits for, and only the next attempt ends it.

        Raises:
            DoubtfulCommitError: If one stays open.
        """
        begin, looked_s = self._begin(), monotonic()
        try:
            for is_busy in begin:
                yield is_busy
                if is_busy or monotonic() < looked_s + lost_records.CHECKED_S:
                    continue
                looked_s = monotonic()
                written = self.view.validator.written(self.name)
                if self.stays_open.new((yield from self._hidden(written))):
                    raise DoubtfulCommitError(
                        f"task {self.name}: a transaction hides what its start waits for, and does "
                        "not end; start a new attempt"
                    )
        finally:
            begin.close()

    def _begin(self) -> Generator[bool, None, None]:
        """Begin this attempt.

        The steps, in this order:

        0. If this process has been at work before, see that no other one has taken over since.
        1. Open the transactions: the older attempt is fenced, and its open transaction is aborted.
        2. Read every report written by then, among them the older attempt's last one.
        3. Check that the older attempt worked by this plan, end its transactions whose ends the
           brokers have lost, and check that they have its records (`lost_records`).
        4. Claim the next attempt number, by committing a report with it.
        5. Rewrite the records that compaction could drop (`CompactionGuard`).
        6. Rebuild the state in memory (`start`).
        """
        yield from self._require_current()
        self.attempt.transactions = yield from self.shared.run(self.connect)
        self.trimmer = Trimmer(self.compaction, self.name)
        yield from self._read_hidden_reports()
        old = yield from self._last_report()
        self.compaction.tombstones.clear()
        if not self.accepts(old.plan):
            raise WrongPlanError(
                f"task {self.name}: was run by plan {old.plan}, this is plan {self.plan_name}; run "
                "it with the network that was deployed, or give the changed network another name"
            )
        yield from self._end_hidden()
        found = yield from lost_records.find(self.shared, old)
        lost, still_hidden = lost_records.sorted_out(found)
        if lost:
            self.require_restorable(lost)
            log.error("task %s: %s", self.name, lost_records.text(lost))
            old = lost_records.claim(old, lost)
        self.attempt.found(old, hidden=still_hidden)
        resume = old.resume if old.attempt else self.first_positions()
        claimed = replace(
            old,
            attempt=old.attempt + 1,
            plan=self.plan_name,
            resume=resume,
            process=self.shared.number(),
            again=None,
        )
        self.attempt.open().begin()
        self._claimed = claimed.attempt
        try:
            yield from self.attempt.finish(claimed)
        except FencedError:
            self._claimed = old.attempt  # another process may claim the same number
            raise
        if self.has_lost_records:
            yield from self.read_reports()
            self.restored_from = self.view.newest_epoch() + 1
        yield from self.compaction.rewrite_shadowed()
        yield from self.start()

    def accepts(self, plan_name: str) -> bool:
        """Whether a task whose last report has this `plan` may be run."""
        return plan_name in self.accepted

    def _last_report(self) -> Generator[bool, None, Report]:
        """Return the report of the older attempt.

        The newest one that claims records beyond the end of a log does not count for other tasks.
        It is this task's own if the note that was committed with it says so.

        Raises:
            LostRecordsError: If the progress topic lacks it.
        """
        places = self.view.validator.read(self.name)
        read = partial(self.cluster.note, self.attempt.group, places)
        note = Note.parse((yield from self.shared.run(read)) if places else "")
        if note.is_newer(self.view.of(self.name), self.plan.deployment.id):
            yield from self._read_hidden_reports()  # of a newer attempt, which began meanwhile
        known, unproven = self.view.of(self.name), self.view.unproven.get(self.name, ())
        newest = max((r.attempt for r in unproven if r.attempt < COUNTED), default=0)
        for report in reversed(unproven):
            claims = self.view.validator.claims_too_much(report, before=known)
            if claims and note.is_of(report):
                return replace(report, attempt=max(report.attempt, newest))
        if note.is_newer(known, self.plan.deployment.id):
            raise LostRecordsError(
                f"task {self.name}: the brokers have lost its last report, of attempt "
                f"{note.attempt} and epoch {note.done}: {self.view.source.topic} has it up to "
                f"attempt {known.attempt} and epoch {known.done}; restore that topic, or run "
                "`errata reset` and start the network again"
            )
        return known

    def check_ends(self) -> Iterator[bool]:
        """Check now and then that the logs still have the records of this attempt.

        While the task writes nothing, others may write in the place of what is lost: the log is
        long enough again, but it has other records.

        Raises:
            DoubtfulCommitError: If one ends before, or has lost the end of a transaction: a new
                attempt writes the records again.
        """
        if monotonic() < self.attempt.checked_s + lost_records.CHECKED_S:
            return
        is_idle, self._checked = self.report is self._checked, self.report
        self.attempt.checked_s = monotonic()
        if is_idle:
            found = yield from lost_records.find(self.shared, self.report)
            lost, _ = lost_records.sorted_out(found)
        else:
            lost = yield from lost_records.cut(self.shared, self.report)
        if not lost:
            lost = yield from self._end_open()
        if lost:
            raise DoubtfulCommitError(f"task {self.name}: {lost_records.text(lost)}")

    def checking(self, reading: Generator[bool, None, T]) -> Generator[bool, None, T]:
        """Run steps that read topics, outside of a transaction; check the ends while they wait.

        What they wait for may be hidden by a transaction of this task, whose end is lost. It also
        tells how far they have come.

        Raises:
            DoubtfulCommitError: As of `check_ends`.
        """
        try:
            while True:
                is_busy = next(reading)
                yield is_busy
                yield from self.tell_reading()
                if not is_busy:
                    yield from self.check_ends()
        except StopIteration as stop:
            found: T = stop.value
            return found
        finally:
            reading.close()

    def _end_hidden(self) -> Iterator[bool]:
        """End transactions of older attempts whose ends the brokers have lost.

        A broker that starts may forget to write the ends of transactions that it says are complete.
        """
        hidden = yield from self._hidden(self.view.validator.written(self.name))
        yield False
        if hidden:
            lost_records.commit_ends(self.attempt.open(), hidden, key=self.name.encode())
            yield True

    def _hidden(
        self, places: Collection[TopicPartition]
    ) -> Generator[bool, None, dict[TopicPartition, int]]:
        return self.shared.run(partial(lost_records.hidden, self.cluster, places))

    def _end_open(self) -> Generator[bool, None, list[Loss]]:
        """End transactions of this task that stay open; return where some were.

        Whose a transaction is can't be seen: where one stays open, the task ends one of its own.
        """
        places = {self.view.source, *self.view.validator.written(self.name)}
        late = self.stays_open.new((yield from self._hidden(places)))
        if not late:
            return []
        self.attempt.open().begin()
        written = [loss.place for loss in late if loss.place != self.view.source]
        lost_records.produce_ends(self.attempt.open(), written, key=self.name.encode())
        yield from self.attempt.finish(self.report)
        left = yield from self._hidden(places)
        return [loss for loss in late if left.get(loss.place) != loss.log_end]

    def require_restorable(self, lost: Sequence[Loss]) -> None:
        """Check that this task can write lost records again.

        Raises:
            LostRecordsError: If it can't.
        """

    @property
    def has_lost_records(self) -> bool:
        """Whether it has to write lost records again, in its next epoch."""
        return self.report.rebuilt == PENDING

    def _override_forged(self) -> Iterator[bool]:
        """Report again, with an attempt above all others, after a forged report for this task.

        Otherwise the forged report would stay the newest record of its key for as long as the task
        is idle. If it claims offsets that do not exist yet, it would look valid once others have
        written that far. One that claims an attempt beyond all that can be is never valid.
        """
        forged = self.view.invalid.get(self.name)
        if forged is None or forged is self._overridden or forged.report == self.report:
            return
        self._overridden = forged
        claimed = forged.report.attempt if forged.report is not None else 0
        attempt = max(self.report.attempt, claimed if claimed < COUNTED else 0) + 1
        self._claimed = attempt
        self.attempt.open().begin()
        yield from self.attempt.finish(replace(self.report, attempt=attempt))

    def wait(self, reason: str, what: int = FOR_ROOM) -> None:
        """Wait until others repair a fault; an empty reason ends the waiting.

        Args:
            reason: For people.
            what: As in `Report.waits`.
        """
        self.waits_for, self._retry_s = reason, monotonic() + RETRY_S
        self._waits = what if reason else 0

    def _tell(self) -> Iterator[bool]:
        """Report that it waits, or that it does no longer, or no longer reads topics again.

        Nothing else would, while it waits.
        """
        if self._waits != self.report.waits or self.report.again is not None:
            self.attempt.open().begin()
            yield from self.attempt.finish(replace(self.report, waits=self._waits, again=None))

    def tell_reading(self) -> Iterator[bool]:
        """Log and report now and then how far it has come, if it reads topics again.

        Outside of a transaction.
        """
        if self.again.is_due():
            log.warning("task %s %s", self.name, self.again)
            self.attempt.open().begin()
            yield from self.attempt.finish(replace(self.report, again=self.again.records))

    @property
    def is_waiting(self) -> bool:
        """Whether it waits and must not try again yet."""
        return bool(self.waits_for) and monotonic() < self._retry_s

    def connect(self) -> Transactions:
        """Return the transactions of this attempt; older attempts are fenced."""
        return self.cluster.transactions(f"{self.plan.network}.{self.name}")

    @property
    def is_superseded(self) -> bool:
        """Whether a newer attempt of the task has reported, of a process that began later.

        One that began before takes work back if it has stood still, and was taken for dead: the
        later one then begins a new attempt. If each of the two gave up what the other one has
        claimed, both would end.
        """
        newest = self.view.of(self.name)
        is_newer = newest.attempt > max(self.report.attempt, self._claimed or 0)
        return is_newer and newest.process >= self.shared.process

    def _require_current(self) -> Iterator[bool]:
        """Check that no other process has taken over, since a new attempt would fence it.

        Only reports that can be read at once count: this must not wait for open transactions.

        Raises:
            FencedError: If another one has.
        """
        if self._claimed is None:
            return
        source = self.view.source
        yield from self._read_reports_to(self.cluster.stable_ends([source])[source])
        if self.is_superseded:
            raise FencedError(f"task {self.name}: a newer attempt has taken over; end this one")

    def read_reports(self) -> Iterator[bool]:
        """Read all reports written before the call."""
        return self._read_reports_to(self.cluster.end(self.view.source))

    def _read_reports_to(self, end: int) -> Iterator[bool]:
        yield False
        self.view.poll()
        while not self.view.has_read_to(end):
            yield False
            self.view.poll()

    def _read_hidden_reports(self) -> Iterator[bool]:
        """Read all reports written before the call, also those that a transaction hides.

        If it stays open, the brokers may have lost its end, and it may be this task's.
        """
        until_s = monotonic() + lost_records.HIDDEN_S
        for busy in self.read_reports():
            if monotonic() >= until_s:
                until_s = math.inf
                lost_records.uncover_reports(self.shared, self.attempt.open())
            yield busy

    def first_positions(self) -> dict[TopicPartition, int]:
        """Return where a first attempt begins to read, for partitions not read from the start."""
        return {}

    def start(self) -> Iterator[bool]:
        """Rebuild the state in memory."""
        raise NotImplementedError

    def step(self) -> Iterator[bool]:
        """Do the work that is due; must yield at least once."""
        raise NotImplementedError

    # ---------------------------------------------------------------- output

    def commit(
        self,
        emissions: list[Emission],
        report: Report,
        *,
        records: RecordsByTopic | None = None,
    ) -> Iterator[bool]:
        """Commit the results of some epochs; see `Attempt.commit`.

        Args:
            emissions: Revisions in the order of their epochs.
            report: The report before `ends` and `committed` are brought up to date.
            records: By topic, further keys and values for its partition 0.
        """
        written = yield from self.attempt.commit(emissions, report, records=records or {})
        for each in written:
            self.compaction.committed(each.emission, each.keys)
