"""One partition's log in memory, with Kafka's rules of what a reader may see."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

from errata.topics.cluster import Records, TopicPartition


@dataclass(eq=False)
class Transaction:
    """A transaction; its records can be read when it is committed.

    Attributes:
        state: `open`, `committed` or `aborted`.
    """

    state: str = "open"


@dataclass(frozen=True, eq=False)
class _Batch:
    """Records written together; `end` is the offset after the last one that was ever in it."""

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    time_ms: int
    end: int
    transaction: Transaction

    def only(self, stays: list[bool]) -> _Batch:
        """Return it without the records that don't stay."""
        return replace(
            self,
            offsets=list(compress(self.offsets, stays)),
            keys=list(compress(self.keys, stays)),
            values=list(compress(self.values, stays)),
        )


class MemoryLog:
    """The log of one partition."""

    def __init__(self, source: TopicPartition) -> None:
        self.source = source
        self.end = 0
        self._batches: list[_Batch] = []
        self._open: dict[Transaction, int] = {}  # its first offset here
        self._old_tombstones: set[int] = set()

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
        """Append records, of a transaction or committed at once; they have offsets at once."""
        offsets = list(range(self.end, self.end + len(keys)))
        if transaction is not None:
            self._open.setdefault(transaction, self.end)
        self.end += len(offsets)
        self._batches.append(
            _Batch(offsets, list(keys), list(values), time_ms, self.end, transaction or _DONE)
        )

    def close(self, transaction: Transaction) -> None:
        """End a transaction here: its control record takes an offset that no reader sees."""
        del self._open[transaction]
        self.end += 1

    def read(self, position: int, limit: int) -> tuple[Records, int]:
        """Return the committed records from a position on, and the position after them."""
        stop = self.last_stable_offset
        times_ms: list[int] = []
        found = Records(self.source, [], [], [], times_ms)
        first = bisect_right(self._batches, position, key=lambda batch: batch.end)
        for index in range(first, len(self._batches)):
            batch = self._batches[index]
            if batch.end > stop:
                break
            if batch.transaction.state != "committed":
                continue
            start = bisect_left(batch.offsets, position)
            taken = slice(start, start + limit - len(found))
            found.offsets.extend(batch.offsets[taken])
            found.keys.extend(batch.keys[taken])
            found.values.extend(batch.values[taken])
            times_ms.extend([batch.time_ms] * len(batch.offsets[taken]))
            if len(found) >= limit:
                return found, found.offsets[-1] + 1
        return found, max(position, stop)

    def offset_at(self, time_ms: int) -> int:
        """Return the first record's offset of this time or later; the log's end if none is."""
        later = (batch.offsets[0] for batch in self._batches if batch.time_ms >= time_ms)
        return next(later, self.end)

    def trim(self, offset: int) -> None:
        """Let go of the records before an offset, as retention does."""
        self._batches = [b.only([o >= offset for o in b.offsets]) for b in self._batches]

    def compact(self, horizon: int) -> None:
        """Keep the last committed record of each key below `horizon` (an offset).

        Nothing behind the last stable offset is touched. Aborted records go as well; a tombstone
        goes one pass after the first that kept it.
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
