"""Frames on a local disk, in parts: what a task can't hold in memory at once."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import IO

import polars as pl

from errata.processors.arcs.partitioner import parted
from errata.processors.wire.replay import pack, unpack

_HELD_BYTES = 1 << 24
"""A spool of fewer bytes stays in memory."""


class Spool:
    """Frames whose rows are divided into parts, each of which is read by itself.

    Args:
        parts: The number of parts; a single one is kept in memory.
        part_of: Returns the part of each row of a frame, in [0, parts).
        file: Where the rows are kept.
    """

    def __init__(
        self, parts: int, part_of: Callable[[pl.DataFrame], pl.Series], *, file: IO[bytes]
    ) -> None:
        self.parts, self._part_of, self._file = parts, part_of, file
        self._pieces = defaultdict[int, list[tuple[int, int, pl.DataFrame | slice]]](list)

    def add(self, frame: pl.DataFrame, *, kind: int = 0, origin: int = 0) -> None:
        """Add the rows of a frame.

        Args:
            frame: The frame.
            kind: Frames of different kinds are read apart.
            origin: A part's rows are read by this number; those of one frame as they are.
        """
        if self.parts == 1:
            self._pieces[0].append((kind, origin, frame))
            return
        for (part,), rows in parted(frame, self._part_of(frame)):
            first = self._file.tell()
            self._file.write(pack(rows, is_small=True))
            self._pieces[part].append((kind, origin, slice(first, self._file.tell())))

    def take(self, part: int, *, kind: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows of a part, in frames."""
        for found, _, piece in sorted(self._pieces[part], key=itemgetter(0, 1)):
            if found == kind:
                yield piece if isinstance(piece, pl.DataFrame) else self._read(piece)

    def _read(self, piece: slice) -> pl.DataFrame:
        self._file.seek(piece.start)
        frame = unpack(self._file.read(piece.stop - piece.start))
        self._file.seek(0, os.SEEK_END)
        return frame


@contextmanager
def spooled(parts: int, part_of: Callable[[pl.DataFrame], pl.Series]) -> Iterator[Spool]:
    """Yield a spool in the folder that Spark gives its executors; its file goes with it.

    Args:
        parts: The number of parts.
        part_of: Returns the part of each row of a frame, in [0, parts).
    """
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    with tempfile.SpooledTemporaryFile(_HELD_BYTES, dir=folder or None) as file:
        yield Spool(parts, part_of, file=file)
