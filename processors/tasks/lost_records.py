"""Finds committed records of a task that the brokers have lost, before the task works on.

A broker loses acknowledged records by an unclean election, or if its disk is set back. The task's
report shows it: `Report.ends` says where the task's last record in each partition ends, and of
which epoch it is. If the log ends before that, or another record is there, records are lost.

Some readers have processed the lost records, others have not. So the task claims its next attempt
with `Report.rebuilt` = `PENDING`, and its readers wait. In its next epoch it writes the difference
between what the topic holds and what it should hold, and reports that epoch as `Report.rebuilt`.
Each reader that has not reached it recomputes its state there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec, read_to_end
from errata.processors.reports.validation import text_of
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import INTERVAL_MS, NEVER, NO_REPORT, PENDING, Report
from errata.schemas import framing
from errata.schemas.errors import ErrataError
from errata.topics.cluster import (
    Cluster,
    LostOffsetError,
    Records,
    TopicPartition,
    Transactions,
)
from errata.topics.settings import HOUR_MS
from errata.topics.transactions import TIMEOUT_S

CHECKED_S = 30.0
"""How often a running task compares its report with the ends of its logs."""

FRESH_S = 1.0
"""How long it counts that a task has found its records."""

YOUNGEST_MS = HOUR_MS
"""Retention and compaction leave records for longer than this."""

PATIENCE_S = 2 * TIMEOUT_S
"""How long it looks for a copy of a record, or for its tombstone."""

HIDDEN_S = 5.0
"""How long it waits for what an open transaction hides: the transaction's end may be lost."""

STAYS_OPEN_S = 2 * TIMEOUT_S
"""No transaction stays open for longer, unless its end is lost: its coordinator aborts it."""


class LostRecordsError(ErrataError):
    """Committed records are lost, and the task can't write them again."""


@dataclass(frozen=True)
class Loss:
    """Records of a task that a partition no longer holds.

    Args:
        place: The partition.
        end: Where the last of the task's records ended.
        log_end: Where the log ends now.
        is_hidden: Whether an open transaction hides them, if they are there.
    """

    place: TopicPartition
    end: int
    log_end: int
    is_hidden: bool = False

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        if self.is_hidden:
            return f"{text_of(self.place)} lacks the end of a transaction before {self.end}"
        if self.log_end < self.end:
            return f"{text_of(self.place)} ends at offset {self.log_end}, not at {self.end}"
        return f"{text_of(self.place)} has another record at offset {self.end - 1}"


def cut(shared: Shared, report: Report) -> Generator[bool, None, list[Loss]]:
    """Return the partitions whose log ends before the task's last record there."""
    ends = dict(shared.view.validator.claims(report))
    yield False
    log_ends = (yield from shared.run(partial(shared.cluster.ends, ends))) if ends else {}
    return [Loss(at, end, log_ends[at]) for at, end in ends.items() if log_ends[at] < end]


def find(shared: Shared, report: Report) -> Generator[bool, None, list[Loss]]:
    """Return the partitions that do not hold the task's last record there, or hide it.

    A record that compaction or retention has removed is no loss. Nor is one that an open
    transaction hides, as far as anybody can see.
    """
    lost = yield from cut(shared, report)
    left_out = {loss.place for loss in lost}
    left_out |= {place for place, (_, epoch) in report.ends.items() if epoch == NEVER}
    ends = {at: end for at, end in shared.view.validator.claims(report) if at not in left_out}
    last, hidden = yield from _records_at(shared, {at: end - 1 for at, end in ends.items()})
    lost += [Loss(place, ends[place], ends[place], is_hidden=True) for place in hidden]
    codecs = _codecs(shared) if last else {}
    for place in ends.keys() - last.keys() - hidden:
        lost += yield from _missing(shared, report, place)
    for place, records in last.items():
        frame = codecs[place.topic].decode(records)
        written = frame.select("task", "epoch").rows()
        if written != [(report.task, report.ends[place][1])]:
            lost.append(Loss(place, ends[place], ends[place]))
    return lost


def _missing(
    shared: Shared, report: Report, place: TopicPartition
) -> Generator[bool, None, list[Loss]]:
    """Return the loss if the task's last record is gone, and not by compaction or retention.

    Neither takes a young record, unless its tombstone or a copy of it has been written since; an
    open transaction may hide these. A tombstone of another task's record is none of it.
    """
    end, epoch = report.ends[place]
    age_ms = time.time_ns() // 1_000_000 - epoch * INTERVAL_MS
    if age_ms > min(shared.compaction_lag_ms // 2, YOUNGEST_MS):
        return []
    codec = _codecs(shared)[place.topic]
    log_end, reader = shared.cluster.end(place), shared.cluster.reader({place: end - 1})
    until_s, deleted = monotonic() + PATIENCE_S, set[bytes]()
    try:
        while reader.position(place) < log_end:
            for records in reader.poll():
                written = codec.decode(records).select("task", "epoch").rows()
                if (report.task, epoch) in written:
                    return []
                deleted |= _tombstones(records)
            if monotonic() > until_s:
                return [Loss(place, end, end, is_hidden=True)]
            yield False
    except LostOffsetError:
        return []
    finally:
        reader.close()
    if deleted:
        deleted -= yield from _keys_of_others(shared, codec, place, report.task)
    return [] if deleted else [Loss(place, end, end)]


def _tombstones(records: Records) -> set[bytes]:
    """Return the keys that were deleted; one that is the name of a task only ends a transaction."""
    pairs, magic = zip(records.keys, records.values, strict=True), bytes([framing.MAGIC])
    return {key for key, value in pairs if value is None and key and key.startswith(magic)}


def _keys_of_others(
    shared: Shared, codec: ArcCodec, place: TopicPartition, task: str
) -> Generator[bool, None, set[bytes | None]]:
    """Return the keys of a partition's records that other tasks have written."""
    keys = set[bytes | None]()
    for records in read_to_end(shared.cluster, place, 0):
        if records is None:
            yield False
            continue
        others = codec.decode(records).filter(pl.col("task") != task)["offset"]
        at = dict(zip(records.offsets, records.keys, strict=True))
        keys |= {at[offset] for offset in others}
    return keys


def _codecs(shared: Shared) -> dict[str, ArcCodec]:
    """Return the codecs of all arcs with topics, by topic."""
    topology, deployment = shared.plan.topology, shared.plan.deployment
    return {deployment.topic(arc): shared.codec(arc) for arc in topology.topics}


def _records_at(
    shared: Shared, offsets: Mapping[TopicPartition, int]
) -> Generator[bool, None, tuple[dict[TopicPartition, Records], set[TopicPartition]]]:
    """Return the records at some offsets, one a partition, as far as they are still there.

    Returns also the partitions in which a transaction that never ends hides the offset.
    """
    wanted, at = dict(offsets), dict[TopicPartition, Records]()
    until_s = monotonic() + HIDDEN_S
    while wanted and monotonic() < until_s:
        reader = shared.cluster.reader(wanted)
        try:
            while wanted and monotonic() < until_s:
                for records in reader.poll():
                    offset = wanted.get(records.source, -1)
                    if records.offsets[0] == offset:
                        at[records.source] = records.first()
                wanted = {p: offset for p, offset in wanted.items() if reader.position(p) <= offset}
                yield False
        except LostOffsetError as error:
            wanted.pop(error.source, None)  # it may have been read before
        finally:
            reader.close()
    return at, set(wanted)


def hidden(cluster: Cluster, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return those of some partitions in which an open transaction hides records, and from where.

    The transaction may be one of a task at work; or the brokers have lost its end, and it hides all
    that follows until its owner ends one there.
    """
    stable, ends = cluster.stable_ends(places), cluster.ends(places)
    return {place: offset for place, offset in stable.items() if offset < ends[place]}


def produce_ends(
    transactions: Transactions, places: Iterable[TopicPartition], *, key: bytes
) -> None:
    """Let the open transaction end those of the same id in some partitions whose ends are lost.

    Until then these hide all that follows. The records have this key, and no value.
    """
    for topic, partition in places:
        transactions.produce(topic, partitions=[partition], keys=[key], values=[None])


def commit_ends(
    transactions: Transactions, places: Iterable[TopicPartition], *, key: bytes
) -> None:
    """Do so in a transaction of its own."""
    transactions.begin()
    produce_ends(transactions, places, key=key)
    transactions.flush()
    transactions.commit()


def uncover_reports(shared: Shared, transactions: Transactions) -> None:
    """End transactions of the same id in the progress topic whose ends are lost."""
    commit_ends(transactions, [shared.view.source], key=NO_REPORT)


class StaysOpen:
    """Notices transactions that stay open: the brokers have lost their ends.

    Those of records that no report names, such as tombstones, are found in no other way.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[TopicPartition, int], float] = {}
        self._told = set[tuple[TopicPartition, int]]()

    def new(self, found: Mapping[TopicPartition, int]) -> list[Loss]:
        """Return those that have stayed open for too long, each once.

        Args:
            found: What `hidden` returns now.
        """
        now_s, places = monotonic(), set(found.items())
        self._since = {place: self._since.get(place, now_s) for place in places}
        self._told &= places
        late = {place for place, since_s in self._since.items() if now_s >= since_s + STAYS_OPEN_S}
        new, self._told = late - self._told, self._told | late
        return [Loss(place, offset + 1, offset, is_hidden=True) for place, offset in sorted(new)]


def sorted_out(found: Sequence[Loss]) -> tuple[list[Loss], set[TopicPartition]]:
    """Return, of what `find` has found, what is lost, and where records are only hidden."""
    lost = [loss for loss in found if not loss.is_hidden]
    return lost, {loss.place for loss in found if loss.is_hidden}


def claim(report: Report, lost: Sequence[Loss]) -> Report:
    """Return the report with which a task's next attempt begins after a loss.

    Where records are lost it does not say which one is the last, but up to where some may be left:
    readers wait for those that a transaction has hidden, even if nothing is written again.
    """
    left = {loss.place: (min(loss.end, loss.log_end), NEVER) for loss in lost}
    return replace(report, ends={**report.ends, **left}, rebuilt=PENDING)


def require_history(shared: Shared, lost: Sequence[Loss], arcs: Sequence[str]) -> None:
    """Check that the arcs that are needed to write records again keep their history.

    Raises:
        LostRecordsError: If one does not.
    """
    known = shared.plan.topology.arcs
    if without := [arc for arc in arcs if not known[arc].is_connection_point]:
        raise LostRecordsError(
            f"{text(lost)}; they can't be written again, since {', '.join(without)} keep no "
            "history: restore the topic, or run `errata reset` and start the network again"
        )


def text(lost: Sequence[Loss]) -> str:
    """Return losses as a sentence for the log."""
    return f"the brokers have lost committed records: {', '.join(map(str, lost))}"
