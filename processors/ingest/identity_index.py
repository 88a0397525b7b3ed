"""An index on disk of the tuples that a source's arc holds, by identity; one task owns it.

It is a RocksDB. The changes of a batch are collected while Kafka's transaction is open, and written
in one step after it. The index is a copy of the arc, never the only one: a lost or damaged one is
read from the arc again. RocksDB keeps a checksum of each block of a file and of each record of its
log, so damage is noticed when it is read. After a crash, or a power cut, it holds a prefix of what
was written: an older state of the index, from which it catches up.

A flush moves what was written since the one before, a *generation*, from the log to a file. Opening
the index does so too. Each generation leaves a mark. If one of the last is missing, files of
different times are mixed, as after half of a backup was put back: RocksDB does not notice that.

It also has lists of the identities that were written, by event time, so that those of old tuples
are found without reading the whole index. A list says nothing of whether an identity is still in
the index, or has another event time now.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import compress, islice, repeat
from operator import is_not
from pathlib import Path
from typing import cast

import msgspec
import polars as pl
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
)

from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

LONGEST_KEY = 500
"""Most bytes of an identity."""

CACHE_BYTES = 64_000_000
"""Size of the blocks that all indexes of a process keep in memory."""
FLUSH_BYTES = 8_000_000
"""Changes after which they are moved from the log to a file, so that there is one log at a time: of
two, one might be lost unnoticed."""
_FILTER_BITS = 10  # a key: 99 % of the new identities are found to be new without reading a block
_FILTER_SHARE = 0.1  # the same for those in memory: its size as a share of the buffer

_META = b"\x00meta"
_LISTS = b"\xff" * (LONGEST_KEY + 1)
"""With what the keys of lists of identities begin; no identity is as long."""
_LISTS_A_REACH = 64
_GENERATION = b"\xfe" * (LONGEST_KEY + 1)
"""Key of the number of the last generation; with it begin the keys of the marks."""
_MOST_MARKS = 16
_ROOM = "make room"
_REMEDIES = {
    "lock file": "another process has it open: end that one",
    "Permission denied": "make the folder writable for this user",
    "Read-only file system": "make the folder writable",
}
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))  # the store's errors have no number
_DAMAGE = (
    *("Corruption", "Invalid argument", "Not implemented"),
    *map(os.strerror, (errno.ENOENT, errno.EISDIR, errno.ENOTDIR)),
)

_cache = Cache(CACHE_BYTES)


class StoredIndexError(ErrataError):
    """The index can't be used: the folder is not writable, or the disk fails."""


class FullIndexError(StoredIndexError):
    """The disk has no room for a write; the content of the index is unchanged."""


class DamagedIndexError(StoredIndexError):
    """A file of the index is missing, or has other bytes than were written."""


class Index:
    """Encoded tuples by encoded identity.

    The files are opened when they are needed first, and again after a fault.

    Args:
        folder: Its folder; created if missing. Nothing else may use it.
        label: Name of the content; an index with another label is emptied, and so is a damaged one.
        reach_ms: How old tuples are, in event time, when they may be removed; None: never, and
            there are no lists.
    """

    def __init__(self, folder: Path, *, label: str, reach_ms: int | None = None) -> None:
        self.folder, self.label = folder, label
        self._list_ms = None if reach_ms is None else max(1, reach_ms // _LISTS_A_REACH)
        self.emptied = ""
        """Why it was emptied when it was opened; "" if it was not."""
        self._store: Rdict | None = None
        self._batch: WriteBatch | None = None
        self._unflushed = self._generation = 0
        self._is_marked = False

    @property
    def store(self) -> Rdict:
        """The open store.

        Raises:
            FullIndexError: If the disk has no room for it.
            StoredIndexError: If the folder can't be used.
        """
        if self._store is None:
            try:
                store = self._opened()
            except DamagedIndexError as error:
                self.emptied = str(error)
                self.empty()
                store = self._opened()
            if _meta_of(store).get("label", self.label) != self.label:
                self.empty()
                store = self._opened()
            self._store = store
        return self._store

    def _opened(self) -> Rdict:
        with self._faults():
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(self.folder.iterdir()) and not (self.folder / "CURRENT").exists():
                raise self._error(Exception("Corruption: it lacks the file CURRENT"))
            self._store = Rdict(str(self.folder), _options())
            _meta_of(self._store)
            last = int(self._store.get(_GENERATION) or 0)
            marks = map(_mark, range(max(1, last - _MOST_MARKS + 1), last + 1))
            if any(self._store.get(mark) is None for mark in marks):
                raise self._error(Exception("Corruption: it has files of different times"))
            self._begin_generation(last + 1)
            return self._store

    def _begin_generation(self, number: int) -> None:
        self._generation, self._is_marked, self._unflushed = number, False, 0

    def empty(self) -> None:
        """Remove the content."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise faults of the store as errors; the store is closed then, and opened again later."""
        try:
            yield
        except StoredIndexError:
            raise
        except Exception as error:  # the store raises nothing more special
            self.close()
            raise self._error(error) from error

    def _error(self, error: Exception) -> StoredIndexError:
        text, kind = str(error), StoredIndexError
        if any(full in text for full in _FULL):
            kind = FullIndexError
        elif any(damage in text for damage in _DAMAGE):
            kind = DamagedIndexError
        remedy = next((told for what, told in _REMEDIES.items() if what in text), _ROOM)
        return kind(
            f"index of {self.label} in {self.folder.name!r}: {text[:300]}; {remedy}, or restart "
            "with another state folder (ERRATA_STATE): the index is then read from the arc"
        )

    def _meta(self) -> dict[str, object]:
        with self._faults():
            return _meta_of(self.store)

    @property
    def is_new(self) -> bool:
        """Whether nothing was written to it yet: it is the first one, or an older one was lost."""
        return not self._meta()

    @property
    def done(self) -> int:
        """The epoch up to which it is complete; -1 at first."""
        return int(str(self._meta().get("done", -1)))

    @property
    def written_ms(self) -> int:
        """When it was last written, by the clock of its process; 0 at first."""
        return int(str(self._meta().get("written_ms", 0)))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """By partition of the arc, the offset from which a new attempt must read to catch up."""
        stored = self._meta().get("positions", [])
        assert isinstance(stored, list)
        return {TopicPartition(topic, partition): offset for topic, partition, offset in stored}

    @property
    def resume(self) -> int | None:
        """The offset of the input up to which its records are in the index; None: not known."""
        stored = self._meta().get("resume")
        return None if stored is None else int(str(stored))

    @property
    def lacks_lists(self) -> bool:
        """Whether it has identities that are in no list, and needs lists."""
        meta = self._meta()
        return self._list_ms is not None and bool(meta) and not meta.get("has_lists")

    def get(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the identities that are in the index, and the tuple of each.

        Raises:
            DamagedIndexError: If a block that it needs is damaged.
        """
        with self._faults():
            values: list[bytes | None] = self.store[list(keys)] if keys else []  # type: ignore[assignment]
        present = list(map(is_not, values, repeat(None)))
        return list(compress(keys, present)), list(compress(values, present))  # type: ignore[arg-type]

    def parts(self, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield all identities and their tuples, in parts of some rows at most.

        Raises:
            DamagedIndexError: If a block is damaged.
        """
        with self._faults():
            found = cast(Iterable[tuple[bytes, bytes]], self.store.items())
            entries = (each for each in found if each[0] != _META and len(each[0]) <= LONGEST_KEY)
            while part := list(islice(entries, rows)):
                keys, tuples = map(list, zip(*part, strict=True))
                yield keys, tuples

    def begin(
        self,
        *,
        put: tuple[Sequence[bytes], Sequence[bytes]],
        times_ms: pl.Series | None = None,
        delete: Sequence[bytes],
        done: int,
        positions: Mapping[TopicPartition, int],
        resume: int | None,
    ) -> None:
        """Collect changes, pending `commit`; those of an earlier call are dropped.

        Args:
            put: Identities and their tuples, of the same length.
            times_ms: Event time of each tuple, in the same order; None if there are no tuples.
            delete: Deleted identities.
            done: The epoch that the changes complete.
            positions: By partition of the arc, the offset from which to catch up.
            resume: The offset of the input up to which its records are in the index; None if it
                is not known.
        """
        batch = WriteBatch(raw_mode=True)
        deque(map(batch.delete, delete), maxlen=0)
        deque(map(batch.put, *put), maxlen=0)
        has_lists = self._list_ms is not None and not self.lacks_lists
        if has_lists and times_ms is not None:
            self._list(batch, put[0], times_ms)
        meta = {
            "label": self.label,
            "has_lists": has_lists,
            "done": done,
            "positions": [[p.topic, p.partition, o] for p, o in positions.items()],
            "resume": resume,
            "written_ms": time.time_ns() // 1_000_000,
        }
        batch.put(_META, json.dumps(meta).encode())
        self._batch = batch

    def _list(self, batch: WriteBatch, keys: Sequence[bytes], times_ms: pl.Series) -> None:
        """Add lists of the written identities to a batch, by the last event time of each list."""
        assert self._list_ms is not None
        last_ms = times_ms.cast(pl.Int64) // self._list_ms * self._list_ms + self._list_ms - 1
        written = pl.DataFrame({"last": last_ms, "key": pl.Series(keys, dtype=pl.Binary)})
        for last, listed in written.group_by("last").agg("key").iter_rows():
            batch.put(_list_key(last, time.time_ns()), msgspec.msgpack.encode(listed))

    def listed_before(self, event_time_ms: int, *, limit: int) -> tuple[list[bytes], list[bytes]]:
        """Return the keys of lists whose event times are all before this one, and what they list.

        Args:
            event_time_ms: In ms.
            limit: Of the identities; the last list may exceed it.

        Raises:
            DamagedIndexError: If a block is damaged.
        """
        lists, listed = list[bytes](), list[bytes]()
        bound = _list_key(event_time_ms, 0)
        with self._faults():
            found = cast(Iterable[tuple[bytes, bytes]], self.store.items(from_key=_LISTS))
            for key, value in found:
                if key >= bound or len(listed) >= limit:
                    break
                lists.append(key)
                listed += msgspec.msgpack.decode(value, type=list[bytes])
        return lists, listed

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove some keys, of identities or lists; open changes stay.

        Raises:
            FullIndexError: If the disk has no room.
        """
        batch = WriteBatch(raw_mode=True)
        deque(map(batch.delete, keys), maxlen=0)
        self._write(batch)

    def commit(self) -> None:
        """Write the changes in one step.

        Raises:
            FullIndexError: If the disk has no room; the changes are dropped.
            StoredIndexError: If the disk fails.
        """
        batch, self._batch = self._batch, None
        if batch is not None:
            self._write(batch)

    def _write(self, batch: WriteBatch) -> None:
        with self._faults():
            store = self.store
            if not self._is_marked:
                batch.put(_GENERATION, str(self._generation).encode())
                batch.put(_mark(self._generation), b"")
                batch.delete(_mark(self._generation - _MOST_MARKS))
            size = batch.size_in_bytes()
            store.write(batch)
            self._is_marked = True
            self._unflushed += size
            if self._unflushed >= FLUSH_BYTES:
                store.flush()
                self._begin_generation(self._generation + 1)

    def abort(self) -> None:
        """Drop the changes."""
        self._batch = None

    def close(self) -> None:
        """Drop open changes and close the files; safe to call twice."""
        self.abort()
        store, self._store = self._store, None
        if store is not None:
            with suppress(Exception):  # of a store that has failed before
                store.close()


def _mark(generation: int) -> bytes:
    return _GENERATION + max(0, generation).to_bytes(8, "big")


def _list_key(last_ms: int, number: int) -> bytes:
    """Return the key of a list: lists are in the order of their last event times."""
    first = (last_ms + 2**63).to_bytes(8, "big")
    return _LISTS + first + number.to_bytes(8, "big")


def _meta_of(store: Rdict) -> dict[str, object]:
    value = store.get(_META)
    return json.loads(value) if value else {}


def _options() -> Options:
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_FILTER_BITS, False)
    blocks.set_block_cache(_cache)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(2 * FLUSH_BYTES)  # flushed before by `commit`
    options.set_memtable_prefix_bloom_ratio(_FILTER_SHARE)
    options.set_memtable_whole_key_filtering(True)
    options.set_level_zero_file_num_compaction_trigger(8)
    # A killed process may leave a part of its last record; any other damage is an error.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1_000_000)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_max_open_files(256)
    return options
