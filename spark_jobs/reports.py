"""The reports of a job: one task for each partition, all written in one transaction."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from errata.processors.ingest.stamping_task import StampingTask, believed, first_positions
from errata.processors.tasks import lost_records
from errata.processors.tasks.attempt import commit_reports
from errata.processors.tasks.elapsed import wall_clock_ms
from errata.processors.tasks.lost_records import Loss, LostRecordsError
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import FOREVER, IDLE, NEVER, SETTLES, Report
from errata.processors.wire.task_id import TaskId
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.reading import NOTHING
from errata.topics.cluster import TopicPartition, Transactions


class DriversTask(Task):
    """One partition of a job: executors write its records, the driver writes its reports.

    Args:
        job: The job.
        transactions: The transactions of the driver, which all its tasks share.
    """

    job: Job
    driver: Transactions

    def connect(self) -> Transactions:
        """Return the driver's transactions."""
        return self.driver

    def start(self) -> Iterator[bool]:
        """Do nothing: no state is in memory."""
        yield True

    def require_restorable(self, lost: Sequence[Loss]) -> None:
        """Refuse: what a job has lost is not written again.

        Raises:
            LostRecordsError: Always.
        """
        raise LostRecordsError(
            f"{lost_records.text(lost)}; a job on Spark can't write them again: restore the topic, "
            "or run `errata reset` and start the network again"
        )

    def begin(self) -> Iterator[bool]:
        """Read what the older attempt reported, and claim an attempt number."""
        yield from self._begin()
        self.started = True

    def next_report(self, result: BatchResult) -> Report:
        """Return the report of a batch."""
        job, old, batch = self.job, self.report, result.batch
        ends, counts = dict(old.ends), Counter(old.counts)
        for place, end in result.ends.items():
            if job.writes(place.partition) == self.partition:
                ends[job.topic_partition(place)] = end, batch.epoch
        counts.update(result.refused.get(self.partition, {}))
        if self.partition == 0:
            counts.update(result.counts)
        return replace(
            old,
            done=batch.epoch,
            committed={**old.committed, old.attempt: batch.epoch},
            ends=ends,
            counts=dict(counts),
        )


class JobTask(DriversTask):
    """One partition of a job that runs boxes.

    Args:
        shared: What the process shares.
        job: The job.
        partition: The partition.
        transactions: The transactions of the driver.
    """

    def __init__(
        self, shared: Shared, job: Job, *, partition: int, transactions: Transactions
    ) -> None:
        counts = job.plan.placement.partitions
        outputs = tuple(arc for arc in job.outputs if partition < counts[arc])
        super().__init__(shared, TaskId.parse(job.task(partition)), outputs=outputs)
        self.job, self.driver = job, transactions

    def next_report(self, result: BatchResult) -> Report:
        """Return the report of a batch."""
        old, batch, resume = self.report, result.batch, dict[TopicPartition, int]()
        for place in (place for place in self.job.places if place.partition == self.partition):
            at = self.job.topic_partition(place)
            resume[at] = result.resume.get(place, old.resume.get(at, 0))
        is_first, report = self.partition == 0, super().next_report(result)
        counts = Counter(report.counts)
        if batch.is_whole and old.done > NOTHING:
            counts["rebuilt"] += 1
        if batch.settles:
            counts[SETTLES] = batch.settles
        return replace(
            report,
            counts=dict(counts),
            watermark=batch.wm,
            closes=NEVER,  # Spark knows which of its windows are open
            resume=resume,
            settled_ms=max(batch.settled, old.settled_ms) if is_first else old.settled_ms,
        )


class SourceTask(DriversTask, StampingTask):
    """One partition of a source's topic, which a job ingests.

    Args:
        shared: What the process shares.
        job: The job.
        partition: The partition.
        transactions: The transactions of the driver.
        clock_ms: The wall clock.
    """

    def __init__(
        self,
        shared: Shared,
        job: Job,
        *,
        partition: int,
        transactions: Transactions,
        clock_ms: Callable[[], int],
    ) -> None:
        assert job.source is not None
        StampingTask.__init__(
            self,
            shared,
            job.source,
            partition=partition,
            outputs=job.outputs,
            clock_ms=clock_ms,
        )
        self.job, self.driver = job, transactions
        self.place = job.topic_partition(job.places[partition])

    def first_positions(self) -> dict[TopicPartition, int]:
        """Return where a first attempt begins to read."""
        return first_positions(self.source, self.place, self.cluster)

    def next_report(self, result: BatchResult) -> Report:
        """Return the report of a batch; that of the first task tells where all are read on."""
        old, batch, view = self.report, result.batch, self.view
        read = {self.job.topic_partition(place): end for place, end in result.resume.items()}
        told = {at: end for at, end in read.items() if self.partition == 0 or at == self.place}
        resume = {**old.resume, **told}
        lowered_ms = dict(batch.lowered).get(self.partition)
        if lowered_ms is not None:
            old = replace(old, watermark=lowered_ms, believed=None, lowered=batch.epoch)
        newest_ms = max(old.watermark, result.newest.get(self.job.places[self.partition], NEVER))
        last = old.watermarks[-1][1] if old.watermarks else NEVER
        end = view.ends.get(self.arc.name, {}).get(self.partition)
        has_ended = end is not None and resume.get(self.place, 0) >= end
        is_idle = self.partition in batch.idle or (last == IDLE and self.place not in read)
        watermark = IDLE if is_idle else newest_ms
        if has_ended or last == FOREVER:
            watermark = FOREVER
        pairs, floors = self._pairs(batch.epoch, watermark, falls=lowered_ms is not None)
        return replace(
            super().next_report(result),
            watermark=newest_ms,
            watermarks=pairs,
            floors=floors,
            resume=resume,
            believed=believed(newest_ms, before_ms=old.trusted_ms, now_ms=self.clock_ms()),
            lowered=old.lowered,
        )


@dataclass(frozen=True)
class BatchResult:
    """What a part of a batch has written.

    Args:
        batch: The batch.
        resume: By partition of an input, where the next one begins.
        newest: By partition of a source's topic, its newest event time, less lateness.
        ends: By partition of an arc, the offset behind the last record.
        counts: Running totals to add, by `CountKey`.
        refused: Those of each partition to add: the dead letters that its tuples became.
    """

    batch: Batch
    resume: Mapping[Place, int] = field(default_factory=dict)
    newest: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Any]) -> BatchResult | None:
        """Return the content of `writer.WRITTEN` rows; None if there are none."""
        if not rows:
            return None
        parts = [
            cls(
                Batch.of(row.batch),
                *parse_read(row.read),
                parse_places(row.ends),
                row.counts,
                row.refused,
            )
            for row in rows
        ]
        return merge_results(parts)


def parse_places(text: str) -> dict[Place, int]:
    """Return offsets by partition of an arc.

    Example:
        >>> parse_places('{"trades:1": 4}')
        {Place(arc='trades', partition=1): 4}
    """
    return {Place.parse(place): offset for place, offset in json.loads(text).items()}


def parse_read(text: str) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return how far partitions are read: where each is read on, and its newest event time.

    Example:
        >>> parse_read('{"ingest.trades:1": [4, 70]}')[1]
        {Place(arc='ingest.trades', partition=1): 70}
    """
    read = {Place.parse(place): told for place, told in json.loads(text).items()}
    return {place: end for place, (end, _) in read.items()}, {
        place: newest for place, (_, newest) in read.items()
    }


def merge_results(parts: Sequence[BatchResult]) -> BatchResult:
    """Return what several parts of a batch have written."""
    ends, counts = dict[Place, int](), Counter[str]()
    resume, newest = dict[Place, int](), dict[Place, int]()
    refused = defaultdict[int, Counter[str]](Counter)
    for part in parts:
        resume |= part.resume
        newest |= part.newest
        counts.update(part.counts)
        for place, end in part.ends.items():
            ends[place] = max(end, ends.get(place, 0))
        for partition, tally in part.refused.items():
            refused[partition].update(tally)
    return BatchResult(parts[0].batch, resume, newest, ends, counts, refused)


class Reports:
    """Writes the reports of one attempt of a job.

    Args:
        shared: What the process shares.
        job: The job; `begin` gives it the numbers of this attempt.
        clock_ms: The wall clock.
    """

    def __init__(
        self, shared: Shared, job: Job, *, clock_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.shared, self.job, self.clock_ms = shared, job, clock_ms
        self.tasks: list[JobTask | SourceTask] = []
        self.transactions: Transactions | None = None

    def begin(self) -> Iterator[bool]:
        """Fence the writers of an older attempt, and claim attempt numbers."""
        job, cluster = self.job, self.shared.cluster
        self.transactions = cluster.transactions(job.transactional_id)
        for number in range(job.writers):
            cluster.transactions(job.writer_id(number)).close()
            yield True
        self.tasks = [
            self._task(partition, self.transactions) for partition in range(job.task_count)
        ]
        for task in self.tasks:
            yield from task.begin()
        self.job = replace(
            job,
            attempts=tuple(task.report.attempt for task in self.tasks),
            done=tuple(task.report.done for task in self.tasks),
        )

    def _task(self, partition: int, transactions: Transactions) -> JobTask | SourceTask:
        if self.job.source is None:
            return JobTask(self.shared, self.job, partition=partition, transactions=transactions)
        return SourceTask(
            self.shared,
            self.job,
            partition=partition,
            transactions=transactions,
            clock_ms=self.clock_ms,
        )

    def has_lost_input(self, batch: Batch) -> bool:
        """Whether a batch lacks input that was lost and is written again, or is still to be.

        The states have to be rebuilt then, by a batch that takes the whole input.
        """
        if self.job.source is not None:
            return False
        view = self.shared.view
        taken = batch.epoch if batch.is_whole else min(task.report.done for task in self.tasks)
        return any(taken < view.rebuilt(*place) for place in self.job.places)

    def commit(self, result: BatchResult) -> Iterator[bool]:
        """Report a batch whose records have all been acknowledged.

        Executors have produced revisions and dead letters in transactions of their own (the records
        of `Attempt.commit`). What is left of a commit happens here, in the driver's transaction.
        """
        # A commit that broke off may have reported the batch for all tasks, or for the first ones.
        tasks = [task for task in self.tasks if task.report.done < result.batch.epoch]
        if self.job.source is not None:
            # Its first task tells what a batch has taken and written: no other may be missing then.
            tasks.reverse()
        if not tasks:
            return
        assert self.transactions is not None
        reports = [task.next_report(result) for task in tasks]
        self.transactions.begin()
        attempts = [task.attempt for task in tasks]
        pairs = list(zip(attempts, reports, strict=True))
        yield from commit_reports(self.transactions, pairs, sends_offsets=False)
        for task in self.tasks:
            task.trimmer.trim(now_ms=self.clock_ms())

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        if self.transactions is not None:
            self.transactions.close()
