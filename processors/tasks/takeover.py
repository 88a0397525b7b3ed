"""A task between two versions of a plan: what it wrote is moved, and it goes on from there.

Numbers of partitions never change in place (``docs/protocol.md#7-the-plan-topic``), and neither do
fields: an arc gets a new topic, in which each tuple that is alive is an insert of the last epoch of
the old version, written by the task that owns it in the new one, in a life of that task like any
other. Its report covers them at once, or not at all. So it is with all that an arc holds which the
old version didn't have: others write that, in the name of this life.
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


def mark(plan_name: str) -> str:
    """Return what stands in a report, in place of a plan, while its task is moved to that plan."""
    return f"moves to {plan_name}"


@dataclass(frozen=True)
class NewArc:
    """An arc that the old version didn't have, before it holds anything.

    Args:
        name: The arc.
        epoch: The last one of the old version.
        attempts: By partition, the life in whose name it is written.
        watermarks: By aggregate, wm(epoch) of its scope.
    """

    name: str
    epoch: int
    attempts: Mapping[int, int]
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class Filled:
    """What was written to a new arc.

    Args:
        tuples: How many there are.
        ends: By partition, the offset behind the last of them.
    """

    tuples: int
    ends: Mapping[int, int]


Fill = Callable[[NewArc], Filled]


class Takeover(Task):
    """One life of a task in the hands of whoever moves it: it stops, or is moved.

    Args:
        shared: What its process shares.
        task: Which one.
        outputs: The arcs of which dead last words are covered.
        to: Fingerprint of the plan that it is moved to.
        come: Fingerprint of the plan that it comes from.
        transactions: Those of all tasks of a job on Spark; None: it has its own.
    """

    def __init__(
        self,
        shared: Shared,
        task: TaskId,
        *,
        outputs: tuple[str, ...],
        to: str,
        come: str,
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(shared, task, outputs=outputs)
        self.plan_name = mark(to)
        self.accepted = {"", come, mark(to)}
        self._given = transactions

    def connect(self) -> Transactions:
        """Return the transactions of this life; those of older ones are fenced."""
        return super().connect() if self._given is None else self._given

    def claim(self) -> Iterator[bool]:
        """Fence whoever runs the task; it is told to be moved from here on."""
        yield from self._begin()

    def start(self) -> Iterator[bool]:
        """Nothing is rebuilt."""
        yield False

    def raise_to(self, epoch: int) -> Iterator[bool]:
        """Report that nothing more comes up to an epoch."""
        if self.report.done < epoch:
            yield from self.commit([], replace(self.report, done=epoch))

    def move(self, copies: dict[str, pl.DataFrame], report: Report, *, to: str) -> Iterator[bool]:
        """Write copies, which exist once the report does.

        Args:
            copies: By arc, inserts with the `partition` of each.
            report: The first by the new plan; `attempt`, `committed` and `ends` are filled in.
            to: Fingerprint of the new plan.
        """
        transactions, ends = self.attempt.open(), dict(report.ends)
        for arc, inserts in copies.items():
            for chunk in inserts.iter_slices(ROWS_A_TRANSACTION):
                transactions.begin()
                self._write(transactions, arc, chunk, report.done)
                ends |= {p: (offset, report.done) for p, offset in transactions.flush().items()}
                yield True
                transactions.commit()
                yield True
        attempt = self.report.attempt
        committed = dict(self.report.committed)
        if report.done >= 0:
            committed[attempt] = report.done
        transactions.begin()
        yield from self.attempt.finish(
            replace(report, attempt=attempt, plan=to, committed=committed, ends=ends)
        )

    def _write(
        self, transactions: Transactions, arc: str, inserts: pl.DataFrame, epoch: int
    ) -> None:
        codec = self.shared.codec(arc)
        meta = Meta(self.name, self.report.attempt, epoch)
        keys, values = codec.encode(inserts, meta)
        places = inserts["partition"].to_list()
        transactions.produce(codec.topic, partitions=places, keys=keys, values=values)


def contents(shared: Shared, arc: str, *, fields: Fields) -> Generator[bool, None, pl.DataFrame]:
    """Return an insert for each tuple of an arc that is alive, with the `task` that wrote it.

    Args:
        shared: Of the version that wrote it.
        arc: The arc.
        fields: Those that the inserts have; what the arc does not have is null.
    """
    codec, kind, parts = shared.codec(arc), shared.plan.arcs[arc], []
    for partition in range(shared.plan.partition_count(arc)):
        place = TopicPartition(codec.topic, partition)
        found = yield from history(shared.cluster, codec, place, 0)
        last = frames.last(shared.view.believed(found), kind.identity)
        parts.append(last.filter(pl.col("op") != frames.DELETE))
    absent = {frames.BEFORE + name: field.dtype for name, field in fields.items()}
    for name, field in fields.items():
        if name not in kind.fields:
            absent[frames.AFTER + name] = field.dtype
    nothing = (pl.lit(None, dtype).alias(name) for name, dtype in absent.items())
    return pl.concat(parts).with_columns(pl.lit(frames.INSERT, pl.UInt8).alias("op"), *nothing)
