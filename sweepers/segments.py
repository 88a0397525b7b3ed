"""A folder of immutable columnar files, and the manifest that lists the valid ones.

A file is valid once a manifest that names it has been renamed into place, so after a crash at any
moment a reader finds either the old state or the new one. The folder is never the only copy:
damaged or foreign files are removed, and the owner reads its topic again.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

import msgspec
import polars as pl
import pyarrow as pa

from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.sweepers.ranges import EARLIEST_MS, times

VERSION = 1
MANIFEST = "manifest.json"
MAPPED_SEGMENTS = 64

EPOCH, ENTERS = "@epoch", "@enters"  # the two columns of a change beside the arc's fields

_FULL = {errno.ENOSPC, errno.EDQUOT}
_NUMBER = re.compile(r"\(os error (\d+)\)")  # polars reports the number only in the text


class StoreError(ErrataError):
    """The copy on disk can't be written or read; the state of the last manifest remains valid.

    `is_full` is True if the disk is out of space.
    """

    def __init__(self, folder: Path, fault: OSError) -> None:
        self.folder = folder
        match = _NUMBER.search(str(fault))
        self.is_full = (int(match[1]) if match else fault.errno) in _FULL
        super().__init__(
            f"the sweeper needs to read and write its copy in {folder}, but the system reports: "
            f"{fault}; free space or correct the permissions, and start again (nothing is lost: "
            "the copy can be read from the topic again)"
        )


class Segment(msgspec.Struct, frozen=True):
    """What the manifest records about one file, so that it need not be opened.

    Args:
        file: Its name in the folder.
        rows: How many changes it holds.
        ended: How many of them are tuples that leave.
        first_ms: Smallest event time in it.
        last_ms: Largest event time in it.
        last_epoch: Largest epoch in it.
    """

    file: str
    rows: int
    ended: int
    first_ms: int
    last_ms: int
    last_epoch: int


class Form(msgspec.Struct, frozen=True):
    """What must match for files to be readable as copies of an arc."""

    version: int
    arc: str
    fields: dict[str, str]
    identity: tuple[str, ...]
    event_time: str
    event_time_shift_ms: int


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


class Segments:
    """The files of one copy.

    Args:
        folder: Created if missing. Only manifests and segments in it are ever removed.
        arc: The arc that is copied.

    Raises:
        StoreError: If the folder can't be created, read or emptied.
    """

    def __init__(self, folder: Path, *, arc: Arc) -> None:
        self.folder = folder
        self.rebuilt: str | None = None
        self._arc = arc
        fields = {name: str(field) for name, field in arc.fields.items()}
        self.manifest = Manifest(
            Form(VERSION, arc.name, fields, arc.identity, arc.event_time, arc.event_time_shift_ms)
        )
        self._mapped = lru_cache(maxsize=MAPPED_SEGMENTS)(self._map)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / MANIFEST).exists() or any(folder.glob("segment-*.arrow")):
                self._open()
            if self.rebuilt is not None:
                (folder / MANIFEST).unlink(missing_ok=True)
            self._remove_unlisted()
        except OSError as fault:
            raise StoreError(folder, fault) from fault

    def _open(self) -> None:
        """Load the state of an earlier process if all of it is intact and belongs to this arc."""
        try:
            stored = msgspec.json.decode((self.folder / MANIFEST).read_bytes(), type=Manifest)
            if stored.form != self.manifest.form:
                self.rebuilt = "it is a copy of another arc or of another version of this one"
                return
            for segment in stored.segments:
                # Arrow's footer comes last, so a truncated file can't be opened
                if self._map(segment).height != segment.rows:
                    self.rebuilt = f"{segment.file} is damaged"
                    return
        except (OSError, msgspec.DecodeError, pa.ArrowException) as fault:
            # pyarrow reports a malformed file as an OSError without a number
            if isinstance(fault, OSError) and fault.errno not in (None, errno.ENOENT):
                raise
            self.rebuilt = f"it is damaged: {fault}"
            return
        self.manifest = stored

    def map(self, segment: Segment) -> pl.DataFrame:
        """Return a segment's changes in event-time order, memory-mapped from disk.

        Decimals are returned as polars decimals of scale 0; their physical type is Int128.

        Raises:
            StoreError: If the file can't be read.
        """
        try:
            return self._mapped(segment)
        except OSError as fault:
            raise StoreError(self.folder, fault) from fault

    def _map(self, segment: Segment) -> pl.DataFrame:
        with pa.memory_map(str(self.folder / segment.file)) as file:
            table = pa.ipc.open_file(file).read_all()
        return cast(pl.DataFrame, pl.from_arrow(table, rechunk=False))

    def commit(self, frames: Iterable[pl.DataFrame], manifest: Manifest) -> None:
        """Write frames of changes as segments and add them to `manifest`, in one atomic step.

        Args:
            frames: Each in event-time order and not empty; may be a generator.
            manifest: The new state, without the new segments.

        Raises:
            StoreError: If the disk refuses; then nothing has changed.
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
            encoded = msgspec.json.encode(manifest)
            self._replace(MANIFEST, lambda file: file.write(encoded))
        except OSError as fault:
            with suppress(OSError):
                self._remove_unlisted()
            raise StoreError(self.folder, fault) from fault
        if not set(self.manifest.segments) <= set(manifest.segments):
            self._mapped.cache_clear()  # a removed file keeps its space while it is mapped
        self.manifest = manifest
        with suppress(OSError):  # costs only space; the next opening tries again
            self._remove_unlisted()

    def _written(self, name: str, frame: pl.DataFrame) -> Segment:
        # pyarrow, which memory-maps the files, has no 128-bit integers
        stored = frame.with_columns(pl.col(pl.Int128).cast(pl.Decimal(38, 0)))
        self._replace(name, stored.write_ipc)
        at = times(frame, self._arc)
        return Segment(
            file=name,
            rows=frame.height,
            ended=frame.height - int(frame[ENTERS].sum()),
            first_ms=int(at[0]),
            last_ms=int(at[-1]),
            last_epoch=cast(int, frame[EPOCH].max()),
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
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the mapped files; safe to call twice."""
        self._mapped.cache_clear()
