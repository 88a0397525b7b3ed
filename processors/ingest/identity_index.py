"""What a source's arc holds, by identity: an index on disk that one ingest task owns.

It is ahead of the arc's topic by the batch in hand: changes are made in a transaction of the index
that is committed after Kafka's and undone with it. It is a copy; the arc is the truth, and a lost
index is read from it again.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import lmdb

from errata.schemas.errors import ErrataError
from errata.topics.cluster import TopicPartition

LONGEST_KEY = 500
"""Bytes of an identity at most: what the store can hold as a key, less what it needs itself."""

_META = b"\x00meta"
_MAP_BYTES = 1 << 40  # address space, not disk: the file grows with what is in it
_LOCK_BYTES = 8_192
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))  # the store tells no number


class StoredIndexError(ErrataError):
    """The index can't be used: the folder is not writable, or the disk fails."""


class FullIndexError(StoredIndexError):
    """There is no room for what is to be written; what is in the index still stands."""


class Index:
    """Encoded tuples by encoded identity.

    Args:
        folder: Where it is kept; made if there is none. Others must not use it.
        label: What it is an index of; one of another label is emptied.
    """

    def __init__(self, folder: Path, *, label: str) -> None:
        self.folder, self.label = folder, label
        try:
            self._open()
            meta = self._meta()
            if meta.get("label", label) != label:
                self._wipe()
        except lmdb.CorruptedError:
            self._wipe()
        except (lmdb.Error, OSError) as error:
            raise self._error(error) from error
        self.transaction: lmdb.Transaction | None = None

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self.folder / "lock.mdb"
        if not lock.exists() or lock.stat().st_size < _LOCK_BYTES:
            # The store maps this file: where there is no room for it the system ends the process.
            lock.write_bytes(bytes(_LOCK_BYTES))
        # A killed process loses nothing; after a power cut the index is read from the arc again.
        self.store = lmdb.open(
            str(self.folder), map_size=_MAP_BYTES, sync=False, metasync=False, max_dbs=0
        )

    def _wipe(self) -> None:
        store = getattr(self, "store", None)
        if store is not None:
            store.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._open()

    def _error(self, error: Exception) -> StoredIndexError:
        is_full = any(told in str(error) for told in _FULL)
        return (FullIndexError if is_full else StoredIndexError)(
            f"index of {self.label} in {self.folder.name!r}: {error}; make room, or start "
            "again with another state folder (ERRATA_STATE): it is read from the arc"
        )

    def _meta(self) -> dict[str, object]:
        with self.store.begin() as transaction:
            found = transaction.get(_META)
        return json.loads(found) if found else {}

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written to it: it is a first one, or one was lost."""
        return not self._meta()

    @property
    def done(self) -> int:
        """The epoch up to which it is complete; -1 at first."""
        return int(str(self._meta().get("done", -1)))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """By partition of the arc, the offset from which a new life must read to catch up."""
        found = self._meta().get("positions", [])
        assert isinstance(found, list)
        return {TopicPartition(topic, partition): offset for topic, partition, offset in found}

    def get(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return which of the identities are there, and the tuple of each that is."""
        with self.store.begin() as transaction, transaction.cursor() as cursor:
            found = cursor.getmulti(keys)
        return list(map(itemgetter(0), found)), list(map(itemgetter(1), found))

    def begin(
        self,
        *,
        put: tuple[Sequence[bytes], Sequence[bytes]],
        delete: Sequence[bytes],
        done: int,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Make changes that count once `commit` is called.

        Args:
            put: Identities and their tuples.
            delete: Identities that are gone.
            done: The epoch they complete.
            positions: Where to read on from, by partition of the arc.

        Raises:
            FullIndexError: If there is no room for them.
        """
        self.abort()
        try:
            self.transaction = self.store.begin(write=True)
            deque(map(self.transaction.delete, delete), maxlen=0)
            with self.transaction.cursor() as cursor:
                cursor.putmulti(list(zip(*put, strict=True)))
            meta = {
                "label": self.label,
                "done": done,
                "positions": [[p.topic, p.partition, o] for p, o in positions.items()],
            }
            self.transaction.put(_META, json.dumps(meta).encode())
        except (lmdb.Error, OSError) as error:
            self.abort()
            raise self._error(error) from error

    def commit(self) -> None:
        """Keep the changes.

        Raises:
            FullIndexError: If there is no room; they are undone, and can be made again.
        """
        if self.transaction is not None:
            try:
                self.transaction.commit()
            except (lmdb.Error, OSError) as error:
                raise self._error(error) from error
            finally:
                self.transaction = None

    def abort(self) -> None:
        """Undo the changes."""
        if self.transaction is not None:
            self.transaction.abort()
            self.transaction = None

    def close(self) -> None:
        """Undo what is open and give the files back; safe to call twice."""
        self.abort()
        self.store.close()
