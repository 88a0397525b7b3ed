"""Rows of state by key, in proportion to what changes: a small log-structured map.

Spark's store reads and writes whole values, and each costs a round trip of a millisecond or two
between Python and Java: neither one value for each group nor one for all of them will do. So the
rows of a *slab*, a range of event time, are kept in

* *blocks* of about a megabyte: each holds the rows of a range of *places*, a hash of the group;
* *deltas*: the rows that one write has changed, and the keys of those that are gone. Eight deltas
  of about the same size are merged into one. When all of them have a quarter of the blocks' bytes,
  they are folded into the blocks that they change.

A read takes the blocks of the places that it asks for, and all deltas; the newest row of a key
counts. A write adds one delta. So each byte of a change is written about three times in the end.

No blob is ever written twice under one number: the index of its slab says which ones count. So what
a process has read of a blob holds for ever, also if the write that made it is undone and done again
(`Cached`).
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import astuple, dataclass, field
from itertools import takewhile
from typing import Protocol

import numpy as np
import polars as pl

from errata.processors.wire.replay import pack, unpack
from errata.schemas import by_column

PLACE = "@place"
"""Column of a row's place: a hash of its group, the same for all rows of a group."""
PLACE_BITS = 30
_GONE, _ROW = "@gone", "@row"

BLOCK_BYTES = 1 << 20
FOLD_BYTES = 1 << 16
"""Deltas of fewer bytes are not folded, however small the blocks are."""
FOLD_SHARE = 4
MOST_DELTAS = 8
"""How many deltas of about the same size there may be, less one."""
_LEVEL_BITS = 3
"""Sizes are about the same if they have the same number of bits, divided by this."""

_SLABS = (-(1 << 63), 0)
_INDEX = 0

Key = tuple[int, int]
"""A slab and the number of a blob; 0 for the slab's index."""


class Blobs(Protocol):
    """Where the map is kept, for example a map in Spark's store."""

    def get(self, key: Key) -> bytes | None:
        """Return a blob; None if there is none."""

    def put(self, key: Key, blob: bytes) -> None:
        """Write a blob."""

    def remove(self, key: Key) -> None:
        """Remove a blob."""


Maps = Callable[[str], Blobs]
"""Returns where a map is kept, by its name: the state of a part of a step may have several."""


@dataclass
class _Blob:
    """A blob that counts.

    Args:
        number: Its number in the slab.
        size: Its bytes.
        first: Of a block: its first place; it ends where the next one begins.
    """

    number: int
    size: int
    first: int = 0

    @property
    def level(self) -> int:
        """Deltas of the same level have about the same size."""
        return self.size.bit_length() // _LEVEL_BITS


@dataclass
class _Index:
    """What counts of a slab.

    Args:
        blocks: The blocks, by their first place.
        deltas: The deltas, the oldest first.
    """

    blocks: list[_Blob] = field(default_factory=list)
    deltas: list[_Blob] = field(default_factory=list)

    def pack(self) -> bytes:
        """Return it as bytes."""
        blobs = [[astuple(blob) for blob in blobs] for blobs in (self.blocks, self.deltas)]
        return json.dumps(blobs).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> _Index:
        """Return what `pack` wrote."""
        return cls(*([_Blob(*blob) for blob in blobs] for blobs in json.loads(packed)))

    @property
    def blobs(self) -> list[_Blob]:
        """All blobs."""
        return [*self.blocks, *self.deltas]

    @property
    def is_due(self) -> bool:
        """Whether the deltas are to be folded into the blocks."""
        base = sum(block.size for block in self.blocks)
        return sum(delta.size for delta in self.deltas) > max(FOLD_BYTES, base // FOLD_SHARE)

    def numbers(self, places: pl.Series) -> pl.Series:
        """Return by place the number of its block; 0 if there is none yet."""
        firsts = [block.first for block in self.blocks[1:]]  # the first one begins with all places
        return pl.Series(np.searchsorted(firsts, places.to_numpy(), side="right"))


class StateMap:
    """Rows by key, in slabs.

    Args:
        blobs: Where they are kept.
        nothing: An empty frame of rows, with the column `PLACE`.
        keys: The columns that identify a row.
    """

    def __init__(self, blobs: Blobs, nothing: pl.DataFrame, keys: Sequence[str]) -> None:
        self.blobs, self.nothing, self.keys = blobs, nothing, list(keys)

    @property
    def slabs(self) -> list[int]:
        """The slabs that have been written and not dropped, in order."""
        packed = self.blobs.get(_SLABS)
        return [] if packed is None else np.frombuffer(packed, np.int64).tolist()

    def read(self, slab: int, places: pl.Series | None = None) -> pl.DataFrame:
        """Return the rows of some places, or all.

        Args:
            slab: The slab.
            places: The places; None for all.
        """
        index = self._index(slab)
        blocks = index.blocks
        if places is not None and blocks:
            blocks = [blocks[number] for number in index.numbers(places).unique().sort()]
        parts = [_at(self._frame(slab, blob), places) for blob in [*blocks, *index.deltas]]
        return self._newest(parts)

    def places(self, slab: int, wanted: Callable[[pl.DataFrame], pl.Series]) -> pl.Series:
        """Return the places that may have a row for which `wanted` is true, each once."""
        found = [self.nothing[PLACE]]
        for blob in self._index(slab).blobs:
            rows = self._frame(slab, blob)
            present = rows if _GONE not in rows.columns else by_column.kept(rows, ~rows[_GONE])
            found.append(by_column.kept(present, wanted(present))[PLACE])
        return pl.concat(found).unique()

    def write(
        self,
        slab: int,
        rows: pl.DataFrame,
        gone: pl.DataFrame,
        *,
        kept: Callable[[pl.DataFrame], pl.Series],
    ) -> None:
        """Write rows, and remove others.

        Args:
            slab: The slab.
            rows: New and changed rows.
            gone: Keys and places of rows that are no more.
            kept: Whether each row is still of use; others are left out when deltas are folded.
        """
        if rows.is_empty() and gone.is_empty():
            return
        index, missing = self._index(slab), [n for n in rows.columns if n not in gone.columns]
        if not index.blobs:
            slabs = np.array(sorted({*self.slabs, slab}), np.int64)
            self.blobs.put(_SLABS, slabs.tobytes())
        blank = self.nothing.select(missing).clear(gone.height)
        removed = by_column.pick(gone.hstack(blank), rows.columns)
        delta = pl.concat([_marked(removed, is_gone=True), _marked(rows, is_gone=False)])
        blob, packed = _packed(delta)
        index.deltas.append(blob)
        if index.is_due:
            index = self._folded(slab, index, delta, kept)
        else:
            self.blobs.put((slab, blob.number), packed)
            self._merge(slab, index)
        self.blobs.put((slab, _INDEX), index.pack())

    def drop(self, slab: int) -> None:
        """Remove all rows of a slab."""
        self._drop(slab, self._index(slab).blobs)
        self.blobs.remove((slab, _INDEX))
        slabs = np.array([other for other in self.slabs if other != slab], np.int64)
        self.blobs.put(_SLABS, slabs.tobytes())

    def _index(self, slab: int) -> _Index:
        packed = self.blobs.get((slab, _INDEX))
        return _Index() if packed is None else _Index.unpack(packed)

    def _frame(self, slab: int, blob: _Blob) -> pl.DataFrame:
        packed = self.blobs.get((slab, blob.number))
        assert packed is not None  # the index and what it names are written together
        return unpack(packed)

    def _put(self, slab: int, rows: pl.DataFrame, first: int = 0) -> _Blob:
        blob, packed = _packed(rows, first)
        self.blobs.put((slab, blob.number), packed)
        return blob

    def _drop(self, slab: int, blobs: Sequence[_Blob]) -> None:
        for blob in blobs:
            self.blobs.remove((slab, blob.number))

    def _last(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the newest row of each key, or the mark that it is gone."""
        every = pl.concat(parts)
        return every.unique(self.keys, keep="last", maintain_order=True)

    def _newest(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the newest row of each key, without those that are gone."""
        marked = [part if _GONE in part.columns else _marked(part, is_gone=False) for part in parts]
        last = self._last([_marked(self.nothing, is_gone=False), *marked])
        return by_column.kept(last, ~last[_GONE]).drop(_GONE)

    def _merge(self, slab: int, index: _Index) -> None:
        """Make one delta of several of about the same size, again and again."""
        while len(alike := _alike(index.deltas)) >= MOST_DELTAS:
            merged = self._last([self._frame(slab, blob) for blob in alike])
            self._drop(slab, alike)
            index.deltas[-len(alike) :] = [self._put(slab, merged)]

    def _folded(
        self,
        slab: int,
        index: _Index,
        newest: pl.DataFrame,
        kept: Callable[[pl.DataFrame], pl.Series],
    ) -> _Index:
        """Write the blocks that the deltas change again; the newest delta was never written."""
        *older, last = index.deltas
        delta = self._last([*(self._frame(slab, blob) for blob in older), newest])
        row_bytes = max(1, last.size // newest.height)
        numbers, blocks = index.numbers(delta[PLACE]), list[_Blob]()
        changed, held = set(numbers.unique()), list[pl.DataFrame]()
        candidates: list[_Blob | None] = [*index.blocks] or [None]
        for number, block in enumerate(candidates):
            if number in changed:
                old = [] if block is None else [self._frame(slab, block)]
                rows = self._newest([*old, by_column.kept(delta, numbers == number)])
                held.append(by_column.kept(rows, kept(rows)))
                is_enough = sum(rows.height for rows in held) * row_bytes >= BLOCK_BYTES
                if not is_enough and number + 1 in changed:
                    continue  # what has become small joins the next one
                blocks += self._split(slab, pl.concat(held), row_bytes)
                held.clear()
            elif block is not None:
                blocks.append(block)
        unchanged = {block.number for block in blocks}
        self._drop(slab, [b for b in (*index.blocks, *older) if b.number not in unchanged])
        return _Index(blocks)

    def _split(self, slab: int, rows: pl.DataFrame, row_bytes: int) -> list[_Blob]:
        """Write rows as blocks, each of a range of places."""
        rows = rows.sort(PLACE, maintain_order=True)
        places, each = rows[PLACE].to_numpy(), max(1, BLOCK_BYTES // row_bytes)
        firsts = np.searchsorted(places, places[::each])
        starts = np.unique(firsts).tolist()  # a place is in one block
        ends = [*starts[1:], len(places)][: len(starts)]
        return [
            self._put(slab, rows.slice(start, end - start), int(places[start]))
            for start, end in zip(starts, ends, strict=True)
        ]


class Cached:
    """Blobs of which some that were read are kept in memory.

    An index is always read: it may have been undone. Other blobs never change.

    Args:
        blobs: Where they are kept.
        owner: What tells the blobs of this map from others in the same process.
        cache: The blobs in memory, shared by the maps of a process.
    """

    def __init__(self, blobs: Blobs, owner: Hashable, cache: Cache) -> None:
        self._blobs, self._owner, self._cache = blobs, owner, cache

    def get(self, key: Key) -> bytes | None:
        """Return a blob; None if there is none."""
        if key[1] == _INDEX:
            return self._blobs.get(key)
        found = self._cache.get((self._owner, key))
        if found is None:
            found = self._blobs.get(key)
            self._cache.put((self._owner, key), found)
        return found

    def put(self, key: Key, blob: bytes) -> None:
        """Write a blob."""
        self._blobs.put(key, blob)
        if key[1] != _INDEX:
            self._cache.put((self._owner, key), blob)

    def remove(self, key: Key) -> None:
        """Remove a blob."""
        self._blobs.remove(key)
        self._cache.remove((self._owner, key))


class Cache:
    """Blobs by key, of at most so many bytes.

    Those that have not been used for long make room for others; if there are none, others are not
    kept: where all of a large map is read again and again, some of it is found.

    Args:
        most_bytes: How many bytes at most.
    """

    UNUSED = 10_000
    """After so many uses of others a blob makes room."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.bytes, self._uses = most_bytes, 0, 0
        self._blobs: OrderedDict[Hashable, tuple[int, bytes]] = OrderedDict()

    def get(self, key: Hashable) -> bytes | None:
        """Return a blob; None if it is not here."""
        self._uses += 1
        if key not in self._blobs:
            return None
        _, blob = self._blobs[key]
        self._blobs[key] = self._uses, blob
        self._blobs.move_to_end(key)
        return blob

    def put(self, key: Hashable, blob: bytes | None) -> None:
        """Keep a blob, if there is room."""
        if blob is None or key in self._blobs:
            return
        while self._blobs and self.bytes + len(blob) > self.most_bytes:
            oldest, (used, _) = next(iter(self._blobs.items()))
            if used > self._uses - self.UNUSED:
                return
            self.remove(oldest)
        if len(blob) <= self.most_bytes:
            self._blobs[key] = self._uses, blob
            self.bytes += len(blob)

    def remove(self, key: Hashable) -> None:
        """Forget a blob."""
        if key in self._blobs:
            _, blob = self._blobs.pop(key)
            self.bytes -= len(blob)


def _packed(rows: pl.DataFrame, first: int = 0) -> tuple[_Blob, bytes]:
    """Return rows as a blob with a number that no other has, and its bytes."""
    packed = pack(rows, is_small=True)
    return _Blob(1 + secrets.randbits(62), len(packed), first), packed


def _marked(rows: pl.DataFrame, *, is_gone: bool) -> pl.DataFrame:
    mark = by_column.constant(is_gone, rows.height, pl.Boolean)
    return by_column.beside(rows, mark.alias(_GONE))


def _at(rows: pl.DataFrame, places: pl.Series | None) -> pl.DataFrame:
    return rows if places is None else by_column.kept(rows, rows[PLACE].is_in(places.implode()))


def _alike(deltas: Sequence[_Blob]) -> list[_Blob]:
    """Return the newest deltas that are no larger, by their level, than the newest one."""
    level = deltas[-1].level
    return list(takewhile(lambda delta: delta.level <= level, reversed(deltas)))[::-1]


def changed_rows(before: pl.DataFrame, after: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the rows of `after` that are new, or differ from the row of their key in `before`."""
    if before.is_empty():
        return after
    known = by_column.pick(before, keys).with_row_index(_ROW)
    rows = by_column.pick(after, keys).join(
        known, on=keys, how="left", nulls_equal=True, maintain_order="left"
    )[_ROW]
    is_new = rows.is_null()
    differs, old = is_new.clone(), by_column.rows(before, rows.fill_null(0))
    for name in after.columns:
        differs |= after[name].ne_missing(old[name])
    return by_column.kept(after, differs)
