"""A sweeper's copy on disk of one partition of its arc, with the past versions of each tuple.

A revision is kept as *changes*: the tuple that it removes leaves, the tuple that it adds enters,
each at the event time and in the group of its own values. So the change that ends a version is
stored at the same place as the version, and one range scan reads both: a tuple is alive as of an
epoch iff it has entered by then and has not left since (as in the traces of Differential Dataflow).
Within an epoch, leaving changes precede entering ones.

The newest changes are in memory, in event-time order, the others in immutable segments
(`sweepers.segments`). A segment is ordered by the groups that boxes request, if the plan knows them
(`clustered`): a request of one group reads one block of each segment of its time, not all of them.
Only segments survive the process: a restart begins at the last sealed epoch and
reads on from the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import polars as pl

from errata.processors.wire.replay import size_of
from errata.schemas import by_column
from errata.schemas import revisions as rev
from errata.schemas.arc import Arc
from errata.schemas.fields import physical
from errata.sweepers import segments
from errata.sweepers.ranges import (
    EARLIEST_MS,
    LATEST_MS,
    ONE,
    EpochOrderError,
    HistoryRemovedError,
    Integers,
    NotYetCompleteError,
    Ranges,
    join_keys,
    one,
    times,
)
from errata.sweepers.segments import ENTERS, EPOCH, Manifest, Segments

NO_LIMIT = 2**62


@dataclass(frozen=True)
class Part:
    """A part of an answer: all tuples of what it covers.

    Args:
        tuples: The tuples.
        covered: How many of the requested ranges, from the first, it covers.
        upto_ms: Of these it covers the event times before this.
    """

    tuples: pl.DataFrame
    covered: int
    upto_ms: int


class Store:
    """An indexed copy of one arc partition, in its own folder.

    Memory: the tail (below `segment_rows` changes, plus one append) and blocks of the files
    (`segments.CACHE_BYTES` in a process); a rewrite holds the identities and epochs of all changes
    while it runs. Only one process at a time may use a folder. Whatever reads the files may raise
    `DamagedCopyError`: the copy is to be read from the topic again then.

    Args:
        folder: Created if missing. Damaged files and those of another arc are removed, since the
            copy can be read from the topic again; `rebuilt` then says why.
        arc: The arc; laws L2 and L3 must hold for it.
        clustered: Fields that most requests name: the changes of a group are together in a file.
        segment_rows: How many changes are collected before they are sealed; a replace is two.

    Raises:
        StoreError: If the folder can't be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        arc: Arc,
        clustered: tuple[str, ...] = (),
        segment_rows: int = 65_536,
    ) -> None:
        self._arc = arc
        self._segment_rows = segment_rows
        self._segments = Segments(folder, arc=arc, clustered=clustered)
        self._tail: list[pl.DataFrame] = []
        self.upto = self._durable.upto
        self._resume = self._durable.resume
        self.floor = self._durable.floor
        self.incomplete_upto = self._durable.incomplete_upto
        """The last epoch whose versions may be incomplete; -1 if there is none."""
        self._oldest_ms = self._durable.oldest_ms

    @property
    def _durable(self) -> Manifest:
        return self._segments.manifest

    @property
    def rebuilt(self) -> str | None:
        """Why the folder was emptied when it was opened; None if it was not."""
        return self._segments.rebuilt

    @property
    def resume(self) -> int:
        """The offset from which a restarted process must read to follow on the sealed part."""
        return self._durable.resume

    @property
    def sealed(self) -> int:
        """The last epoch that a restarted process finds in the copy, or reads from the start.

        Later epochs are read from the topic again, so deletes in them must not be tombstoned yet.
        """
        return self.upto if self._durable.upto < 0 else self._durable.upto

    def append(
        self, revisions: pl.DataFrame, *, upto: int, resume: int, incomplete_upto: int = -1
    ) -> None:
        """Append the revisions of complete epochs; seal the tail once it is large enough.

        Args:
            revisions: A frame of revisions with their ``epoch``, in any order; may be empty.
            upto: The last epoch that is complete with them, at least the one before.
            resume: Offset from which to read so as to miss nothing after epoch `upto`.
            incomplete_upto: The last epoch of which versions may be missing; -1 for none. Answers
                are wrong then until `settle`.

        Raises:
            EpochOrderError: If an epoch is not in (previous upto, `upto`].
            StoreError: If the write fails; then nothing was appended.
        """
        epochs = revisions["epoch"]
        first, last = cast(
            tuple[int, int],
            (self.upto + 1, upto) if epochs.is_empty() else (epochs.min(), epochs.max()),
        )
        if upto < self.upto or first <= self.upto or last > upto:
            raise EpochOrderError(self._arc.name, actual=(first, last), after=self.upto, upto=upto)
        tail = list(self._tail)
        if len(epochs):
            tail.append(self._changes(revisions))
        # merge at least halves: few parts to search, each row sorted a logarithmic number of times
        while len(tail) > 1 and tail[-2].height < 2 * tail[-1].height:
            tail[-2:] = [self._in_order(tail[-2:])]
        if sum(part.height for part in tail) >= self._segment_rows:
            incomplete = max(incomplete_upto, self.incomplete_upto)
            self._seal(tail, upto=upto, resume=resume, incomplete_upto=incomplete)
            tail = []
        self._tail, self.upto, self._resume = tail, upto, resume
        self.incomplete_upto = max(incomplete_upto, self.incomplete_upto)

    def as_of(
        self,
        epoch: int,
        ranges: pl.DataFrame | None,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
    ) -> pl.DataFrame:
        """Return the tuples in the ranges that are alive as of an epoch, each once, in any order.

        Args:
            epoch: From `floor` to `upto`.
            ranges: Columns ``from_ms`` and ``to_ms`` (half-open event time) and any of the arc's
                fields that must be equal (null equals null, NaN equals NaN); None for all.
            from_ms: Smallest event time, whatever the ranges say; None for no limit.
            to_ms: Event time before which all tuples are; None for no limit.

        Raises:
            HistoryRemovedError: If `epoch` is below `floor`.
            NotYetCompleteError: If `epoch` is above `upto`.
        """
        requested = self._ranges(ranges, from_ms=EARLIEST_MS if from_ms is None else from_ms)
        if to_ms is not None:
            requested = requested.before(to_ms)
        changes, _ = self._changes_of(epoch, requested)
        return self._tuples(changes)

    def part(self, epoch: int, ranges: pl.DataFrame, *, most_bytes: int) -> Part:
        """Return the tuples of ranges that are alive as of an epoch: of the first ones, if many.

        The event times are cut until the changes fit. If they can't be cut further, the number of
        ranges is halved. The tuples of one range with one event time are not cut, so that a part
        always covers something.

        Args:
            epoch: From `floor` to `upto`.
            ranges: See `as_of`.
            most_bytes: Size of the changes at most.

        Raises:
            HistoryRemovedError: If `epoch` is below `floor`.
            NotYetCompleteError: If `epoch` is above `upto`.
        """
        to_ms, requested = LATEST_MS, self._ranges(ranges)
        while True:
            narrowed = requested.before(to_ms)
            changes, is_whole = self._changes_of(epoch, narrowed, most_bytes=most_bytes)
            if is_whole:
                return Part(self._tuples(changes), ranges.height, to_ms)
            cut_ms = self._cut_at(ranges, to_ms, times(changes, self._arc))
            if cut_ms is not None:
                to_ms = cut_ms
            elif ranges.height > 1:
                ranges, to_ms = ranges[: ranges.height // 2], LATEST_MS
                requested = self._ranges(ranges)
            else:
                most_bytes = NO_LIMIT

    def _cut_at(self, ranges: pl.DataFrame, to_ms: int, found: Integers) -> int | None:
        """Return the event time to cut ranges at that are too large; None if they can't be cut.

        It halves the blocks, or is earlier where much is found: most of what was found is before
        it, so that no part is tiny.
        """
        ends = ranges.select(pl.col("from_ms").min(), pl.col("to_ms").max())
        ((first_ms, end_ms),) = ends.rows()
        sealed = chain.from_iterable(segment.starts for segment in self._durable.segments)
        tail = (times(part, self._arc)[:: segments.BLOCK_ROWS].tolist() for part in self._tail)
        low, high = max(first_ms, self._oldest_ms), min(end_ms, to_ms)
        starts = sorted(s for s in {*sealed, *chain.from_iterable(tail)} if low < s < high)
        middle = starts[len(starts) // 2 :][:1]
        most = len(found) * 9 // 10
        cuts = [cut for cut in (*middle, int(np.partition(found, most)[most])) if low < cut < high]
        return min(cuts, default=None)

    def _ranges(self, ranges: pl.DataFrame | None, *, from_ms: int = EARLIEST_MS) -> Ranges:
        """Return ranges without what has been dropped."""
        from_ms = max(from_ms, self._oldest_ms)
        return Ranges(ranges, arc=self._arc, from_ms=from_ms, clustered=self._segments.clustered)

    def _changes_of(
        self, epoch: int, requested: Ranges, *, most_bytes: int = NO_LIMIT
    ) -> tuple[pl.DataFrame, bool]:
        """Return the changes up to an epoch in the ranges, and whether they are all of them.

        Above a limit it returns those found so far.
        """
        if epoch < self.floor:
            raise HistoryRemovedError(self._arc.name, epoch=epoch, floor=self.floor)
        if epoch > self.upto:
            raise NotYetCompleteError(self._arc.name, epoch=epoch, upto=self.upto)
        schema = self._schema
        parts = [pl.DataFrame(schema=schema)]
        for part, in_order in self._parts(requested):
            rows = requested.rows(part, in_order=in_order)
            if not len(rows):
                continue
            found = by_column.rows(part, pl.Series(rows))
            found = by_column.kept(found, found[EPOCH] <= epoch)
            if found.height:
                parts.append(by_column.as_schema(found, schema))
                most_bytes -= size_of(found)
                if most_bytes < 0:
                    return pl.concat(parts), False
        return pl.concat(parts), True

    def raise_floor(self, epoch: int) -> None:
        """Declare that no request will ask as of an epoch below this one.

        Versions superseded at or before it may be removed; they are removed once they are about
        half of the copy.

        Raises:
            StoreError: If a rewrite fails; then the floor is raised, but nothing is removed.
        """
        self.floor = max(self.floor, epoch)
        self._rewrite_if_worth_it()

    def settle(self, epoch: int) -> None:
        """Raise the floor and keep of each tuple only its version as of that epoch.

        For revisions that were read after compaction may have removed some in between: the revision
        that ended a version may be missing then, but never a tuple's latest version.

        Args:
            epoch: The last epoch of which versions may be missing; at most `upto`.

        Raises:
            StoreError: If the write fails; then `settle` is still due, also after a restart.
        """
        if self._tail:
            self._seal(self._tail, incomplete_upto=max(epoch, self.incomplete_upto))
        floor = max(self.floor, epoch)
        self._commit(self._kept(floor), segments=(), floor=floor, incomplete_upto=-1)
        self.floor, self.incomplete_upto = floor, -1

    def drop_before(self, event_time_ms: int) -> None:
        """Drop tuples older than this event time: immediately from answers, gradually from disk.

        They are removed from the disk once they are about half of the copy. The tail is sealed once
        they are half of it, so that a restart does not read them from the topic again.

        Raises:
            StoreError: If the write fails; then they are dropped only from answers.
        """
        self._oldest_ms = max(self._oldest_ms, event_time_ms)
        is_old = self._segments.summary.zones.last_ms < self._oldest_ms
        if is_old.any():
            pairs = zip(self._durable.segments, is_old.tolist(), strict=True)
            self._commit(iter(()), segments=tuple(s for s, old in pairs if not old))
        young = [
            part[times(part, self._arc).searchsorted(self._oldest_ms) :] for part in self._tail
        ]
        total, left = (sum(part.height for part in parts) for parts in (self._tail, young))
        if 2 * left <= total > 0:
            self._seal(young)
        self._rewrite_if_worth_it()

    def seal(self) -> None:
        """Write the tail to the disk, into one file with the last one as long as that is small.

        Raises:
            StoreError: If the write fails; then nothing has changed.
            DamagedCopyError: If that file is damaged.
        """
        if (self.upto, self._resume) == (self._durable.upto, self._durable.resume):
            return
        tail, segments = self._tail, self._durable.segments
        rows = sum(part.height for part in tail)
        if rows and segments and rows + segments[-1].rows < self._segment_rows:
            tail, segments = [self._segments.read(segments[-1]), *tail], segments[:-1]
        self._seal(tail or [pl.DataFrame(schema=self._schema)], segments=segments)

    def scrub(self) -> None:
        """Check the next block of the sealed part on the disk.

        Raises:
            DamagedCopyError: If it is damaged.
        """
        self._segments.scrub()

    @property
    def _schema(self) -> pl.Schema:
        fields = physical(self._arc.fields).items()
        return pl.Schema([(EPOCH, pl.Int64), (ENTERS, pl.Boolean), *fields])

    def _changes(self, revisions: pl.DataFrame) -> pl.DataFrame:
        """Return a frame of revisions as changes in event-time order."""
        schema, op, sides = self._schema, revisions["op"], []
        for absent, enters, prefix in (
            (rev.INSERT, False, rev.BEFORE),
            (rev.DELETE, True, rev.AFTER),
        ):
            fields = by_column.renamed(
                revisions, {name: prefix + name for name in self._arc.fields}
            )
            side = by_column.beside(
                fields,
                revisions["epoch"].alias(EPOCH),
                by_column.constant(enters, revisions.height, pl.Boolean).alias(ENTERS),
            )
            sides.append(by_column.as_schema(by_column.kept(side, op != absent), schema))
        return self._in_order(sides)

    def _in_order(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(parts).sort(self._arc.event_time)

    def _tuples(self, changes: pl.DataFrame) -> pl.DataFrame:
        return by_column.pick(self._alive(changes), self._arc.fields)

    def _alive(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the changes by which tuples enter and that no later change removes.

        By L2 and L3 a tuple leaves once between two entries, so its last leaving decides; an entry
        in the same epoch comes after it. Where the topic lacks a revision, because the brokers have
        lost it, a tuple may have entered twice: its last entry counts.
        """
        identity = list(self._arc.identity)
        keys = join_keys(self._arc.identity, self._arc)
        enters = changes[ENTERS]
        alive = by_column.kept(changes, enters)
        if alive.height < changes.height:  # often there is nothing to join
            left = by_column.kept(changes, ~enters)
            left = left.hstack([one(left.height)])
            left = left.group_by(keys).agg(pl.col(EPOCH).max().alias("@left"))
            alive = (
                alive.hstack([one(alive.height)])
                .join(left, on=keys, how="left", nulls_equal=True)
                .filter(pl.col("@left").is_null() | (pl.col(EPOCH) >= pl.col("@left")))
                .drop("@left", ONE)
            )
        if alive.height > (alive.n_unique(identity) if identity else 1):
            alive = alive.sort(EPOCH)
            alive = alive.unique(identity, keep="last") if identity else alive.tail(1)
        return alive

    def _parts(self, ranges: Ranges) -> Iterator[tuple[pl.DataFrame, bool]]:
        """Yield the frames that may hold tuples of ranges, and whether they are in time order."""
        for segment in self._segments.touched(ranges):
            part = self._segments.read(segment, ranges)
            if part.height:
                yield part, not self._segments.clustered
        yield from ((part, True) for part in self._tail)

    def _cut(self, changes: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield even pieces of `segment_rows` rows or slightly more, so that none is tiny."""
        count = max(1, changes.height // self._segment_rows)
        for piece in range(count):
            start, end = (changes.height * edge // count for edge in (piece, piece + 1))
            if end > start:
                yield changes.slice(start, end - start)

    def _seal(self, parts: list[pl.DataFrame], **state: Any) -> None:
        """Write the tail, of which `parts` are left, to the disk, with how far it reaches.

        `state` is what of that differs from now, and the rest of `_commit`'s.
        """
        reach = {
            "upto": self.upto,
            "resume": self._resume,
            "incomplete_upto": self.incomplete_upto,
        }
        self._commit(self._cut(self._in_order(parts)), **{**reach, **state})
        self._tail = []

    def _commit(self, frames: Iterator[pl.DataFrame], **state: Any) -> None:
        """Write segments; the new manifest has `state`, the floor and the oldest event time."""
        bounds = {"floor": self.floor, "oldest_ms": self._oldest_ms}
        manifest = msgspec.structs.replace(self._durable, **{**bounds, **state})
        self._segments.commit(frames, manifest)

    def _rewrite_if_worth_it(self) -> None:
        """Rewrite the segments without obsolete changes, once those are half of all or more."""
        summary = self._segments.summary
        obsolete = summary.obsolete(floor=self.floor, oldest_ms=self._oldest_ms)
        if obsolete and 2 * obsolete >= int(summary.rows.sum()):
            self._commit(self._kept(self.floor), segments=())

    def _kept(self, floor: int) -> Iterator[pl.DataFrame]:
        """Yield the sealed changes that still matter as of a floor, in event-time order."""
        segments = self._durable.segments
        if not segments:
            return
        columns = dict.fromkeys([*self._arc.identity, self._arc.event_time, EPOCH, ENTERS])
        index = pl.concat(
            self._segments.read(segment)
            .select(*columns, pl.lit(number).alias("@segment"))
            .gather_every(1)  # a copy: a slice would hold the whole block
            .with_row_index("@row")
            for number, segment in enumerate(segments)
        )
        settled = pl.col(EPOCH) <= floor
        kept = self._in_order([self._alive(index.filter(settled)), index.filter(~settled)])
        kept = kept.filter(self._arc.event_times(kept).fill_null(EARLIEST_MS) >= self._oldest_ms)
        for piece in self._cut(kept.select("@segment", "@row")):
            rows = piece.partition_by("@segment", as_dict=True)
            yield self._in_order(
                [
                    self._segments.rows(
                        segments[cast(int, number)], part["@row"].sort().cast(pl.Int64).to_numpy()
                    )
                    for (number,), part in rows.items()
                ]
            )
