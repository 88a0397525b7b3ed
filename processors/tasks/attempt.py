"""One attempt of a task: its transactions and the last report that they committed."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from time import monotonic

from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.partitioner import Emission
from errata.processors.reports.validation import text_of
from errata.processors.tasks import lost_records
from errata.processors.tasks.handover import Written
from errata.processors.tasks.lost_records import Loss
from errata.processors.tasks.shared import Shared
from errata.processors.wire import report as reports
from errata.processors.wire.report import INTERVAL_MS, Note, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas import by_column, framing
from errata.topics import names
from errata.topics.cluster import DoubtfulCommitError, TopicPartition, Transactions

IN_ONE_PIECE = 5_000
"""So many records reach a partition in one piece, as those that are handed over have to. More are
only sent while no other task of the process writes there."""

RecordsByTopic = Mapping[str, Sequence[tuple[bytes | None, bytes]]]
"""Keys and values of records for partition 0 of some topics."""


class Attempt:
    """Commits the work of one attempt of a task.

    Args:
        shared: State shared by the tasks of the process.
        task: The task.
        transactions: Its transactions; None before the attempt begins.

    Attributes:
        checked_s: When the logs were last compared with the report, by the monotonic clock.
        report: The last committed report; an empty one before the attempt begins.
        is_committing: Whether a transaction is open that commits without waiting for other tasks.
    """

    def __init__(
        self, shared: Shared, task: TaskId, *, transactions: Transactions | None = None
    ) -> None:
        self.shared, self.id, self.name = shared, task, str(task)
        self.transactions = transactions
        self.report = Report(self.name)
        self.is_committing = False
        self.checked_s = 0.0
        self._unwritten: set[TopicPartition] = set()
        self._unchecked: set[TopicPartition] = set()

    def found(self, report: Report, *, hidden: Collection[TopicPartition] = ()) -> None:
        """Note that the logs have just been compared with the last report, as far as was possible.

        Args:
            report: The report.
            hidden: The partitions in which a transaction of another task hid its last record.
        """
        self.checked_s, self._unwritten = monotonic(), set(report.ends)
        self._unchecked = set(hidden)

    @property
    def group(self) -> str:
        """The consumer group to which the offsets of its input are committed."""
        return f"{self.shared.plan.network}.{self.name}"

    def open(self) -> Transactions:
        """Return the transactions; the attempt must have begun."""
        assert self.transactions is not None
        return self.transactions

    def commit(
        self, emissions: Sequence[Emission], report: Report, *, records: RecordsByTopic
    ) -> Generator[bool, None, list[Written]]:
        """Commit the results of some epochs in one transaction.

        The steps, in this order (``docs/protocol.md#3-the-order-of-a-commit``):

        1. Begin. Every reply that these epochs need has arrived: nothing waits from here on.
        2. Produce the revisions: each emission to its arc's topic and to the arc's sinks.
        3. Produce further records: dead letters.
        4. Flush. Every record is acknowledged, and the end offset of each partition is known.
        5. Produce the report, with these ends, and this attempt committed up to the last epoch;
           flush.
        6. Send the offsets of the input, for people's tools.
        7. Commit. From here on the report is the last one, for this process at once. Its readers
           are handed the revisions.

        Args:
            emissions: Revisions in the order of their epochs.
            report: The report before `ends` and `committed` are brought up to date.
            records: Further records.

        Yields:
            True at each point where the process may die.

        Returns:
            What it has written: each emission with the keys of its records.
        """
        yield from self._check_first(emissions)
        try:
            written = yield from self._commit(emissions, report, records)
        except BaseException:
            self.shared.handover.fail(self.name)
            raise
        self.shared.meter.wrote(self.name, emissions)
        return written

    def _commit(
        self, emissions: Sequence[Emission], report: Report, records: RecordsByTopic
    ) -> Generator[bool, None, list[Written]]:
        transactions = self.open()
        transactions.begin()
        self.is_committing = True
        epochs: dict[TopicPartition, int] = {}
        written = list[Written]()
        in_one_piece = self._places(e for e in emissions if e.revisions.height > IN_ONE_PIECE)
        for emission in emissions:
            yield True
            while not written and self.shared.handover.is_written_to(in_one_piece):
                yield False
            written.append(self._produce(transactions, emission, epochs))
        produce_records(transactions, records)
        yield True
        ends, flushed = dict(report.ends), (yield from self.shared.run(transactions.flush))
        for place, own in flushed.items():
            if own.start < ends.get(place, (0, 0))[0]:
                raise DoubtfulCommitError(
                    f"task {self.name}: {text_of(place)} has lost its last record; start a new "
                    "attempt"
                )
            if place in epochs:
                ends[place] = (own.stop, epochs[place])
        committed = dict(report.committed)
        if report.done >= 0:
            committed[report.attempt] = report.done
        report = replace(report, ends=ends, committed=committed)
        meta = Meta(self.name, report.attempt, report.done)
        hand = partial(self.shared.handover.hand, meta, written, flushed)
        yield from commit_reports(transactions, [(self, report)], then=hand)
        self.is_committing = False
        return written

    def finish(self, report: Report) -> Iterator[bool]:
        """Write a report into the open transaction and commit it: steps 5 to 7 of `commit`."""
        return commit_reports(self.open(), [(self, report)])

    def write(self, report: Report) -> None:
        """Write a report into the open transaction."""
        topic = names.progress_topic(self.shared.plan.network)
        schema_id = self.shared.registry.register(f"{topic}-value", reports.SCHEMA)
        value = framing.frame([reports.encode(report)], schema_id)
        self.open().produce(topic, partitions=[0], keys=[self.name.encode()], values=value)

    def _check_first(self, emissions: Sequence[Emission]) -> Iterator[bool]:
        """Check that partitions that this attempt writes first have what older ones wrote there.

        Afterwards the broker refuses to go on after records that it has lost. While transactions
        of other tasks hide records, it waits.

        Raises:
            DoubtfulCommitError: If one does not: a new attempt writes its records again.
        """
        if not self._unwritten:
            return
        first = self._unwritten & self._places(emissions)
        self._unwritten -= first
        if monotonic() < self.checked_s + lost_records.FRESH_S:
            first &= self._unchecked
        lost = list[Loss]()
        while first:
            old = {place: end for place, end in self.report.ends.items() if place in first}
            found = yield from lost_records.find(self.shared, replace(self.report, ends=old))
            gone, first = lost_records.sorted_out(found)
            lost += gone
        if lost:
            raise DoubtfulCommitError(f"task {self.name}: {lost_records.text(lost)}")

    def _places(self, emissions: Iterable[Emission]) -> set[TopicPartition]:
        """Return the partitions that emissions go to."""
        return {
            TopicPartition(self.shared.plan.deployment.topic(emission.arc), partition)
            for emission in emissions
            for partition in by_column.distinct(emission.partitions)
        }

    def _produce(
        self, transactions: Transactions, emission: Emission, epochs: dict[TopicPartition, int]
    ) -> Written:
        """Write an emission to its arc's topic and to its sinks."""
        plan = self.shared.plan
        for sink in plan.topology.sinks_of(emission.arc) if emission.to_sinks else ():
            self.shared.outgoing(sink).produce(
                transactions,
                emission.revisions,
                epoch=emission.epoch,
                time_ms=emission.epoch * INTERVAL_MS,
                partition_count=plan.placement.sink_partitions[sink.topic],
            )
        if not emission.to_topic or emission.arc not in plan.topology.topics:
            return Written(emission, [], [])
        codec, emission = self.shared.codec(emission.arc), emission.in_order()
        meta = Meta(self.name, self.report.attempt, emission.epoch)
        keys, values = codec.encode(emission.revisions, meta)
        partitions = emission.partitions.to_list()
        transactions.produce(codec.topic, partitions=partitions, keys=keys, values=values)
        for partition in by_column.distinct(emission.partitions):
            place = TopicPartition(codec.topic, partition)
            epochs[place] = emission.epoch
            self.shared.handover.begin(self.name, place, arc=emission.arc)
        return Written(emission, keys, values)


def produce_records(transactions: Transactions, records: RecordsByTopic) -> None:
    """Produce records to partition 0 of their topics: step 3 of a commit."""
    for topic, pairs in records.items():
        transactions.produce(
            topic,
            partitions=[0] * len(pairs),
            keys=[key for key, _ in pairs],
            values=[value for _, value in pairs],
        )


def commit_reports(
    transactions: Transactions,
    reports: Sequence[tuple[Attempt, Report]],
    *,
    sends_offsets: bool = True,
    then: Callable[[int], None] = lambda _: None,
) -> Iterator[bool]:
    """Report, and commit the open transaction: steps 5 to 7 of a commit.

    A task commits for itself. The driver of a job on Spark commits for all tasks of the job at
    once.

    Args:
        transactions: The open transaction; every record of it has been acknowledged.
        reports: For each attempt that the transaction commits, its new report.
        sends_offsets: Whether the offsets of the input are sent, for people's tools.
        then: Called once it is committed, before any other task runs, with the offset after the
            last report.

    Yields:
        True at each point where the process may die.
    """
    first = reports[0][0]
    run = first.shared.run
    for attempt, report in reports:
        attempt.write(report)
    flushed = yield from run(transactions.flush)
    yield True
    began_s = monotonic()
    for attempt, report in reports:
        if sends_offsets and report.resume:
            note = str(Note.of(report, attempt.shared.plan.deployment.id))
            yield from run(partial(transactions.offsets, attempt.group, report.resume, note=note))
    yield from run(transactions.commit)
    first.shared.meter.committed(first.name, seconds=monotonic() - began_s)
    for attempt, report in reports:
        attempt.report = report
        attempt.shared.view.note(report)
    then(flushed[first.shared.view.source].stop)
    yield True
