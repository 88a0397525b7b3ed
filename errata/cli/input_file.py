"""Files of revisions: JSON lines or CSV, plain or gzipped, read piece by piece."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

from errata.cli.csv_lines import CsvLines
from errata.client import rows
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError

PIECE_BYTES = 4 << 20
"""A file is read in pieces of about this size."""

STDIN = "-"

_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_JSON_NAMES, _CSV_NAMES = (".jsonl", ".ndjson", ".json"), (".csv",)


class InputError(ErrataError):
    """An input can't be read."""


def open_input(file: str) -> IO[bytes]:
    """Open a file of revisions; ``-`` is standard input.

    Raises:
        InputError: If it can't be opened.
    """
    try:
        return open(0, "rb", closefd=False) if file == STDIN else Path(file).open("rb")
    except OSError as error:
        raise InputError(f"input {file!r} can't be read: {error.strerror}") from error


def read_input(stream: Any, *, file: str, arc: Arc) -> Iterator[list[bytes] | None]:
    """Yield native revisions in JSON in pieces, and None wherever an epoch is closed.

    JSON or CSV is told by the name's ending, else by the first character.

    Args:
        stream: The opened file.
        file: Its name.
        arc: The source's arc.

    Raises:
        InputError: If it is damaged.
        CsvError: If it is CSV that can't be read, or has none of the source's fields.
    """
    try:
        pieces = _pieces(stream)
        first = next(pieces, None)
        if first is None:
            return
        first[0] = first[0].removeprefix(_BOM)
        if not _is_csv(file, first[0]):
            for piece in chain([first], pieces):
                yield from _split(list(filter(bytes.strip, piece)))
            return
        rows = CsvLines(arc, first.pop(0), name=file)
        for text in _whole_rows(chain([first], pieces)):
            yield rows.lines(text)
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise InputError(f"input {file!r} can't be read: {error}") from error


def _pieces(stream: Any) -> Iterator[list[bytes]]:
    """Yield whole lines, unpacked; no piece is empty."""
    if _starts_gzipped(stream):
        stream = gzip.GzipFile(fileobj=stream)
    while piece := stream.readlines(PIECE_BYTES):
        yield piece


def _starts_gzipped(stream: Any) -> bool:
    return bytes(stream.peek(2)[:2]) == _GZIP


def _is_csv(file: str, first: bytes) -> bool:
    name = file.lower().removesuffix(".gz")
    if name.endswith((*_JSON_NAMES, *_CSV_NAMES)):
        return name.endswith(_CSV_NAMES)
    return not first.lstrip().startswith(b"{")


def _whole_rows(pieces: Iterator[list[bytes]]) -> Iterator[bytes]:
    """Yield pieces that end where a row ends: a quoted cell may go over several lines."""
    rest = b""
    for piece in pieces:
        rest += b"".join(piece)
        if rest.count(b'"') % 2 == 0:
            yield rest
            rest = b""
    if rest:
        yield rest


def _split(lines: list[bytes]) -> Iterator[list[bytes] | None]:
    """Yield the lines between ``{"epoch": true}``, and None for each of these."""
    start = 0
    for place in [i for i, line in enumerate(lines) if b'"epoch"' in line]:
        if rows.is_epoch_mark(lines[place]):
            yield lines[start:place]
            yield None
            start = place + 1
    yield lines[start:]
