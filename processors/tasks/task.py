"""The loop that all tasks share: one life of it is one attempt (``docs/protocol.md``).

A task is a generator that is advanced step by step by its process: every ``yield`` gives way, and
is a place where the process may die. What it has done is in its report, committed in the
transaction of the work itself; a new life goes on from there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from time import monotonic

from errata.processors.arcs.partitioner import Emission
from errata.processors.reports.validation import InvalidReport
from errata.processors.tasks.attempt import Attempt, RecordsByTopic
from errata.processors.tasks.compaction import CompactionGuard
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import Report
from errata.processors.wire.task_id import TaskId
from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition, Transactions

ASK_AGAIN_S = 5.0
"""After so long a task tries again what it waits for: a registry's answer, or room on its disk."""


class WrongPlanError(ErrataError):
    """A task was started with another plan than the one that is deployed."""


class Task:
    """One task; `life` is one attempt of it.

    Args:
        shared: What its process shares.
        task: Which one; its text is also its transactional id, with the network's name before it.
        outputs: The arcs it writes.
    """

    def __init__(self, shared: Shared, task: TaskId, *, outputs: tuple[str, ...]) -> None:
        self.shared, self.id, self.outputs = shared, task, outputs
        self.name = str(task)
        self.cluster, self.plan, self.view = shared.cluster, shared.plan, shared.view
        self.partition = task.partition
        self.attempt = Attempt(shared, task)
        self.compaction = CompactionGuard(self.attempt, outputs)
        self.started = False
        self.waits = ""
        """What it waits for that others have to mend; "" if nothing."""
        self._again_s = 0.0
        self._refuted: InvalidReport | None = None
        self.plan_name = self.plan.fingerprint
        self.accepted = {"", self.plan_name}

    @property
    def report(self) -> Report:
        """The report that it committed last."""
        return self.attempt.report

    # ---------------------------------------------------------------- a life

    def life(self) -> Generator[bool, None, None]:
        """Run until it fails; yields whether it had something to do.

        Raises:
            FencedError: If a newer life has taken over; this one must end.
            DoubtfulCommitError: If the outcome of a commit is not known: start a new life.
        """
        self.started = False
        try:
            yield from self._begin()
            self.started = True
            yield False
            while True:
                yield from self._refute()
                yield from self.step()
        finally:
            self.attempt.is_committing = False
            self.close()

    def close(self) -> None:
        """Give all connections back."""
        if self.attempt.transactions is not None:
            self.attempt.transactions.close()

    def _begin(self) -> Iterator[bool]:
        """Begin this life.

        The steps, in this order:

        1. Open the transactions: the older life is fenced, and its open transaction is aborted.
        2. Read every report that was there by then, the older life's last one among them.
        3. Check that this is the plan that the older life worked by.
        4. Claim the next attempt number, by committing a report with it.
        5. Write again the records that compaction could drop (`CompactionGuard`).
        6. Rebuild what was in memory (`start`).
        """
        self.attempt.transactions = self.connect()
        yield from self.read_reports()
        old = self.view.of(self.name)
        self.compaction.tombstones.clear()
        if old.plan not in self.accepted:
            raise WrongPlanError(
                f"task {self.name}: was run by plan {old.plan}, this is plan {self.plan_name}; run "
                "it with the network that was deployed, or give the changed network another name"
            )
        resume = old.resume if old.attempt else self.first_positions()
        claimed = replace(old, attempt=old.attempt + 1, plan=self.plan_name, resume=resume)
        self.attempt.open().begin()
        yield from self.attempt.finish(claimed)
        yield from self.compaction.rewrite_shadowed()
        yield from self.start()

    def _refute(self) -> Iterator[bool]:
        """Report again, with an attempt above all others, after a forged report for this task.

        Otherwise the forged report would stay the newest record of its key for as long as the task
        is idle. If it claims offsets that do not exist yet, it would look valid once others have
        written that far.
        """
        forged = self.view.invalid.get(self.name)
        if forged is None or forged is self._refuted:
            return
        self._refuted = forged
        claimed = forged.report.attempt if forged.report is not None else 0
        attempt = max(self.report.attempt, claimed) + 1
        self.attempt.open().begin()
        yield from self.attempt.finish(replace(self.report, attempt=attempt))

    def wait(self, why: str) -> None:
        """Wait for what others have to repair; an empty reason ends the waiting."""
        self.waits, self._again_s = why, monotonic() + ASK_AGAIN_S

    @property
    def is_waiting(self) -> bool:
        """Whether it waits, and it is too early to try again."""
        return bool(self.waits) and monotonic() < self._again_s

    def connect(self) -> Transactions:
        """Return the transactions of this life; those of older ones are fenced."""
        return self.cluster.transactions(f"{self.plan.network}.{self.name}")

    @property
    def is_superseded(self) -> bool:
        """Whether a newer life of it is known to have begun."""
        return self.view.of(self.name).attempt > self.report.attempt

    def read_reports(self) -> Iterator[bool]:
        """Read all reports that were there when it was called."""
        end = self.cluster.end(self.view.source)
        yield False
        self.view.poll()
        while not self.view.has_read_to(end):
            yield False
            self.view.poll()

    def first_positions(self) -> dict[TopicPartition, int]:
        """Return where a first life begins to read, where that is not the start of a log."""
        return {}

    def start(self) -> Iterator[bool]:
        """Rebuild what was in memory."""
        raise NotImplementedError

    def step(self) -> Iterator[bool]:
        """Do what there is to do now; must yield at least once."""
        raise NotImplementedError

    # ---------------------------------------------------------------- what it writes

    def commit(
        self,
        emissions: list[Emission],
        report: Report,
        *,
        records: RecordsByTopic | None = None,
    ) -> Iterator[bool]:
        """Commit what some epochs gave; see `Attempt.commit`.

        Args:
            emissions: Revisions in the order of their epochs.
            report: The report before `ends` and `committed` are brought up to date.
            records: By topic, further keys and values for its partition 0.
        """
        keys = yield from self.attempt.commit(emissions, report, records=records or {})
        for emission, own in zip(emissions, keys, strict=True):
            self.compaction.committed(emission, own)
