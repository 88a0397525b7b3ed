"""What a writer of a compacted topic must see to: tombstones for its deletes, and lost last words.

The broker's cleaner keeps the last record of a key, whether readers believe it or not
(``docs/protocol.md#10-compaction-and-tombstones``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from errata.schemas import revisions as frames


@dataclass(frozen=True)
class Emission:
    """Revisions that one epoch gave for an arc, and the partition of each."""

    arc: str
    epoch: int
    revisions: pl.DataFrame
    partitions: pl.Series


class Grave(NamedTuple):
    """A delete that wants a tombstone: its arc, partition and record key."""

    arc: str
    partition: int
    key: bytes


class Graves:
    """The deletes of one life that have no tombstone yet, and that are their keys' last records."""

    def __init__(self) -> None:
        self._epochs: dict[Grave, int] = {}

    def __len__(self) -> int:
        return len(self._epochs)

    def dig(self, emission: Emission, keys: list[bytes]) -> None:
        """Remember the deletes of an emission, and forget those that it follows.

        Args:
            emission: What was committed.
            keys: The record key of each of its revisions.
        """
        dead = emission.revisions["op"] == frames.DELETE
        touched = dead
        waiting = {grave.key for grave in self._epochs if grave.arc == emission.arc}
        if waiting:
            touched |= pl.Series(map(waiting.__contains__, keys), dtype=pl.Boolean)
        for row in touched.arg_true():  # few: deletes, and what follows them
            grave = Grave(emission.arc, emission.partitions[row], keys[row])
            self._epochs.pop(grave, None)
            if dead[row]:
                self._epochs[grave] = emission.epoch

    def ripe(self, passed: Callable[[str, int], int]) -> list[Grave]:
        """Return the graves whose deletes every reader has passed.

        Args:
            passed: The epoch that all readers of an arc's partition have passed.
        """
        places = {(grave.arc, grave.partition) for grave in self._epochs}
        upto = {place: passed(*place) for place in places}
        return [g for g, epoch in self._epochs.items() if epoch <= upto[g.arc, g.partition]]

    def forget(self, graves: Iterable[Grave]) -> None:
        """Leave out graves that have their tombstone."""
        for grave in graves:
            del self._epochs[grave]

    def clear(self) -> None:
        """Forget all: a doubtful commit may have written again to what was to be buried."""
        self._epochs.clear()


def last_of(
    revisions: pl.DataFrame, identities: pl.DataFrame, *, identity: list[str]
) -> pl.DataFrame:
    """Return the last revision of each of some identities."""
    named = pl.concat([revisions, frames.identities(revisions, identity)], how="horizontal")
    wanted = named.join(identities, on=identity, how="semi", nulls_equal=True)
    return frames.last(wanted.select(revisions.columns), identity)
