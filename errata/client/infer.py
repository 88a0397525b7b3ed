"""Proposes a source for a file: types, identity, and event time with its unit."""

from __future__ import annotations

import gzip
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from errata.client.input_file import OPS, InputError, open_input
from errata.schemas.errors import ErrataError

MOST_LINES = 10_000
"""So many lines are looked at."""
_MOST_BYTES = 32 << 20
_TIMES = {
    "seconds": range(631_152_000, 4_102_444_800),
    "milliseconds": range(631_152_000_000, 4_102_444_800_000),
    "microseconds": range(631_152_000_000_000, 4_102_444_800_000_000),
    "nanoseconds": range(631_152_000_000_000_000, 4_102_444_800_000_000_000),
}
"""1990 to 2100, by the unit in which whole numbers may count."""
_EVENT_TIME = {
    "seconds": "timestamp_seconds({})",
    "nanoseconds": "timestamp_micros({} div 1000)",
}
_WHOLE, _DECIMAL = re.compile(r"-?(0|[1-9]\d{0,18})"), re.compile(r"-?(\d{1,26})(?:\.(\d{1,10}))?")
_FLOAT = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.(\d{1,6}))?)?(Z|[+-]\d\d:?\d\d)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BOOLEAN = re.compile(r"(?i)true|false")
_OF_IDENTITY = re.compile(r"(?i)^(id|key|uuid|guid)$|(_id|Id|ID|_key|Key|uuid|number|_no)$")
_OF_TIME = re.compile(r"(?i)(^at$|time|stamp|^ts$|_ts$|date|_at$|when)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InferError(ErrataError):
    """Nothing can be proposed for a file."""


@dataclass
class Proposal:
    """A source that reads a file.

    Args:
        name: Name of the source.
        fields: The type of each field, as it is declared.
        identity: The fields that tell tuples apart; empty if none do.
        event_time: A field or an expression; "" if there is none.
        op_column: The column of CSV with the op, if it has another name than ``op``.
        notes: What a person should look at.
    """

    name: str
    fields: dict[str, str]
    identity: list[str] = field(default_factory=list)
    event_time: str = ""
    op_column: str = ""
    notes: list[str] = field(default_factory=list)

    def code(self) -> str:
        """Return a network's file with the source."""
        fields = "".join(f"        {name!r}: {kind!r},\n" for name, kind in self.fields.items())
        notes = "".join(f"# {note}\n" for note in self.notes)
        text = f'''"""Proposed by `errata infer`; look at identity, event time and types."""

from errata import Network

net = Network({self.name!r})
{notes}{self.name} = net.source(
    {self.name!r},
    topic={self.name!r},
    format="json",
    fields={{
{fields}    }},
    identity={self.identity!r},
    event_time={self.event_time!r},
    lateness="1m",
    keep="30d",
)
'''
        return text.replace("'", '"')


def infer(file: str, *, name: str | None = None) -> Proposal:
    """Propose a source for a file: CSV with a header, or JSON lines of objects or of revisions.

    Args:
        file: The file; gzipped or not.
        name: Name of the source; by default the file's.

    Raises:
        InputError: If it can't be read.
        InferError: If it has no rows, or they have no fields.
    """
    rows = _rows(file)
    if not rows.columns or rows.is_empty():
        raise InferError(
            f"{file}: has no rows with fields; it needs CSV with a header, or JSON lines"
        )
    proposal = Proposal(name or _name_of(file), {})
    columns = _without_op(rows, proposal)
    units = dict[str, str]()
    for column in columns:
        proposal.fields[column], unit = _type_of(rows[column])
        if unit:
            units[column] = unit
    _choose_times(rows, proposal, units)
    _choose_identity(rows, proposal, times=set(units))
    return proposal


def _name_of(file: str) -> str:
    stem = Path(file).name.split(".")[0]
    return re.sub(r"\W+", "_", stem).strip("_").lower() or "source"


def _rows(file: str) -> pl.DataFrame:
    """Return the first rows of a file, as texts; null where there is none."""
    with open_input(file) as stream:
        try:
            head = stream.read(2)
            packed = head == b"\x1f\x8b"
            rest: Any = io.BufferedReader(_Joined(head, stream))
            text = (gzip.GzipFile(fileobj=rest) if packed else rest).read(_MOST_BYTES)
        except (OSError, EOFError) as error:
            raise InputError(f"input {file!r} can't be read: {error}") from error
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")[: MOST_LINES + 1]
    lines = [line for line in lines if line.strip()]
    if not lines:
        return pl.DataFrame()
    if lines[0].lstrip().startswith(b"{"):
        return _of_json(lines)
    try:
        return pl.read_csv(b"\n".join(lines), infer_schema=False, truncate_ragged_lines=True)
    except pl.exceptions.PolarsError as error:
        fault = str(error).partition("\n")[0]
        raise InferError(f"{file}: is neither JSON lines nor CSV with a header: {fault}") from error


class _Joined(io.RawIOBase):
    """Bytes that were read, and then the rest of a stream."""

    def __init__(self, head: bytes, rest: Any) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._head or self._rest.read(len(buffer))
        self._head = b""
        buffer[: len(found)] = found
        return len(found)


def _of_json(lines: Iterable[bytes]) -> pl.DataFrame:
    """Return the objects of JSON lines; of revisions the tuples after, or before if deleted."""
    found: list[dict[str, str | None]] = []
    for line in lines:
        try:
            content = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if not isinstance(content, dict) or content.get("epoch") is True:
            continue
        side = content.get("after") or content.get("before")
        row = side if isinstance(side, dict) and "op" in content else content
        found.append({str(n): None if v is None else _text(v) for n, v in row.items()})
    names = dict.fromkeys(name for row in found for name in row)
    return pl.DataFrame(
        {n: [r.get(n) for r in found] for n in names},
        schema_overrides=dict.fromkeys(names, pl.String),
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _without_op(rows: pl.DataFrame, proposal: Proposal) -> list[str]:
    """Return the columns that are fields: without the op, and without originals."""
    for name in rows.columns:
        values = {str(value).strip().lower() for value in rows[name].unique() if value is not None}
        is_op = values and values <= OPS and name.lower() in {"op", "action", "operation", "change"}
        if is_op:
            if name != "op":
                proposal.op_column = name
                proposal.notes.append(f"the op is in column {name}: give --op-column {name}")
            break
    else:
        name = ""
    columns = [n for n in rows.columns if n != name and not n.startswith(("old_", "before."))]
    plain = [n.removeprefix("after.") for n in columns]
    rows.columns = [n.removeprefix("after.") if n in columns else n for n in rows.columns]
    odd = [n for n in plain if not _NAME.fullmatch(n)]
    if odd:
        proposal.notes.append(
            f"left out, their names are no names of fields: {', '.join(map(repr, odd))}"
        )
    return [n for n in plain if n not in odd]


def _type_of(column: pl.Series) -> tuple[str, str]:
    """Return the declared type of a column of texts, and the unit if it may count time."""
    values = [v.strip() for v in column.to_list() if v is not None and v.strip()]
    optional = "?" if len(values) < len(column) else ""
    if not values:
        return "string?", ""

    def all_match(form: re.Pattern[str]) -> bool:
        return all(map(form.fullmatch, values))

    numbers = list(map(int, values)) if all_match(_WHOLE) else []
    if numbers and max(map(abs, numbers)) < 2**63:
        for unit, span in _TIMES.items():
            if all(n in span for n in numbers):
                return f"long{optional}", unit
        return f"long{optional}", ""
    if all_match(_DECIMAL):
        parts = [match for value in values if (match := _DECIMAL.fullmatch(value))]
        scale = max(len(match[2] or "") for match in parts)
        whole = max(len(match[1]) for match in parts)
        return f"decimal({min(38, max(whole + scale + 2, 12))},{scale}){optional}", ""
    if all_match(_FLOAT):
        return f"double{optional}", ""
    if all_match(_BOOLEAN):
        return f"boolean{optional}", ""
    if all_match(_UUID):
        return f"uuid{optional}", ""
    if all_match(_DATE):
        return f"date{optional}", "date"
    if all_match(_TIME):
        digits = max(len(m[3] or "") for v in values if (m := _TIME.fullmatch(v)))
        return f"timestamp-{'micros' if digits > 3 else 'millis'}{optional}", "text"
    return f"string{optional}", ""


def _choose_times(rows: pl.DataFrame, proposal: Proposal, units: dict[str, str]) -> None:
    """Choose the event time, and the types of whole numbers that count time."""
    candidates = sorted(
        units, key=lambda n: (not _OF_TIME.search(n), units[n] == "date", n not in rows.columns)
    )
    named = [n for n in candidates if _OF_TIME.search(n) or units[n] in {"text", "date"}]
    named = named or [n for n in candidates if not _OF_IDENTITY.search(n)][:1]
    for name in named:
        optional = "?" if proposal.fields[name].endswith("?") else ""
        if units[name] in {"milliseconds", "microseconds"}:
            proposal.fields[name] = f"timestamp-{units[name].removesuffix('econds')}{optional}"
    if not named:
        proposal.notes.append("no field looks like a time: every source needs an event time")
        return
    name = named[0]
    form = _EVENT_TIME.get(units[name], "{}")
    proposal.event_time = form.format(name)
    if units[name] in _EVENT_TIME:
        proposal.notes.append(f"{name} counts {units[name]}")
    if proposal.fields[name].endswith("?"):
        proposal.notes.append(f"rows without {name} are refused: it is the event time")
        proposal.fields[name] = proposal.fields[name].rstrip("?")


def _choose_identity(rows: pl.DataFrame, proposal: Proposal, *, times: set[str]) -> None:
    """Choose fields that tell tuples apart: one, or two, that no two rows share.

    A field whose name says that it is one may come again, with corrections, but not mostly.
    """
    fields = [
        n for n in proposal.fields if not proposal.fields[n].startswith(("double", "boolean"))
    ]
    fields.sort(key=lambda n: (not _OF_IDENTITY.search(n), n in times))
    named = [n for n in fields if _OF_IDENTITY.search(n)]
    mostly = [n for n in named if 2 * rows[n].n_unique() > rows.height and not rows[n].null_count()]
    unique = [n for n in fields if _is_unique(rows, (n,))]
    pairs = itertools.combinations(fields[:12], 2)
    if unique and (unique[0] in named or (not mostly and unique[0] not in times)):
        proposal.identity = unique[:1]
    elif mostly:
        proposal.identity = mostly[:1]
        proposal.notes.append(
            f"{mostly[0]} comes more than once: later rows of it are its corrections"
        )
    elif pair := next((names for names in pairs if _is_unique(rows, names)), None):
        proposal.identity = unique[:1] or list(pair)
    else:
        proposal.notes.append("no field, and no two fields, tell all rows apart")
    for name in proposal.identity:
        proposal.fields[name] = proposal.fields[name].rstrip("?")


def _is_unique(rows: pl.DataFrame, names: Sequence[str]) -> bool:
    part = rows.select(names)
    no_nulls = not any(part[name].null_count() for name in names)
    return no_nulls and part.unique().height == part.height
