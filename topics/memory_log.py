"""One partition of a cluster in memory: its log, with Kafka's rules on what a reader may see."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from errata.topics.cluster import Records, TopicPartition


@dataclass(eq=False)
class Transaction:
    """A transaction; its records can be read once it is committed.

    Attributes:
        state: `open`, `committed` or `aborted`.
        owner: The transactional id, or anything else that stands for its producer.
    """

    state: str = "open"
    owner: object = field(default_factory=object)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Records written together; `end` is the offset after the last record it ever held."""

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    time_ms: int
    end: int
    transaction: Transaction

    def only(self, is_kept: list[bool]) -> _Batch:
        """Return the batch without the records whose flag in `is_kept` is False."""
        return replace(
            self,
            offsets=list(compress(self.offsets, is_kept)),
            keys=list(compress(self.keys, is_kept)),
            values=list(compress(self.values, is_kept)),
        )


class MemoryLog:
    """The log of one partition."""

    def __init__(self, source: TopicPartition) -> None:
        self.source = source
        self.start = self.end = 0
        self._batches: list[_Batch] = []
        self._open: dict[Transaction, int] = {}  # the first offset of each here
        self._ended: dict[Transaction, tuple[int, int]] = {}  # that, and the control record's
        self._old_tombstones: set[int] = set()
        self.losses: list[int] = []
        """The offsets from which it has lost its records, oldest first."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction; the log's end if there is none."""
        return min(self._open.values(), default=self.end)

    def append(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        *,
        time_ms: int,
        transaction: Transaction | None = None,
    ) -> None:
        """Append records, of a transaction or committed at once; offsets are assigned at once."""
        offsets = list(range(self.end, self.end + len(keys)))
        if transaction is not None:
            self._open.setdefault(transaction, self.end)
        self.end += len(offsets)
        self._batches.append(
            _Batch(offsets, list(keys), list(values), time_ms, self.end, transaction or _DONE)
        )

    def close(self, transaction: Transaction) -> None:
        """End a transaction in this log: its control record takes an offset that no reader sees.

        It also ends those before it of the same id, whose own control records were lost.
        """
        for each in [each for each in self._open if each.owner == transaction.owner]:
            each.state = transaction.state
            self._ended[each] = self._open.pop(each), self.end
        self.end += 1

    def read(self, position: int, limit: int) -> tuple[Records, int]:
        """Return the committed records from a position, and the position after them."""
        stop = self.last_stable_offset
        times_ms: list[int] = []
        records = Records(self.source, [], [], [], times_ms)
        first = bisect_right(self._batches, position, key=lambda batch: batch.end)
        for index in range(first, len(self._batches)):
            batch = self._batches[index]
            if batch.end > stop:
                break
            if batch.transaction.state != "committed":
                continue
            start = bisect_left(batch.offsets, position)
            taken = slice(start, start + limit - len(records))
            records.offsets.extend(batch.offsets[taken])
            records.keys.extend(batch.keys[taken])
            records.values.extend(batch.values[taken])
            times_ms.extend([batch.time_ms] * len(batch.offsets[taken]))
            if len(records) >= limit:
                return records, records.offsets[-1] + 1
        return records, max(position, stop)

    def offset_at(self, time_ms: int) -> int:
        """Return the offset of the first record of this time or later; the log's end if none."""
        later = (batch.offsets[0] for batch in self._batches if batch.time_ms >= time_ms)
        return next(later, self.end)

    def trim(self, offset: int) -> None:
        """Remove the records before an offset, as retention does."""
        self.start = max(self.start, offset)
        self._ended = {t: at for t, at in self._ended.items() if at[1] >= offset}
        kept = (b.only([o >= offset for o in b.offsets]) for b in self._batches)
        self._batches = [batch for batch in kept if batch.offsets]

    def lose(self, offset: int) -> None:
        """Remove the records from an offset on; the next one gets this offset.

        A transaction whose control record is lost, but not all its records, is open again here.
        """
        for each, (first, control) in list(self._ended.items()):
            if control >= offset:
                del self._ended[each]
                self._reopen(each, first)
        self._batches = [
            replace(shorter, end=min(shorter.end, offset))
            for batch in self._batches
            if (shorter := batch.only([o < offset for o in batch.offsets])).offsets
        ]
        self._open = {each: first for each, first in self._open.items() if first < offset}
        self.end = min(self.end, offset)
        self.losses.append(offset)

    def _reopen(self, transaction: Transaction, first: int) -> None:
        again = Transaction(owner=transaction.owner)
        self._open[again] = first
        self._batches = [
            replace(batch, transaction=again) if batch.transaction is transaction else batch
            for batch in self._batches
        ]

    def compact(self, horizon: int) -> None:
        """Compact: keep the last committed record of each key below `horizon` (an offset).

        Nothing after the last stable offset is touched. Aborted records are removed too; a
        tombstone is removed one pass after the first that kept it.
        """
        horizon = min(horizon, self.last_stable_offset)
        seen, _ = self.read(0, self.end + 1)
        below = slice(bisect_left(seen.offsets, horizon))
        last = dict(zip(seen.keys[below], seen.offsets[below], strict=True))
        kept = set(last.values()) - self._old_tombstones
        self._old_tombstones = {
            offset
            for offset, value in zip(seen.offsets[below], seen.values[below], strict=True)
            if value is None
        }
        self._batches = [
            shorter
            for batch in self._batches
            if (
                shorter := batch.only(
                    [offset >= horizon or offset in kept for offset in batch.offsets]
                )
            ).offsets
        ]


_DONE = Transaction("committed")
