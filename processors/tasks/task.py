"""The loop that all tasks share: one life of it is one attempt (``docs/protocol.md``).

A task is a generator that is advanced step by step by its process: every ``yield`` gives way, and
is a place where the process may die. What it has done is in its report, committed in the
transaction of the work itself; a new life goes on from there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from time import monotonic

from errata.processors.arcs.arc_topic import Meta
from errata.processors.arcs.tombstones import Emission, Graves
from errata.processors.declare.declarations import Sink
from errata.processors.reports.validation import Disbelief
from errata.processors.tasks.shadowed_records import Copies, orphaned
from errata.processors.tasks.shared import Shared
from errata.processors.wire import report as reports
from errata.processors.wire.report import Report
from errata.processors.wire.task_id import ScopeId, TaskId
from errata.schemas import framing
from errata.schemas.errors import ErrataError
from errata.topics import names
from errata.topics.cluster import TopicPartition, Transactions

INTERVAL_MS = 50
"""An epoch's number is about the clock in units of this."""
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
        self.report = Report(self.name)
        self.transactions: Transactions | None = None
        self.graves = Graves()
        self.started = False
        self.waits = ""
        """What it waits for that others have to mend; "" if nothing."""
        self._again_s = 0.0
        self.is_committing = False
        """Whether a transaction is open that its life will commit without waiting for others."""
        self._gainsaid: Disbelief | None = None
        self.plan_name = self.plan.fingerprint
        self.accepted = {"", self.plan_name}

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
                yield from self._gainsay()
                yield from self.step()
        finally:
            self.is_committing = False
            self.close()

    def close(self) -> None:
        """Give all connections back."""
        if self.transactions is not None:
            self.transactions.close()

    def _begin(self) -> Iterator[bool]:
        """Fence the older life, read what it reported, and claim a number of one's own."""
        self.transactions = self.connect()
        yield from self.read_reports()
        old = self.view.of(self.name)
        self.graves.clear()  # a doubtful commit may have written again to what was to be buried
        if old.plan not in self.accepted:
            raise WrongPlanError(
                f"task {self.name}: was run by plan {old.plan}, this is plan {self.plan_name}; run "
                "it with the network that was deployed, or give the changed network another name"
            )
        resume = old.resume if old.attempt else self.first_positions()
        claimed = replace(old, attempt=old.attempt + 1, plan=self.plan_name, resume=resume)
        self.transactions.begin()
        yield from self._commit(claimed)
        yield from self._cover_orphans()
        yield from self.start()

    def _gainsay(self) -> Iterator[bool]:
        """Report again, under a number that is not taken, after a lie was told in its name.

        Else the lie would be the newest record of its key for as long as it idles; and one of
        records that are not there could not be told from the truth when others have written as far.
        """
        lie = self.view.lies.get(self.name)
        if lie is None or lie is self._gainsaid:
            return
        self._gainsaid = lie
        told = lie.report.attempt if lie.report is not None else 0
        attempt = max(self.report.attempt, told) + 1
        self._open().begin()
        yield from self._commit(replace(self.report, attempt=attempt))

    def wait(self, why: str) -> None:
        """Wait for what others have to mend; for nothing any more if there is no reason."""
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

    # ---------------------------------------------------------------- a transaction

    def commit(
        self,
        emissions: list[Emission],
        report: Report,
        *,
        records: Mapping[str, list[tuple[bytes | None, bytes]]] | None = None,
    ) -> Iterator[bool]:
        """Commit what some epochs gave: records, flush, report, offsets, commit, in this order.

        Args:
            emissions: Revisions in the order of their epochs.
            report: The report before `ends` and `committed` are brought up to date.
            records: By topic, further keys and values for its partition 0.
        """
        transactions = self._open()
        transactions.begin()
        self.is_committing = True
        epochs: dict[TopicPartition, int] = {}
        keys: list[list[bytes]] = []
        for emission in emissions:
            yield True
            keys.append(self._produce(transactions, emission, epochs))
        for topic, pairs in (records or {}).items():
            transactions.produce(
                topic,
                partitions=[0] * len(pairs),
                keys=[key for key, _ in pairs],
                values=[value for _, value in pairs],
            )
        yield True
        ends = dict(self.report.ends)
        for place, offset in transactions.flush().items():
            if place in epochs:
                ends[place] = (offset, epochs[place])
        committed = dict(report.committed)
        if report.done >= 0:
            committed[report.attempt] = report.done
        yield from self._commit(replace(report, ends=ends, committed=committed))
        self.is_committing = False
        self.shared.meter.wrote(self.name, emissions)
        for emission, own in zip(emissions, keys, strict=True):
            if self.plan.arcs[emission.arc].is_connection_point:
                self.graves.dig(emission, own)

    def _open(self) -> Transactions:
        assert self.transactions is not None
        return self.transactions

    def _produce(
        self, transactions: Transactions, emission: Emission, epochs: dict[TopicPartition, int]
    ) -> list[bytes]:
        """Write an emission to its arc's topic and to its sinks; return the arc's record keys."""
        for sink in self.plan.sinks_of(emission.arc):
            self._sink(transactions, sink, emission)
        if emission.arc not in self.plan.topics:
            return []
        codec = self.shared.codec(emission.arc)
        meta = Meta(self.name, self.report.attempt, emission.epoch)
        keys, values = codec.encode(emission.revisions, meta)
        partitions = emission.partitions.to_list()
        transactions.produce(codec.topic, partitions=partitions, keys=keys, values=values)
        for partition in emission.partitions.unique().to_list():
            epochs[TopicPartition(codec.topic, partition)] = emission.epoch
        return keys

    def _sink(self, transactions: Transactions, sink: Sink, emission: Emission) -> None:
        """Write what people see of an emission to a user's topic, by the hash of the record key."""
        self.shared.outgoing(sink).produce(
            transactions,
            emission.revisions,
            epoch=emission.epoch,
            time_ms=emission.epoch * INTERVAL_MS,
            partition_count=self.plan.sink_partitions[sink.topic],
        )

    def _commit(self, report: Report) -> Iterator[bool]:
        """Write the report into the open transaction and commit it."""
        transactions = self._open()
        self.write(report)
        transactions.flush()
        yield True
        began_s = monotonic()
        if report.resume:
            transactions.offsets(f"{self.plan.network}.{self.name}", report.resume)
        transactions.commit()
        self.shared.meter.committed(self.name, seconds=monotonic() - began_s)
        self.report = report
        self.view.note(report)
        yield True

    def write(self, report: Report) -> None:
        """Write a report into the open transaction."""
        topic = names.progress_topic(self.plan.network)
        schema_id = self.shared.registry.register(f"{topic}-value", reports.SCHEMA)
        value = framing.frame([reports.encode(report)], schema_id)
        self._open().produce(topic, partitions=[0], keys=[self.name.encode()], values=value)

    # ---------------------------------------------------------------- the cleaner's dangers

    def _cover_orphans(self) -> Iterator[bool]:
        """Write again what is believed wherever the cleaner could keep a dead record instead."""
        for arc in self.outputs:
            if not self.plan.arcs[arc].is_connection_point:
                continue
            for partition in self.own_partitions(arc):
                copies = yield from orphaned(self.shared, self.report, arc, partition)
                if copies:
                    yield from self._write_again(arc, partition, copies)

    def own_partitions(self, arc: str) -> list[int]:
        """Return the partitions of an arc that this task writes to: of a source's, all."""
        if arc in self.plan.sources:
            return list(range(self.plan.partition_count(arc)))
        return [self.partition]

    def _write_again(self, arc: str, partition: int, copies: Copies) -> Iterator[bool]:
        codec, transactions = self.shared.codec(arc), self._open()
        transactions.begin()
        for meta, revisions in copies:
            keys, values = codec.encode(revisions, meta)
            partitions = [partition] * len(keys)
            transactions.produce(codec.topic, partitions=partitions, keys=keys, values=values)
        transactions.flush()
        transactions.commit()
        yield True

    def bury(self) -> Iterator[bool]:
        """When idle, write tombstones for own deletes that every reader has passed.

        In a transaction of its own, and only for a delete that is still its key's last record: what
        this life wrote is all remembered, and no other task writes the identity.
        """
        ripe = self.graves.ripe(self.passed)
        if not ripe:
            yield False
            return
        transactions = self._open()
        transactions.begin()
        for arc in {grave.arc for grave in ripe}:
            graves = [grave for grave in ripe if grave.arc == arc]
            transactions.produce(
                self.plan.topic(arc),
                partitions=[grave.partition for grave in graves],
                keys=[grave.key for grave in graves],
                values=[None] * len(graves),
            )
        transactions.flush()
        yield True
        transactions.commit()
        self.graves.forget(ripe)
        yield True

    def passed(self, arc: str, partition: int) -> int:
        """Return the epoch that every reader of an arc's partition has passed, sweepers too."""
        readers = [str(ScopeId.parse(s).task(partition)) for s in self.plan.readers(arc)]
        reported = [self.view.frontier(reader) for reader in readers]
        if arc in self.plan.asked():
            sweeper = self.view.of(str(ScopeId.of_sweeper(arc).task(partition)))
            reported.append(sweeper.done if sweeper.plan == self.plan.fingerprint else -1)
        return min(reported, default=self.report.done)
