"""One attempt of a task: its transactions and the last report that they committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.partitioner import Emission
from errata.processors.reports.validation import text_of
from errata.processors.tasks import lost_records
from errata.processors.tasks.lost_records import Loss
from errata.processors.tasks.shared import Shared
from errata.processors.wire import report as reports
from errata.processors.wire.report import INTERVAL_MS, Note, Report
from errata.processors.wire.task_id import TaskId
from errata.schemas import by_column, framing
from errata.topics import names
from errata.topics.cluster import DoubtfulCommitError, TopicPartition, Transactions

RecordsByTopic = Mapping[str, Sequence[tuple[bytes | None, bytes]]]
"""Keys and values of records for partition 0 of some topics."""


class Written(NamedTuple):
    """An emission, with the keys and values of its records; none if its arc has no topic."""

    emission: Emission
    keys: list[bytes]
    values: list[bytes]


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
    ) -> Generator[bool, None, list[list[bytes]]]:
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
            The record keys of each emission; [] for an emission whose arc has no topic.
        """
        transactions = self.open()
        yield from self._check_first(emissions)
        transactions.begin()
        self.is_committing = True
        epochs: dict[TopicPartition, int] = {}
        written = list[Written]()
        for emission in emissions:
            yield True
            written.append(self._produce(transactions, emission, epochs))
        produce_records(transactions, records)
        yield True
        ends, flushed = dict(self.report.ends), (yield from self.shared.run(transactions.flush))
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
        hand = partial(self._hand, written if self.shared.hands_over else [], flushed)
        yield from commit_reports(transactions, [(self, report)], then=hand)
        self.is_committing = False
        self.shared.meter.wrote(self.name, emissions)
        return [each.keys for each in written]

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
        first = self._unwritten & {
            TopicPartition(self.shared.plan.deployment.topic(emission.arc), partition)
            for emission in emissions
            for partition in emission.partitions.unique().to_list()
        }
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

    def _hand(self, written: Sequence[Written], flushed: Mapping[TopicPartition, range]) -> None:
        """Hand what was committed to readers in this process.

        An emission that goes to several partitions is read, and so is what is written between the
        records of other tasks.
        """
        newest_ms, plan = self.shared.view.newest_ms, self.shared.plan
        time_ms = max(newest_ms, time.time_ns() // 1_000_000)  # this clock may be behind
        sent = dict[TopicPartition, list[Written]]()
        for each in written:
            arc, partitions = each.emission.arc, each.emission.partitions
            if each.keys and partitions.n_unique() == 1:
                place = TopicPartition(plan.deployment.topic(arc), partitions[0])
                sent.setdefault(place, []).append(each)
        for place, parts in sent.items():
            arc, start = parts[0].emission.arc, flushed[place].start
            count = sum(len(each.keys) for each in parts)
            if count < len(flushed[place]):
                continue
            for each in parts:
                self.shared.codec(arc).hand(
                    place,
                    range(start, start + len(each.keys)),
                    revisions=each.emission.revisions,
                    keys=each.keys,
                    values=each.values,
                    meta=Meta(self.name, self.report.attempt, each.emission.epoch),
                    time_ms=time_ms,
                )
                start += len(each.keys)

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
        codec = self.shared.codec(emission.arc)
        meta = Meta(self.name, self.report.attempt, emission.epoch)
        keys, values = codec.encode(emission.revisions, meta)
        partitions = emission.partitions.to_list()
        transactions.produce(codec.topic, partitions=partitions, keys=keys, values=values)
        for partition in by_column.distinct(emission.partitions):
            epochs[TopicPartition(codec.topic, partition)] = emission.epoch
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
    then: Callable[[], None] = lambda: None,
) -> Iterator[bool]:
    """Report, and commit the open transaction: steps 5 to 7 of a commit.

    A task commits for itself. The driver of a job on Spark commits for all tasks of the job at
    once.

    Args:
        transactions: The open transaction; every record of it has been acknowledged.
        reports: For each attempt that the transaction commits, its new report.
        sends_offsets: Whether the offsets of the input are sent, for people's tools.
        then: Called once it is committed, before any other task runs.

    Yields:
        True at each point where the process may die.
    """
    first = reports[0][0]
    run = first.shared.run
    for attempt, report in reports:
        attempt.write(report)
    yield from run(transactions.flush)
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
    then()
    yield True
