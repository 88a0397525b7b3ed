"""Reads files of revisions piece by piece: JSON lines or CSV, plain or gzipped.

A CSV file has one of three layouts, recognized by the header: ``op`` with ``before.x`` and
``after.x``; ``op`` with plain columns, and ``old_x`` for originals; plain columns without ``op``:
inserts. Columns without a field are ignored. An empty cell is null, but in a string field a quoted
empty cell is the empty string. Ingest checks the content of cells, as for all input: a malformed
number becomes a dead letter.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

import polars as pl

from errata.client import rows
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields, FieldType
from errata.schemas.json_text import quoted
from errata.schemas.revisions import AFTER, BEFORE

OLD = "old_"

_WHOLE = r"^-?(0|[1-9]\d*)$"
_NUMBER = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_BARE = {
    "int": _WHOLE,
    "long": _WHOLE,
    "timestamp-millis": _WHOLE,
    "timestamp-micros": _WHOLE,
    "float": _NUMBER,
    "double": _NUMBER,
    "boolean": "^(true|false)$",
}
"""Text that JSON takes without quotes, by type; everything else is quoted and checked later."""


class CsvError(ErrataError):
    """A CSV file can't be read, or none of its columns is a field of the source."""


class CsvLines:
    """Converts pieces of a CSV file to JSON lines.

    Args:
        arc: The source's arc.
        header: The file's first line.
        name: The file's name in errors.

    Example:
        >>> arc = Arc("a", {"k": FieldType("long"), "s": FieldType("string", optional=True)},
        ...     ("k",), "k", ())
        >>> CsvLines(arc, b"op,k,s,old_s", name="x.csv").lines(b"replace,1,new,")
        [b'{"op":"replace","before":{"k":1,"s":null},"after":{"k":1,"s":"new"}}']
    """

    def __init__(self, arc: Arc, header: bytes, *, name: str) -> None:
        self.header, self.name = header.rstrip(b"\r\n"), name
        columns = self._read(b"").columns
        fields = list(arc.fields)
        if any(name.startswith((BEFORE, AFTER)) for name in columns):
            before_columns = {f: BEFORE + f for f in fields if BEFORE + f in columns}
            after_columns = {f: AFTER + f for f in fields if AFTER + f in columns}
            if "op" not in columns:
                raise CsvError(f"{name}: columns before.x and after.x need a column op, too")
        else:
            after_columns = {f: f for f in fields if f in columns}
            before_columns = after_columns | {
                f: OLD + f for f in after_columns if OLD + f in columns
            }
        if not before_columns and not after_columns:
            raise CsvError(
                f"{name}: no column is a field of source {arc.name!r}; it has "
                f"{', '.join(columns)}, the source {', '.join(fields)}"
            )
        before, after = _side(arc.fields, before_columns), _side(arc.fields, after_columns)
        op = pl.col("op").fill_null("") if "op" in columns else pl.lit("insert")
        insert, delete = op == "insert", op == "delete"
        self._line = pl.concat_str(
            pl.lit('{"op":'),
            quoted(op),
            _if(~insert, pl.lit(',"before":'), before),
            _if(~delete, pl.lit(',"after":'), after),
            pl.lit("}"),
        )

    def lines(self, piece: bytes) -> list[bytes]:
        """Return the lines of some rows of the file."""
        rows = self._read(piece).filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
        return rows.select(self._line.cast(pl.Binary).alias("line"))["line"].to_list()

    def _read(self, piece: bytes) -> pl.DataFrame:
        try:
            return pl.read_csv(io.BytesIO(self.header + b"\n" + piece), infer_schema=False)
        except pl.exceptions.PolarsError as error:
            fault = str(error).partition("\n")[0]
            raise CsvError(f"{self.name} is not CSV with a header line: {fault}") from error


def _if(condition: pl.Expr, *parts: pl.Expr) -> pl.Expr:
    return pl.when(condition).then(pl.concat_str(parts)).otherwise(pl.lit(""))


def _side(fields: Fields, columns: dict[str, str]) -> pl.Expr:
    """Return the JSON object of one side, given the column of each field."""
    parts: list[pl.Expr] = []
    for place, (name, column) in enumerate(columns.items()):
        parts.append(pl.lit(f'{"," if place else ""}"{name}":'))
        parts.append(_value(pl.col(column), fields[name]))
    return pl.concat_str(pl.lit("{"), *parts, pl.lit("}"))


def _value(cell: pl.Expr, kind: FieldType) -> pl.Expr:
    """Return cells as JSON values."""
    if kind.kind == "string":
        return pl.when(cell.is_null()).then(pl.lit("null")).otherwise(quoted(cell))
    absent = cell.is_null() | (cell == "")
    if kind.kind == "boolean":
        cell = cell.str.to_lowercase()
        cell = cell.replace({"1": "true", "0": "false"})
    value = quoted(cell)
    if kind.kind in _BARE:
        value = pl.when(cell.str.contains(_BARE[kind.kind])).then(cell).otherwise(value)
    return pl.when(absent).then(pl.lit("null")).otherwise(value)


PIECE_BYTES = 4 << 20
"""Size of the pieces in which a file is read, in bytes, approximately."""

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
    """Yield native revisions in JSON in pieces, and None at the end of each epoch.

    The file's extension decides between JSON and CSV, else its first character.

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
    """Yield pieces that end at the end of a row; a quoted cell may span several lines."""
    rest = b""
    for piece in pieces:
        rest += b"".join(piece)
        if rest.count(b'"') % 2 == 0:
            yield rest
            rest = b""
    if rest:
        yield rest


def _split(lines: list[bytes]) -> Iterator[list[bytes] | None]:
    """Yield the lines between ``{"epoch": true}`` marks, and None for each mark."""
    start = 0
    for place in [i for i, line in enumerate(lines) if b'"epoch"' in line]:
        if rows.is_epoch_mark(lines[place]):
            yield lines[start:place]
            yield None
            start = place + 1
    yield lines[start:]
