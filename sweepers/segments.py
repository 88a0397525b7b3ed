"""A folder of immutable columnar files, and the manifest that lists the valid ones.

A file is valid once a manifest that names it has been renamed into place, so after a crash at any
moment a reader finds either the old state or the new one.

A file is a row of blocks, each an Arrow file of its own with a checksum in the manifest. A block is
read into memory as a whole and its checksum compared, so damage is noticed before any of it is
used. Files are not mapped: a damaged or truncated one could end the process. The blocks that were
read last are kept, up to `CACHE_BYTES` in a process. The folder is never the only copy: the owner
of a damaged or foreign one removes it, and reads its topic again.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from errata.processors.wire.replay import BlockError, pack, unpack
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.sweepers.ranges import (
    BUCKETS,
    EARLIEST_MS,
    Integers,
    Ranges,
    Zones,
    buckets,
    hashing,
    times,
)

VERSION = 3
MANIFEST = "manifest.json"
BLOCK_ROWS = 8_192
CACHE_BYTES = 128_000_000
"""Size of the blocks that a process keeps in memory."""

EPOCH, ENTERS = "@epoch", "@enters"  # the two columns of a change beside the arc's fields

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DAMAGE = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR}
"""Of the folder, or of a name in it: somebody has removed it, or has put a folder in its place."""
_NUMBER = re.compile(r"\(os error (\d+)\)")  # polars reports the number only in the text


class StoreError(ErrataError):
    """The copy on disk can't be written or read; the state of the last manifest remains valid.

    `is_full` is True if the disk is out of space.
    """

    def __init__(self, folder: Path, fault: OSError) -> None:
        self.folder = folder
        match = _NUMBER.search(str(fault))
        self.is_full = (int(match[1]) if match else fault.errno) in _FULL
        self.restart_helps = self.is_full
        super().__init__(
            f"the sweeper needs to read and write its copy in {folder}, but the system reports: "
            f"{fault}; free space or correct the permissions, and start again (nothing is lost: "
            "the copy can be read from the topic again)"
        )


class DamagedCopyError(ErrataError):
    """A file of the copy is missing, cut short, or has other bytes than were written."""

    def __init__(self, file: Path, *, what: str) -> None:
        super().__init__(f"{file.name} in {file.parent} is damaged: {what}")


class Block(msgspec.Struct, frozen=True, array_like=True):
    """What the manifest records about one block of a file.

    Args:
        offset: Where it begins, in bytes.
        size: Its size in bytes.
        checksum: CRC-32 of its bytes.
        first_ms: Smallest event time in it.
        last_ms: Largest event time in it.
        of: The smallest and the largest bucket in it (`ranges.buckets`).
    """

    offset: int
    size: int
    checksum: int
    first_ms: int
    last_ms: int
    of: tuple[int, int]


class Segment(msgspec.Struct, frozen=True):
    """What the manifest records about one file, so that it need not be opened.

    Args:
        file: Its name in the folder.
        rows: How many changes it holds.
        ended: How many of them are tuples that leave.
        first_ms: Smallest event time in it.
        last_ms: Largest event time in it.
        last_epoch: Largest epoch in it.
        blocks: Its blocks, each of `BLOCK_ROWS` rows but the last.
        starts: The event times of its first row and every `BLOCK_ROWS`-th one, in event-time order.
    """

    file: str
    rows: int
    ended: int
    first_ms: int
    last_ms: int
    last_epoch: int
    blocks: tuple[Block, ...]
    starts: tuple[int, ...]

    def rows_before(self, event_time_ms: int) -> int:
        """Return about how many changes are before an event time, never too many."""
        if self.last_ms < event_time_ms:
            return self.rows
        return max(0, bisect_left(self.starts, event_time_ms) - 1) * BLOCK_ROWS


class Form(msgspec.Struct, frozen=True):
    """What must match for files to be readable as copies of an arc."""

    version: int
    arc: str
    fields: dict[str, str]
    identity: tuple[str, ...]
    event_time: str
    event_time_shift_ms: int
    clustered: tuple[str, ...]
    hashing: int


class Manifest(msgspec.Struct, frozen=True):
    """A consistent state of the copy: the valid files, and how far they reach."""

    form: Form
    upto: int = -1
    resume: int = 0
    floor: int = 0
    incomplete_upto: int = msgspec.field(default=-1, name="gone")
    oldest_ms: int = EARLIEST_MS
    next_file: int = 0
    segments: tuple[Segment, ...] = ()


class Summary(NamedTuple):
    """What a manifest records about its segments, as arrays: there may be thousands.

    Args:
        of: The segments.
        zones: Their event times; all buckets may be in each.
        rows: How many changes each holds.
        ended: How many of them are tuples that leave.
        last_epoch: The largest epoch in each.
    """

    of: tuple[Segment, ...]
    zones: Zones
    rows: Integers
    ended: Integers
    last_epoch: Integers

    @classmethod
    def make(cls, segments: tuple[Segment, ...]) -> Summary:
        """Return the summary of some segments."""
        columns = [(s.first_ms, s.last_ms, s.rows, s.ended, s.last_epoch) for s in segments]
        first_ms, last_ms, *counts = np.array(columns, np.int64).reshape(-1, 5).T
        none = np.zeros(len(segments), np.int64)
        return cls(segments, Zones(first_ms, last_ms, none, none + BUCKETS), *counts)

    def obsolete(self, *, floor: int, oldest_ms: int) -> int:
        """Return how many changes do not matter any more as of a floor and an oldest event time.

        Each tuple that left by the floor accounts for two of them. Of tuples that are too old those
        are counted that are in blocks of their own, if the segment were in event-time order.
        """
        left = 2 * int(self.ended[self.last_epoch <= floor].sum())
        old = np.flatnonzero(self.zones.first_ms < oldest_ms).tolist()
        return left + sum(self.of[number].rows_before(oldest_ms) for number in old)


class Cache:
    """The blocks that were read last, by file, offset and checksum.

    Args:
        limit_bytes: Size of the blocks at most; the last one read is kept in any case.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._frames: OrderedDict[tuple[Path, Block], pl.DataFrame] = OrderedDict()

    def get(self, file: Path, block: Block, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return a block; `read` reads it if it is not here."""
        key = file, block
        if key in self._frames:
            self._frames.move_to_end(key)
            return self._frames[key]
        frame = self._frames[key] = read()
        self._bytes += block.size
        while self._bytes > self._limit_bytes and len(self._frames) > 1:
            (_, oldest), _ = self._frames.popitem(last=False)
            self._bytes -= oldest.size
        return frame


_CACHE = Cache(CACHE_BYTES)


class Segments:
    """The files of one copy.

    Args:
        folder: Created if missing. Only manifests and segments in it are ever removed.
        arc: The arc that is copied.
        clustered: The fields by whose `ranges.buckets` changes are ordered within a file, and then
            by event time; none: by event time.

    Raises:
        StoreError: If the folder can't be created, read or emptied.
    """

    def __init__(self, folder: Path, *, arc: Arc, clustered: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.rebuilt: str | None = None
        self._arc = arc
        self.manifest = Manifest(
            Form(
                VERSION,
                arc.name,
                {name: str(field) for name, field in arc.fields.items()},
                arc.identity,
                arc.event_time,
                arc.event_time_shift_ms,
                clustered,
                hashing(),
            )
        )
        self._unscrubbed: Iterator[tuple[Segment, Block]] = iter(())
        self._summary: Summary | None = None
        self._zones: dict[str, Zones] = {}
        """Of the blocks, by file."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / MANIFEST).exists() or any(folder.glob("segment-*.arrow")):
                self._open()
            if self.rebuilt is not None:
                _remove(folder / MANIFEST)
            self._remove_unlisted()
        except OSError as fault:
            raise StoreError(folder, fault) from fault

    def _open(self) -> None:
        """Load the state of an earlier process if its files are there and belong to this arc.

        The content of a block is checked when it is read.
        """
        try:
            stored = _decode_manifest((self.folder / MANIFEST).read_bytes())
        except (OSError, msgspec.DecodeError, ValueError) as fault:
            if isinstance(fault, OSError) and fault.errno not in _DAMAGE:
                raise
            self.rebuilt = f"it is damaged: {MANIFEST}: {fault}"
            return
        if stored.form != self.manifest.form:
            self.rebuilt = "it is a copy of another arc or of another version of this one"
            return
        for segment in stored.segments:
            file, size = self.folder / segment.file, sum(block.size for block in segment.blocks)
            if not file.is_file() or file.stat().st_size != size:
                self.rebuilt = f"it is damaged: {segment.file} is missing or cut short"
                return
        self.manifest = stored

    def read(self, segment: Segment, ranges: Ranges | None = None) -> pl.DataFrame:
        """Return changes of a segment, in event-time order if it is not clustered.

        Args:
            segment: The segment.
            ranges: Only blocks that may hold changes of these are read; None for all.

        Raises:
            DamagedCopyError: If a block is damaged.
        """
        numbers: Iterable[int] = range(len(segment.blocks))
        if ranges is not None:
            numbers = ranges.touched(self._zones_of(segment))
        wanted = [self._block(segment, segment.blocks[number]) for number in numbers]
        return pl.concat(wanted, rechunk=False) if wanted else pl.DataFrame()  # without columns

    @property
    def clustered(self) -> tuple[str, ...]:
        """The fields by which changes are ordered within a file; none: by event time."""
        return self.manifest.form.clustered

    def touched(self, ranges: Ranges) -> list[Segment]:
        """Return the segments that may hold changes of some ranges."""
        segments = self.manifest.segments
        return [segments[number] for number in ranges.touched(self.summary.zones)]

    @property
    def summary(self) -> Summary:
        """What the manifest records about all segments."""
        if self._summary is None or self._summary.of is not self.manifest.segments:
            self._summary = Summary.make(self.manifest.segments)
        return self._summary

    def _zones_of(self, segment: Segment) -> Zones:
        if segment.file not in self._zones:
            blocks = segment.blocks
            numbers = ((b.first_ms, b.last_ms, *b.of) for b in blocks)
            self._zones[segment.file] = Zones(*np.array([*numbers], np.int64).T)
        return self._zones[segment.file]

    def rows(self, segment: Segment, rows: npt.NDArray[np.int64]) -> pl.DataFrame:
        """Return some changes of a segment, by ascending row.

        Raises:
            DamagedCopyError: If a block is damaged.
        """
        numbers = rows // BLOCK_ROWS
        gathered: pl.DataFrame = pl.concat(
            self._block(segment, segment.blocks[number])[rows[numbers == number] % BLOCK_ROWS]
            for number in np.unique(numbers).tolist()
        )
        return gathered

    def scrub(self) -> None:
        """Check the next block on the disk; all of them are checked in turn.

        Raises:
            DamagedCopyError: If it is damaged.
        """
        of_all = (
            (segment, block) for segment in self.manifest.segments for block in segment.blocks
        )
        segment, block = next(self._unscrubbed, (None, None))
        if segment is None or block is None:
            self._unscrubbed = iter(list(of_all))
        elif segment in self.manifest.segments:
            self._bytes_of(segment, block)

    def _block(self, segment: Segment, block: Block) -> pl.DataFrame:
        file = self.folder / segment.file
        return _CACHE.get(file, block, lambda: self._unpacked(segment, block))

    def _unpacked(self, segment: Segment, block: Block) -> pl.DataFrame:
        try:
            return unpack(self._bytes_of(segment, block))
        except BlockError as error:
            raise DamagedCopyError(self.folder / segment.file, what=str(error)) from error

    def _bytes_of(self, segment: Segment, block: Block) -> bytes:
        path = self.folder / segment.file
        try:
            with path.open("rb") as file:
                content = os.pread(file.fileno(), block.size, block.offset)
        except OSError as error:
            raise DamagedCopyError(path, what=str(error)) from error
        if zlib.crc32(content) != block.checksum:
            where = f"bytes {block.offset} to {block.offset + block.size}"
            raise DamagedCopyError(path, what=f"{where} have another checksum")
        return content

    def commit(self, frames: Iterable[pl.DataFrame], manifest: Manifest) -> None:
        """Write frames of changes as segments and add them to `manifest`, in one atomic step.

        Args:
            frames: Each in event-time order and not empty; may be a generator.
            manifest: The new state, without the new segments.

        Raises:
            StoreError: If the disk refuses; then nothing has changed.
            DamagedCopyError: If the folder is gone, or has folders in place of files.
        """
        new: list[Segment] = []
        try:
            for frame in frames:
                name = f"segment-{manifest.next_file + len(new)}.arrow"
                new.append(self._written(name, frame))
            manifest = msgspec.structs.replace(
                manifest,
                next_file=manifest.next_file + len(new),
                segments=manifest.segments + tuple(new),
            )
            encoded = _encode_manifest(manifest)
            self._replace(MANIFEST, lambda file: file.write(encoded))
        except OSError as fault:
            with suppress(OSError):
                self._remove_unlisted()
            if fault.errno in _DAMAGE:
                raise DamagedCopyError(self.folder / MANIFEST, what=str(fault)) from fault
            raise StoreError(self.folder, fault) from fault
        self.manifest = manifest
        listed = {segment.file for segment in manifest.segments}
        self._zones = {file: zones for file, zones in self._zones.items() if file in listed}
        with suppress(OSError):  # costs only space; the next opening tries again
            self._remove_unlisted()

    def _written(self, name: str, frame: pl.DataFrame) -> Segment:
        starts = times(frame, self._arc)[::BLOCK_ROWS].tolist()
        of = buckets(frame, self.clustered, self._arc)
        if self.clustered:
            order = np.argsort(of, kind="stable")
            frame, of = frame[order], of[order]
        at, blocks, packed, offset = times(frame, self._arc), list[Block](), list[bytes](), 0
        for row in range(0, frame.height, BLOCK_ROWS):
            content, rows = pack(frame.slice(row, BLOCK_ROWS)), slice(row, row + BLOCK_ROWS)
            first_ms, last_ms = int(at[rows].min()), int(at[rows].max())
            bounds = int(of[rows][0]), int(of[rows][-1])
            packed.append(content)
            blocks.append(
                Block(offset, len(content), zlib.crc32(content), first_ms, last_ms, bounds)
            )
            offset += len(content)
        self._replace(name, lambda file: file.writelines(packed))
        return Segment(
            file=name,
            rows=frame.height,
            ended=frame.height - int(frame[ENTERS].sum()),
            first_ms=int(at.min()),
            last_ms=int(at.max()),
            last_epoch=cast(int, frame[EPOCH].max()),
            blocks=tuple(blocks),
            starts=tuple(starts),
        )

    def _replace(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Rename a file into place once all of it is on disk."""
        part = self.folder / f"{name}.part"
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.folder / name)

    def _remove_unlisted(self) -> None:
        """Remove the files of an interrupted write or of an older state."""
        listed = {segment.file for segment in self.manifest.segments}
        for path in [*self.folder.glob("segment-*.arrow*"), *self.folder.glob(f"{MANIFEST}.part")]:
            if path.name not in listed:
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, or a folder in its place; it may be gone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest with its checksum in the first line."""
    encoded = msgspec.json.encode(manifest)
    return f"{zlib.crc32(encoded):08x}\n".encode() + encoded


def _decode_manifest(stored: bytes) -> Manifest:
    checksum, _, encoded = stored.partition(b"\n")
    if checksum != f"{zlib.crc32(encoded):08x}".encode():
        raise ValueError("it has another checksum, or none (an older version wrote it)")
    return msgspec.json.decode(encoded, type=Manifest)
