"""The reports of a job: one task for each partition, all written in one transaction."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from errata.processors.tasks import lost_records
from errata.processors.tasks.attempt import commit_reports
from errata.processors.tasks.lost_records import Loss, LostRecordsError
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import NEVER, Report
from errata.processors.wire.task_id import TaskId
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.topics.cluster import TopicPartition, Transactions


class JobTask(Task):
    """One partition of a job: executors write its records, the driver writes its reports.

    Args:
        shared: What the process shares.
        task: The id of the task.
        outputs: The job's arc.
        transactions: The transactions of the driver.
    """

    def __init__(
        self, shared: Shared, task: TaskId, *, outputs: tuple[str, ...], transactions: Transactions
    ) -> None:
        super().__init__(shared, task, outputs=outputs)
        self._driver = transactions

    def connect(self) -> Transactions:
        """Return the driver's transactions, which all its tasks share."""
        return self._driver

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


@dataclass(frozen=True)
class BatchResult:
    """What a part of a batch has written.

    Args:
        batch: The batch.
        resume: By partition of an input, where the next one begins.
        ends: By partition of an arc, the offset behind the last record.
        counts: Running totals to add, by `CountKey`.
        refused: Those of each partition to add: the dead letters that its tuples became.
    """

    batch: Batch
    resume: Mapping[Place, int] = field(default_factory=dict)
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
                parse_places(row.resume),
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


def merge_results(parts: Sequence[BatchResult]) -> BatchResult:
    """Return what several parts of a batch have written."""
    ends, counts, resume = dict[Place, int](), Counter[str](), dict[Place, int]()
    refused = defaultdict[int, Counter[str]](Counter)
    for part in parts:
        resume |= part.resume
        counts.update(part.counts)
        for place, end in part.ends.items():
            ends[place] = max(end, ends.get(place, 0))
        for partition, tally in part.refused.items():
            refused[partition].update(tally)
    return BatchResult(parts[0].batch, resume, ends, counts, refused)


class Reports:
    """Writes the reports of one attempt of a job.

    Args:
        shared: What the process shares.
        job: The job; `begin` gives it the numbers of this attempt.
    """

    def __init__(self, shared: Shared, job: Job) -> None:
        self.shared, self.job = shared, job
        self.tasks: list[JobTask] = []
        self.transactions: Transactions | None = None

    def begin(self) -> Iterator[bool]:
        """Fence the writers of an older attempt, and claim attempt numbers."""
        job, cluster = self.job, self.shared.cluster
        self.transactions = cluster.transactions(job.transactional_id)
        for number in range(job.writers):
            cluster.transactions(job.writer_id(number)).close()
            yield True
        self.tasks = [
            JobTask(
                self.shared,
                TaskId.parse(job.task(p)),
                outputs=tuple(a for a in job.outputs if p < job.plan.placement.partitions[a]),
                transactions=self.transactions,
            )
            for p in range(job.task_count)
        ]
        for task in self.tasks:
            yield from task.begin()
        self.job = replace(
            job,
            attempts=tuple(task.report.attempt for task in self.tasks),
            done=tuple(task.report.done for task in self.tasks),
        )

    def has_lost_input(self, batch: Batch) -> bool:
        """Whether a batch lacks input that was lost and is written again, or is still to be.

        The states have to be rebuilt then, by a batch that takes the whole input.
        """
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
        if not tasks:
            return
        assert self.transactions is not None
        reports = [self._next(task, result) for task in tasks]
        self.transactions.begin()
        attempts = [task.attempt for task in tasks]
        pairs = list(zip(attempts, reports, strict=True))
        yield from commit_reports(self.transactions, pairs, sends_offsets=False)

    def _next(self, task: JobTask, result: BatchResult) -> Report:
        """Return a task's report of a batch."""
        deployment, batch, old = self.job.plan.deployment, result.batch, task.report
        ends, resume, counts = dict(old.ends), dict[TopicPartition, int](), Counter(old.counts)
        settled_ms = old.settled_ms
        for place in (place for place in self.job.places if place.partition == task.partition):
            at = TopicPartition(deployment.topic(place.arc), task.partition)
            resume[at] = result.resume.get(place, old.resume.get(at, 0))
        for place, end in result.ends.items():
            if place.partition == task.partition:
                ends[TopicPartition(deployment.topic(place.arc), task.partition)] = end, batch.epoch
        counts.update(result.refused.get(task.partition, {}))
        if task.partition == 0:
            counts.update(result.counts)
            settled_ms = max(batch.settled, old.settled_ms)
        return replace(
            old,
            done=batch.epoch,
            watermark=batch.wm,
            closes=NEVER,  # Spark knows which of its windows are open
            committed={**old.committed, old.attempt: batch.epoch},
            ends=ends,
            resume=resume,
            counts=dict(counts),
            settled_ms=settled_ms,
        )

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        if self.transactions is not None:
            self.transactions.close()
