"""Reads files of revisions piece by piece: JSON lines or CSV, plain or gzipped.

A CSV file has one of three layouts, recognized by the header: ``op`` with ``before.x`` and
``after.x``; ``op`` with plain columns, and ``old_x`` for originals; plain columns without ``op``:
inserts. Columns without a field are ignored. An empty cell is null, but in a string field a quoted
empty cell is the empty string. Ingest checks the content of cells, as for all input: a malformed
number becomes a dead letter.

JSON lines are revisions, or plain objects, which are inserts, if the first one is. They mark the
ends of epochs. In CSV a column may tell them: an epoch ends where its value changes. Without one an
epoch ends where an identity comes again, so that each of its revisions can be seen.
"""

from __future__ import annotations

import difflib
import gzip
import io
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import polars as pl

from errata.client import rows
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import Fields, FieldType
from errata.schemas.json_text import quoted
from errata.schemas.revisions import AFTER, BEFORE

log = logging.getLogger("errata")

OLD = "old_"
_LOOKED_AT = 100
"""Lines of JSON in which misspelt names are looked for."""
OP = "@op"
"""The column of the op, once it is read."""
_LIKENESS = 0.7
_OP = b'"op"'
MOST_CUTS = 1_000
"""Most epochs of a CSV file that end because an identity comes again; the rest is one epoch."""
_OPS = {"insert": ("i", "c", "r", "create", "new", "add"), "replace": ("u", "update", "correct"),
        "delete": ("d", "remove", "cancel")}  # fmt: skip
"""Other words for an op, in lower case, that the column of `CsvColumns.op` may have."""

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


_WORDS = {word: op for op, words in _OPS.items() for word in (op, *words)}
OPS = frozenset(_WORDS)
"""All words for an op."""


class CsvError(ErrataError):
    """A CSV file can't be read, or none of its columns is a field of the source."""


@dataclass(frozen=True)
class CsvColumns:
    """Columns of CSV files that are no fields.

    Args:
        op: The column of the op; None: ``op``, if there is one. A named one may have other words
            for an op, as ``I``, ``U`` and ``D``.
        epoch: The column whose value changes with each epoch; None if there is none.
    """

    op: str | None = None
    epoch: str | None = None


class CsvLines:
    """Converts pieces of a CSV file to JSON lines.

    Args:
        arc: The source's arc.
        header: The file's first line.
        name: The file's name in errors.
        columns: Columns that are no fields.

    Example:
        >>> arc = Arc("a", {"k": FieldType("long"), "s": FieldType("string", optional=True)},
        ...     ("k",), "k", ())
        >>> CsvLines(arc, b"op,k,s,old_s", name="x.csv").lines(b"replace,1,new,")
        [b'{"op":"replace","before":{"k":1,"s":null},"after":{"k":1,"s":"new"}}']
    """

    def __init__(
        self, arc: Arc, header: bytes, *, name: str, columns: CsvColumns | None = None
    ) -> None:
        self.header, self.name = header.rstrip(b"\r\n"), name
        self._special = columns or CsvColumns()
        found = self._read(b"").columns
        self._require(found)
        fields = list(arc.fields)
        if any(name.startswith((BEFORE, AFTER)) for name in found):
            before_columns = {f: BEFORE + f for f in fields if BEFORE + f in found}
            after_columns = {f: AFTER + f for f in fields if AFTER + f in found}
            if OP not in found:
                raise CsvError(f"{name}: columns before.x and after.x need a column op, too")
        else:
            after_columns = {f: f for f in fields if f in found}
            before_columns = after_columns | {f: OLD + f for f in after_columns if OLD + f in found}
        if not before_columns and not after_columns:
            raise CsvError(
                f"{name}: no column is a field of source {arc.name!r}; it has "
                f"{', '.join(c for c in found if c != OP)}, the source {', '.join(fields)}"
            )
        before, after = _side(arc.fields, before_columns), _side(arc.fields, after_columns)
        op = pl.col(OP).fill_null("") if OP in found else pl.lit("insert")
        insert, delete = op == "insert", op == "delete"
        self._line = pl.concat_str(
            pl.lit('{"op":'),
            quoted(op),
            _if(~insert, pl.lit(',"before":'), before),
            _if(~delete, pl.lit(',"after":'), after),
            pl.lit("}"),
        )

        self._identity = [
            pl.coalesce([pl.col(side[n]) for side in (after_columns, before_columns) if n in side])
            for n in arc.identity
            if n in after_columns or n in before_columns
        ]
        self._cuts = _Cuts()
        own = {*after_columns.values(), *before_columns.values(), "op", OP}
        special = (self._special.op, self._special.epoch)
        self.unknown = [c for c in found if c not in own and c not in special]
        """Columns that are passed over."""
        self.known = [*after_columns, *before_columns]

    def lines(self, piece: bytes) -> list[bytes]:
        """Return the lines of some rows of the file."""
        return self._lines(self._rows(piece))

    def epochs(self, piece: bytes) -> Iterator[list[bytes] | None]:
        """Yield the lines of some rows of the file, and None where an epoch ends between two."""
        rows = self._rows(piece)
        lines, start = self._lines(rows), 0
        if self._special.epoch is not None:
            cuts = self._cuts.where_changed(rows[self._special.epoch])
        elif self._identity:
            keys = rows.select(pl.struct(pl.concat_list(self._identity).alias("@")).alias("@"))
            cuts = self._cuts.where_again(keys["@"])
        else:
            cuts = []
        for cut in cuts:
            if cut > start:
                yield lines[start:cut]
            yield None
            start = cut
        yield lines[start:]

    def _lines(self, rows: pl.DataFrame) -> list[bytes]:
        return rows.select(self._line.cast(pl.Binary).alias("line"))["line"].to_list()

    def _rows(self, piece: bytes) -> pl.DataFrame:
        return self._read(piece).filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines

    def _require(self, columns: list[str]) -> None:
        """Check that the columns that were named are there."""
        for option, column in (("--op-column", self._special.op),
                               ("--epoch-column", self._special.epoch)):  # fmt: skip
            if column is not None and column not in columns:
                known = ", ".join(name for name in columns if name != OP)
                raise CsvError(f"{self.name} has no column {column!r} ({option}); it has {known}")

    def _read(self, piece: bytes) -> pl.DataFrame:
        try:
            found = pl.read_csv(io.BytesIO(self.header + b"\n" + piece), infer_schema=False)
        except pl.exceptions.PolarsError as error:
            fault = str(error).partition("\n")[0]
            raise CsvError(f"{self.name} is not CSV with a header line: {fault}") from error
        column = self._special.op or "op"
        if column not in found.columns:
            return found
        op = pl.col(column)
        if self._special.op is not None:
            plain = op.str.strip_chars().str.to_lowercase()
            op = pl.coalesce(plain.replace_strict(_WORDS, default=None), op)
        return found.with_columns(op.alias(OP))


class _Cuts:
    """Finds where epochs end in a file, piece by piece."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._is_first, self._count = True, 0
        self._seen: pl.Series | None = None

    def where_changed(self, values: pl.Series) -> list[int]:
        """Return the rows before which an epoch ends, since their value differs from the last."""
        if values.is_empty():
            return []
        before = pl.concat([pl.Series([self._last], dtype=values.dtype), values[:-1]])
        differs = values.ne_missing(before)
        cuts = [row for row in differs.arg_true().to_list() if row or not self._is_first]
        self._last, self._is_first = values[-1], False
        return cuts

    def where_again(self, keys: pl.Series) -> list[int]:
        """Return the rows before which an epoch ends, since it has their identity already."""
        count, cuts, start = len(keys), list[int](), 0
        frame = pl.DataFrame({"key": keys, "row": np.arange(count)})
        before = frame.select(pl.col("row").shift(1).over("key").fill_null(-1))["row"].to_numpy()
        if self._seen is not None:  # a row whose identity came in an earlier piece, in this epoch
            again = frame.join(self._seen.to_frame(), on="key", how="semi", nulls_equal=True)["row"]
            first = int(again.min()) if again.len() else count  # type: ignore[arg-type]
        else:
            first = count
        while self._count < MOST_CUTS:
            own = np.flatnonzero(before[start:] >= start)
            cut = min(int(own[0]) + start if own.size else count, first)
            if cut >= count:
                break
            cuts.append(cut)
            self._count += 1
            start, first = cut, count
        rest = keys[start:].rename("key")
        whole = rest if self._seen is None or cuts else pl.concat([self._seen, rest])
        self._seen = whole if self._count < MOST_CUTS else None
        return cuts


def misspelt(unknown: Iterable[str], missing: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names of an input that look like fields which it lacks, with the field.

    Example:
        >>> list(misspelt(["nots", "venue"], ["note", "price"]))
        [('nots', 'note')]
    """
    for name in unknown:
        for meant in difflib.get_close_matches(name, list(missing), n=1, cutoff=_LIKENESS):
            yield name, meant


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


def read_input(
    stream: Any, *, file: str, arc: Arc, columns: CsvColumns | None = None
) -> Iterator[list[bytes] | None]:
    """Yield native revisions in JSON in pieces, and None at the end of each epoch.

    The file's extension decides between JSON and CSV, else its first character.

    Args:
        stream: The opened file.
        file: Its name.
        arc: The source's arc.
        columns: Columns of CSV that are no fields.

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
            if columns is not None and columns != CsvColumns():
                raise InputError(
                    f'input {file!r} is JSON: its lines have an op, and {{"epoch": true}} ends an '
                    "epoch; --op-column and --epoch-column are for CSV"
                )
            found = _names_in(first)
            _note_misspelt(file, arc, found, found)
            is_plain = _is_plain(first)
            for piece in chain([first], pieces):
                for lines in _split(list(filter(bytes.strip, piece))):
                    yield _as_inserts(lines) if is_plain and lines else lines
            return
        rows = CsvLines(arc, first.pop(0), name=file, columns=columns)
        _note_misspelt(file, arc, rows.unknown, rows.known)
        for text in _whole_rows(chain([first], pieces)):
            yield from rows.epochs(text)
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise InputError(f"input {file!r} can't be read: {error}") from error


def _is_plain(lines: list[bytes]) -> bool:
    """Return whether the first line of JSON is an object without an op: then each is an insert."""
    first = next((line for line in lines if line.strip()), b"")
    return first.lstrip().startswith(b"{") and _OP not in first and not rows.is_epoch_mark(first)


def _as_inserts(lines: list[bytes]) -> list[bytes]:
    """Return plain objects as inserts; revisions among them stay as they are."""
    column = pl.Series(lines, dtype=pl.Binary)
    texts = [b'{"op":"insert","after":%b}' % line.strip() for line in lines]
    revised = column.bin.contains(_OP)
    return column.zip_with(revised, pl.Series(texts, dtype=pl.Binary)).to_list()


def _names_in(lines: list[bytes]) -> list[str]:
    """Return the names of fields in the first lines of JSON."""
    found = dict[str, None]()
    for line in lines[:_LOOKED_AT]:
        try:
            content = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if not isinstance(content, dict):
            continue
        sides = (
            [content.get(side) for side in ("before", "after")] if "op" in content else [content]
        )
        found |= dict.fromkeys(name for side in sides if isinstance(side, dict) for name in side)
    return list(found)


def _note_misspelt(file: str, arc: Arc, names: Iterable[str], known: Iterable[str]) -> None:
    """Log names that are no fields of a source, but look like one that the input lacks."""
    there = set(known)
    missing = [field for field in arc.visible if field not in there]
    unknown = [name for name in names if name not in arc.fields]
    for name, meant in misspelt(unknown, missing):
        log.warning(
            "input %r has %r, which is no field of source %r; is %r meant, which it lacks?",
            file, name, arc.name, meant,
        )  # fmt: skip


def read_lines(file: str) -> list[bytes]:
    """Return the lines of a file that are not empty.

    Raises:
        InputError: If it can't be read.
    """
    with open_input(file) as stream:
        return [line for line in stream if line.strip()]


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
