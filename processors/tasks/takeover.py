"""Moves a task from one version of a plan to the next, with the tuples that it wrote.

The number of partitions of an arc never changes in place (``docs/protocol.md#7-the-plan-topic``),
and neither do its fields. The arc gets a new topic instead. Each live tuple is copied there as an
insert of the last epoch of the old version. The task that owns the tuple in the new version writes
it, in an ordinary attempt, and its report covers all copies at once or none. The tuples of an arc
that the old version didn't have are covered the same way: other code writes them, in the name of
this attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.arcs.arc_topic import Meta, history
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.task import Task
from errata.processors.wire.report import Report
from errata.processors.wire.task_id import TaskId
from errata.schemas import revisions as frames
from errata.schemas.fields import Fields
from errata.topics.cluster import TopicPartition, Transactions

ROWS_A_TRANSACTION = 100_000


_MOVES = "moves to "


def mark(plan_name: str) -> str:
    """Return the `plan` field of a task's reports while it is moved to that plan."""
    return _MOVES + plan_name


@dataclass(frozen=True)
class NewArc:
    """An arc that the old version didn't have, still empty.

    Args:
        name: The arc.
        epoch: Last epoch of the old version.
        attempts: By partition, the attempt in whose name it is written.
        watermarks: By aggregate, wm(epoch) of its scope.
    """

    name: str
    epoch: int
    attempts: Mapping[int, int]
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class Filled:
    """Summary of the tuples written to a new arc.

    Args:
        tuples: Their number.
        ends: By partition, the offset after the last of them.
    """

    tuples: int
    ends: Mapping[int, int]


Fill = Callable[[NewArc], Filled]


class Takeover(Task):
    """One attempt of a task, run by the deploying process: it stops the task, or moves it.

    Args:
        shared: State shared by the tasks of the process.
        task: The task.
        outputs: The arcs whose shadowed records are rewritten.
        to_plan: Fingerprint of the plan that it is moved to.
        from_plan: Fingerprint of the plan that it comes from; None: that one does not have the
            task. It may have ended in the switch to an earlier version.
        transactions: Those of all tasks of a job on Spark; None: it opens its own.
    """

    def __init__(
        self,
        shared: Shared,
        task: TaskId,
        *,
        outputs: tuple[str, ...],
        to_plan: str,
        from_plan: str | None,
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(shared, task, outputs=outputs)
        self.plan_name = mark(to_plan)
        self.accepted = {"", from_plan or "", mark(to_plan)}
        self._had_ended, self._transactions = from_plan is None, transactions

    def connect(self) -> Transactions:
        """Return the transactions of this attempt; older attempts are fenced."""
        return super().connect() if self._transactions is None else self._transactions

    def accepts(self, plan_name: str) -> bool:
        """Whether a task whose last report has this `plan` may be taken over."""
        return super().accepts(plan_name) or (self._had_ended and plan_name.startswith(_MOVES))

    def claim(self) -> Iterator[bool]:
        """Fence the running attempt; from here on the task's report says that it is being moved."""
        yield from self._begin()

    def start(self) -> Iterator[bool]:
        """Do nothing: no state is rebuilt."""
        yield False

    def raise_to(self, epoch: int) -> Iterator[bool]:
        """Report all epochs up to this one as done."""
        if self.report.done < epoch:
            yield from self.commit([], replace(self.report, done=epoch))

    def give_back(self, plan_name: str) -> Iterator[bool]:
        """Report that the plan which it comes from runs it again."""
        yield from self.commit([], replace(self.report, plan=plan_name))

    def move(self, copies: dict[str, pl.DataFrame], report: Report, *, to: str) -> Iterator[bool]:
        """Write copies, then the report that covers them.

        Args:
            copies: By arc, inserts with the `partition` of each.
            report: The first one of the new plan; `attempt`, `committed` and `ends` are set here.
            to: Fingerprint of the new plan.
        """
        transactions, ends = self.attempt.open(), dict(report.ends)
        for arc, inserts in copies.items():
            for chunk in inserts.iter_slices(ROWS_A_TRANSACTION):
                transactions.begin()
                self._write(transactions, arc, chunk, report.done)
                written = transactions.flush()
                ends |= {place: (own.stop, report.done) for place, own in written.items()}
                yield True
                transactions.commit()
                yield True
        attempt = self.report.attempt
        committed = dict(self.report.committed)
        if report.done >= 0:
            committed[attempt] = report.done
        transactions.begin()
        yield from self.attempt.finish(
            replace(
                report,
                attempt=attempt,
                plan=to,
                committed=committed,
                ends=ends,
                process=self.report.process,
            )
        )

    def _write(
        self, transactions: Transactions, arc: str, inserts: pl.DataFrame, epoch: int
    ) -> None:
        codec = self.shared.codec(arc)
        meta = Meta(self.name, self.report.attempt, epoch)
        keys, values = codec.encode(inserts, meta)
        partitions = inserts["partition"].to_list()
        transactions.produce(codec.topic, partitions=partitions, keys=keys, values=values)


def contents(shared: Shared, arc: str, *, fields: Fields) -> Generator[bool, None, pl.DataFrame]:
    """Return an insert for each live tuple of an arc, with the `task` that wrote it.

    Args:
        shared: Shared state of the version that wrote it.
        arc: The arc.
        fields: Fields of the inserts; those that the arc does not have are null.
    """
    codec, kind, parts = shared.codec(arc), shared.plan.topology.arcs[arc], []
    for partition in range(shared.plan.placement.partitions[arc]):
        place = TopicPartition(codec.topic, partition)
        revisions = yield from history(shared.cluster, codec, place, 0)
        last = frames.last(shared.view.covered(revisions), kind.identity)
        parts.append(last.filter(pl.col("op") != frames.DELETE))
    absent = {frames.BEFORE + name: field.dtype for name, field in fields.items()}
    for name, field in fields.items():
        if name not in kind.fields:
            absent[frames.AFTER + name] = field.dtype
    nothing = (pl.lit(None, dtype).alias(name) for name, dtype in absent.items())
    return pl.concat(parts).with_columns(pl.lit(frames.INSERT, pl.UInt8).alias("op"), *nothing)
