"""The reports of a job: one task for each partition, all written in one transaction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from errata.processors.tasks import lost_records
from errata.processors.tasks.attempt import commit_reports
from errata.processors.tasks.lost_records import Loss, LostRecordsError
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import NEVER, CountKey, Report
from errata.processors.wire.task_id import TaskId
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.job import Job
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
        resume: By partition of the input, where the next one begins.
        ends: By partition of the arc, the offset behind the last record.
        counts: Running totals to add.
        refused: Those of each partition to add: the dead letters that its tuples became.
    """

    batch: Batch
    resume: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
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
                parse_resume(row.resume),
                row.ends,
                row.counts,
                row.refused,
            )
            for row in rows
        ]
        return merge_results(parts)


def parse_resume(text: str) -> dict[int, int]:
    """Return offsets by partition.

    Example:
        >>> parse_resume("0:17,1:4,")
        {0: 17, 1: 4}
    """
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return {int(partition): int(offset) for partition, offset in pairs}


def merge_results(parts: Sequence[BatchResult]) -> BatchResult:
    """Return what several parts of a batch have written."""
    ends, counts, resume = dict[int, int](), Counter[str](), dict[int, int]()
    refused = defaultdict[int, Counter[str]](Counter)
    for part in parts:
        resume |= part.resume
        counts.update(part.counts)
        for partition, end in part.ends.items():
            ends[partition] = max(end, ends.get(partition, 0))
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
        for number in range(len(job.keys)):
            cluster.transactions(job.writer_id(number)).close()
            yield True
        self.tasks = [
            JobTask(
                self.shared,
                TaskId.parse(job.task(p)),
                outputs=job.scope.outputs,
                transactions=self.transactions,
            )
            for p in range(job.partition_count)
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
        view, arc = self.shared.view, self.job.input
        taken = batch.epoch if batch.is_whole else min(task.report.done for task in self.tasks)
        return any(taken < view.rebuilt(arc, task.partition) for task in self.tasks)

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
        plan, batch, old, partition = self.job.plan, result.batch, task.report, task.partition
        source = TopicPartition(plan.deployment.topic(self.job.input), partition)
        ends, counts = dict(old.ends), Counter(old.counts)
        settled_ms = old.settled_ms
        if partition in result.ends:
            place = TopicPartition(plan.deployment.topic(self.job.name), partition)
            ends[place] = result.ends[partition], batch.epoch
        counts.update(result.refused.get(partition, {}))
        if partition == 0:
            counts.update(
                {str(CountKey(what, self.job.name)): n for what, n in result.counts.items()}
            )
            settled_ms = max(batch.settled, old.settled_ms)
        return replace(
            old,
            done=batch.epoch,
            watermark=batch.wm,
            closes=NEVER,  # Spark knows which of its windows are open
            committed={**old.committed, old.attempt: batch.epoch},
            ends=ends,
            resume={source: result.resume.get(partition, old.resume.get(source, 0))},
            counts=dict(counts),
            settled_ms=settled_ms,
        )

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        if self.transactions is not None:
            self.transactions.close()
