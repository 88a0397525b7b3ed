"""An index on disk of the tuples that a source's arc holds, by identity; one task owns it.

Changes of the current batch are made in a transaction of the index. It is committed after Kafka's
transaction, and aborted with it. The index is a copy of the arc; a lost one is rebuilt from it.
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
"""Most bytes of an identity: the store's limit for keys, less its own overhead."""

_META = b"\x00meta"
_MAP_BYTES = 1 << 40  # address space, not disk: the file grows with its content
_LOCK_BYTES = 8_192
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))  # the store's errors have no number


class StoredIndexError(ErrataError):
    """The index can't be used: the folder is not writable, or the disk fails."""


class FullIndexError(StoredIndexError):
    """The disk has no room for a write; the content of the index is unchanged."""


class Index:
    """Encoded tuples by encoded identity.

    Args:
        folder: Its folder; created if missing. Nothing else may use it.
        label: Name of the content; an index with another label is emptied.
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
            # The store maps this file; without disk space the system kills the process.
            lock.write_bytes(bytes(_LOCK_BYTES))
        # A killed process loses nothing; after a power cut the index is rebuilt from the arc.
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
        is_full = any(text in str(error) for text in _FULL)
        return (FullIndexError if is_full else StoredIndexError)(
            f"index of {self.label} in {self.folder.name!r}: {error}; make room, or restart with "
            "another state folder (ERRATA_STATE): the index is then read from the arc"
        )

    def _meta(self) -> dict[str, object]:
        with self.store.begin() as transaction:
            value = transaction.get(_META)
        return json.loads(value) if value else {}

    @property
    def is_new(self) -> bool:
        """Whether nothing was written to it yet: it is the first one, or an older one was lost."""
        return not self._meta()

    @property
    def done(self) -> int:
        """The epoch up to which it is complete; -1 at first."""
        return int(str(self._meta().get("done", -1)))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """By partition of the arc, the offset from which a new attempt must read to catch up."""
        stored = self._meta().get("positions", [])
        assert isinstance(stored, list)
        return {TopicPartition(topic, partition): offset for topic, partition, offset in stored}

    def get(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the identities that are in the index, and the tuple of each."""
        with self.store.begin() as transaction, transaction.cursor() as cursor:
            pairs = cursor.getmulti(keys)
        return list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs))

    def begin(
        self,
        *,
        put: tuple[Sequence[bytes], Sequence[bytes]],
        delete: Sequence[bytes],
        done: int,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Make changes in a transaction, pending `commit`.

        Args:
            put: Identities and their tuples, of the same length.
            delete: Deleted identities.
            done: The epoch that the changes complete.
            positions: By partition of the arc, the offset from which to catch up.

        Raises:
            FullIndexError: If the disk has no room for them.
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
        """Commit the changes.

        Raises:
            FullIndexError: If the disk has no room; the changes are undone and can be retried.
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
        """Undo open changes and close the files; safe to call twice."""
        self.abort()
        self.store.close()
