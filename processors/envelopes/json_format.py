"""Records in JSON: one object each, or Kafka Connect's ``{"schema": ..., "payload": ...}``.

Either may be framed with a schema's id, as the serializers of registries do.

An object that has a declared field twice is refused: two readers might see different values. So is
one nested deeper than `MAX_NESTING`: parsers recurse, and end a process that has no stack left.
Compiled code decodes objects into structs; a column collects one attribute of all structs. Values
that JSON has no type for (decimals, times, uuids, bytes) stay text until they become a column, so
that numbers are read digit by digit, never through a double.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from operator import add, attrgetter, is_, methodcaller
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import UNSET, Meta, Raw, UnsetType

from errata.processors.envelopes.batch import (
    ROW,
    ColumnBuilder,
    Decoded,
    Refusal,
    decoded_each,
    join_parts,
    no_revisions,
    no_tuples,
)
from errata.processors.envelopes.connect import (
    DECIMAL,
    VARIABLE,
    Block,
    convert_instants,
    is_instant,
)
from errata.processors.envelopes.texts import decode_utf8, parse, rescale
from errata.processors.wire.dead_letter import UNDECODABLE
from errata.schemas import by_column
from errata.schemas.decode import unscaled
from errata.schemas.fields import Fields, FieldType
from errata.schemas.framing import HEAD_BYTES, MAGIC

MAX_NESTING = 100
"""Most arrays and objects inside each other in a record."""

_FRAME = bytes([MAGIC])
_WRAPPED = b'{"schema":'
_MOST_READERS = 100


class Reader(Protocol):
    """Reads the objects behind one schema block."""

    def read(self, texts: Sequence[bytes]) -> Decoded:
        """Return the decoded objects and the refused ones."""


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: Raw
    payload: Raw


_unwrap = msgspec.json.Decoder(_Wrapped).decode


class JsonFormat:
    """Reads tuples and revisions of a source in JSON.

    Args:
        fields: The declared fields.
        ops: Codes of the ops of revisions.
        connector: Whether Debezium writes the records: its heartbeats and transaction boundaries
            are skipped.
    """

    def __init__(self, fields: Fields, *, ops: Mapping[str, int], connector: bool = False) -> None:
        self.tuples = ByBlock(partial(TupleReader, fields), no_tuples(fields)).read
        sided = partial(RevisionReader, fields, ops=ops, connector=connector)
        self.revisions = ByBlock(sided, no_revisions(fields)).read


def unframed(values: Sequence[bytes]) -> Sequence[bytes]:
    r"""Return records without the frame that a registry's serializer puts before its JSON.

    No text in JSON begins with a zero byte.

    Example:
        >>> list(unframed([b"\x00\x00\x00\x00\x07{}", b"[]", b"\x00"]))
        [b'{}', b'[]', b'']
    """
    column = pl.Series(values, dtype=pl.Binary)
    framed = column.bin.starts_with(_FRAME)
    if not framed.any():
        return values
    found: list[bytes] = column.zip_with(~framed, column.bin.slice(HEAD_BYTES)).to_list()
    return found


@dataclass
class ByBlock:
    """Reads records, with one reader per schema block.

    Args:
        reader: Returns the reader of a block.
        empty: The result for no records.
    """

    reader: Callable[[Block], Reader]
    empty: pl.DataFrame
    readers: dict[bytes, Reader] = field(default_factory=dict)

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Return the decoded records, in order, and the refused ones."""
        values = unframed(values)
        deep = too_deep(values)
        if not deep:
            return self._read(values)
        need = f"needs JSON nested at most {MAX_NESTING} deep, found more"
        shallow = sorted(set(range(len(values))) - set(deep))
        return join_parts(
            [
                Decoded(self.empty, [Refusal(row, UNDECODABLE, need) for row in deep]),
                self._read([values[row] for row in shallow]).with_rows(np.array(shallow, np.int64)),
            ]
        )

    def _read(self, values: Sequence[bytes]) -> Decoded:
        wrapped = pl.Series(values, dtype=pl.Binary).bin.starts_with(_WRAPPED)
        if not wrapped.any():
            return self._reader(b"").read(values)
        rows = wrapped.arg_true().to_numpy()
        envelopes, good, _ = _decoded_each(_unwrap, [values[row] for row in rows.tolist()])
        rows = rows[good]
        blocks = list(map(bytes, map(attrgetter("schema"), envelopes)))
        payloads = list(map(bytes, map(attrgetter("payload"), envelopes)))
        is_null = np.fromiter(map(b"null".__eq__, payloads), np.bool_, len(payloads))
        parts = [Decoded(self.empty, [], absent=tuple(rows[is_null].tolist()))]
        numbers = {block: number for number, block in enumerate(dict.fromkeys(blocks))}
        block_numbers = np.fromiter(map(numbers.__getitem__, blocks), np.int64, len(blocks))
        for block, number in numbers.items():
            indexes = np.flatnonzero((block_numbers == number) & ~is_null)
            texts = [payloads[i] for i in indexes.tolist()]
            parts.append(self._reader(block).read(texts).with_rows(rows[indexes]))
        others = np.ones(len(values), np.bool_)
        others[rows] = False
        plain = np.flatnonzero(others)
        if len(plain):
            texts = [values[row] for row in plain.tolist()]
            parts.append(self._reader(b"").read(texts).with_rows(plain))
        return join_parts(parts)

    def _reader(self, block: bytes) -> Reader:
        if block not in self.readers:
            if len(self.readers) > _MOST_READERS:  # a new block in each record would fill memory
                self.readers.clear()
            self.readers[block] = self.reader(Block.of(block) if block else Block())
        return self.readers[block]


Places = npt.NDArray[np.int64]

_CHECKED_TYPES: dict[str, Any] = {
    "string": str,
    "int": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "long": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    "float": float,
    "double": float,
    "boolean": bool,
}
"""Types that msgspec checks; of all other types it passes on the text."""

_QUOTED_TYPES = {"bytes", "uuid"}
"""Types of which a value is always a string: digits, and ``true``, are base64 too."""

_NONE = {UNSET: None}
_PLAIN_NUMBER = r"^-?[0-9]+(\.[0-9]+)?$"
_HINT = "; base64 of a decimal is read only with a schema block that gives its scale"


class VariableScale(msgspec.Struct, eq=False, gc=False):
    """Debezium's decimal, whose scale differs by value."""

    scale: Annotated[int, Meta(ge=-1000, le=1000)]
    value: bytes


class JsonTuples:
    """Turns JSON objects into columns.

    Args:
        fields: The declared fields; others are skipped.
        block: The schema block in front of the objects; empty if there is none.
    """

    def __init__(self, fields: Fields, block: Block) -> None:
        self.fields, self.block = fields, block
        self.meanings = {name: block.meanings.get(name, "") for name in fields}
        types = {name: self._attribute_type(name, kind) for name, kind in fields.items()}
        self.raw = {name for name, attribute in types.items() if attribute is Raw}
        attributes = [
            (name, Raw, Raw()) if name in self.raw else (name, attribute | None | UnsetType, UNSET)
            for name, attribute in types.items()
        ]
        self.struct: Any = msgspec.defstruct("Tuple", attributes, gc=False, eq=False)

    def _attribute_type(self, name: str, kind: FieldType) -> Any:
        return (
            VariableScale if self.meanings[name] == VARIABLE else _CHECKED_TYPES.get(kind.kind, Raw)
        )

    def columns(
        self, builder: ColumnBuilder, structs: Sequence[Any], places: Places, *, prefix: str = ""
    ) -> tuple[dict[str, pl.Series], int]:
        """Return a column for each field, and the total number of fields in all objects.

        Args:
            builder: Collects faults.
            structs: The structs.
            places: The row of each struct.
            prefix: Prefix of the columns' names.
        """
        if not len(structs):
            return {prefix + n: pl.Series([], dtype=k.dtype) for n, k in self.fields.items()}, 0
        columns, field_count = {}, 0
        for name, kind in self.fields.items():
            values = list(map(attrgetter(name), structs))
            if name in self.raw:
                values = list(map(bytes, values))
                pieces = pl.Series(values, dtype=pl.Binary)
                field_count += len(values) - values.count(b"")
                original, column, hint = self._of_texts(name, kind, pieces)
            else:
                missing = values.count(UNSET)
                field_count += len(values) - missing
                if missing:
                    values = list(map(_NONE.get, values, values))
                original, column, hint = self._of_values(name, kind, values)
            columns[prefix + name] = builder.checked(
                name, column, original=original, kind=kind, places=places, hint=hint
            )
        return columns, field_count

    def _of_values(
        self, name: str, kind: FieldType, values: list[Any]
    ) -> tuple[pl.Series, pl.Series, str]:
        if self.meanings[name] == VARIABLE:
            pairs = [(None, None) if v is None else (v.scale, v.value) for v in values]
            original = pl.Series([value for _, value in pairs], dtype=pl.Binary)
            scales = pl.Series([scale for scale, _ in pairs], dtype=pl.Int64)
            return original, rescale(_unscaled(original), scales, kind), ""
        if kind.kind != "float":
            original = pl.Series(values, dtype=kind.dtype)
            return original, original, ""
        original = pl.Series(values, dtype=pl.Float64)
        column = original.cast(pl.Float32)
        return original, column.zip_with(column.is_finite().fill_null(False), column.clear(1)), ""

    def _of_texts(
        self, name: str, kind: FieldType, pieces: pl.Series
    ) -> tuple[pl.Series, pl.Series, str]:
        """Parse pieces of JSON (numbers, texts, null); return them, their values, and a hint."""
        original = decode_utf8(pieces).fill_null("\ufffd")  # not UTF-8: matches no type
        null = original.is_in(["null", ""])
        if null.any():
            original = original.zip_with(~null, original.clear(1))
        quoted, texts = original.str.starts_with('"'), original
        if quoted.any():
            texts = original.str.strip_prefix('"').str.strip_suffix('"')
            texts = texts.str.replace_all("\\/", "/", literal=True)
        if kind.kind in _QUOTED_TYPES:
            texts = texts.zip_with(quoted.fill_null(False), texts.clear(1))
        meaning = self.meanings[name]
        if kind.kind == "decimal" and meaning == DECIMAL:
            coded = texts.zip_with(quoted.fill_null(False), texts.clear(1))
            scale = pl.Series([self.block.scales[name]]).new_from_index(0, len(texts))
            column = rescale(_unscaled(parse(coded, FieldType("bytes"))), scale, kind)
            return original, column.zip_with(coded.is_not_null(), parse(texts, kind)), ""
        if kind.kind.startswith("timestamp-") and is_instant(meaning):
            counted = parse(texts, FieldType("long"))
            return original, convert_instants(counted, meaning, kind), f", which is a {meaning}"
        parsed, hint = parse(texts, kind), ""
        if kind.kind == "decimal":
            wrong = texts.filter(parsed.is_null() & texts.is_not_null())
            if wrong.str.contains(_PLAIN_NUMBER).all():
                hint = ", which has more digits"
            elif quoted.any():
                hint = _HINT
        return original, parsed, hint


def _unscaled(binary: pl.Series) -> pl.Series:
    """Decode big-endian integers; null where the bytes are null or exceed 128 bits."""
    numbers, wide = unscaled(binary.fill_null(b"").to_list())
    numbers = numbers.zip_with(binary.is_not_null(), numbers.clear(1))
    return numbers.scatter(wide, None) if wide else numbers


SIDES = ("before", "after")

_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decoded_each = partial(decoded_each, errors=_BAD, need="not the JSON that the source declares")


class TupleReader:
    """Reads objects that are tuples, one column per field.

    Args:
        fields: The declared fields.
        block: The schema block in front of them.
    """

    def __init__(self, fields: Fields, block: Block) -> None:
        self.tuples = JsonTuples(fields, block)
        self.decode = msgspec.json.Decoder(self.tuples.struct).decode
        self.duplicates = DuplicateFields(fields)

    def read(self, texts: Sequence[bytes]) -> Decoded:
        """Return the decoded objects and the refused ones."""
        structs, rows, refused = _decoded_each(self.decode, texts)
        builder = ColumnBuilder()
        builder.columns, field_count = self.tuples.columns(
            builder, structs, np.arange(len(structs))
        )
        self.duplicates.check(
            builder, [texts[row] for row in rows.tolist()] if refused else texts, field_count
        )
        batch = builder.decoded(rows)
        return replace(batch, refused=refused + batch.refused)


class RevisionReader:
    """Reads objects with ``op``, ``before`` and ``after``, native or Debezium's.

    Args:
        fields: The declared fields.
        block: The schema block in front of them.
        ops: Codes of the ops.
        connector: Whether Debezium's heartbeats and transaction boundaries are skipped.
    """

    def __init__(
        self, fields: Fields, block: Block, *, ops: Mapping[str, int], connector: bool
    ) -> None:
        self.ops = ops
        inner = block.structs.get("after", block.structs.get("before", Block()))
        self.tuples, self.connector = JsonTuples(fields, inner), connector
        side = self.tuples.struct | None | UnsetType
        attributes = [("op", str | None | UnsetType, UNSET), *((n, side, UNSET) for n in SIDES)]
        whole: Any = msgspec.defstruct("Revision", attributes, gc=False, eq=False)
        self.decode = msgspec.json.Decoder(whole).decode
        self.duplicates = DuplicateFields(["op", *SIDES, *fields])

    def read(self, texts: Sequence[bytes]) -> Decoded:
        """Return the decoded objects and the refused ones."""
        structs, rows, refused = _decoded_each(self.decode, texts)
        builder, passed = ColumnBuilder(), 0
        ops = list(map(attrgetter("op"), structs))
        field_count = len(ops) - ops.count(UNSET)
        builder.columns["op"] = pl.Series(list(map(self.ops.get, ops)), dtype=pl.UInt8)
        for name in SIDES:
            sides = list(map(attrgetter(name), structs))
            field_count += len(sides) - sides.count(UNSET)
            has = np.fromiter(map(is_, map(type, sides), repeat(self.tuples.struct)), np.bool_)
            places = np.flatnonzero(has)
            present = [sides[i] for i in places.tolist()] if len(places) < len(sides) else sides
            columns, inside = self.tuples.columns(builder, present, places, prefix=f"{name}.")
            field_count += inside
            builder.columns[f"has_{name}"] = pl.Series(has, dtype=pl.Boolean)
            whole = by_column.spread(list(columns.values()), has)
            builder.columns |= zip(columns, whole, strict=True)
        kept = [texts[row] for row in rows.tolist()] if refused else texts
        self.duplicates.check(builder, kept, field_count)
        batch = builder.decoded(rows)
        frame = batch.frame
        if self.connector and frame["op"].null_count():
            control = frame.filter(
                pl.col("op").is_null() & ~pl.col("has_before") & ~pl.col("has_after")
            )[ROW].to_list()
            control = [row for row in control if is_control_record(texts[row])]
            frame, passed = frame.filter(~pl.col(ROW).is_in(control)), len(control)
        return Decoded(frame, refused + batch.refused, passed)


class DuplicateFields:
    """Finds objects that have a field twice, even with escapes in its name.

    It counts field names in the texts and fields in the structs. Only if the counts differ does it
    parse each object again.

    Args:
        names: The fields.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self._pattern = rf'(?:"(?:{"|".join(map(re.escape, names))})|\\u[^"]*)"\s*:'

    def check(self, builder: ColumnBuilder, texts: Sequence[bytes], field_count: int) -> None:
        """Note a fault for each object that has a field twice.

        Args:
            builder: Collects faults.
            texts: The objects.
            field_count: Number of fields of all structs together.
        """
        column = decode_utf8(pl.Series(texts, dtype=pl.Binary))
        named = column.str.count_matches(self._pattern)
        if not named.has_nulls() and int(named.sum()) == field_count:  # null: not UTF-8
            return
        for place, text in enumerate(texts):
            fault = self._fault(text)
            if fault is not None:
                builder.faults.setdefault(place, fault)

    def _fault(self, text: bytes) -> str | None:
        repeated: list[str] = []

        def pairs(members: list[tuple[str, object]]) -> None:
            named = [name for name, _ in members if name in self.names]
            repeated.extend(name for name in named if named.count(name) > 1)

        try:
            json.loads(text, object_pairs_hook=pairs, parse_int=str, parse_float=str)
        except UnicodeDecodeError as error:  # in a part that no struct reads
            return f"not UTF-8: {error.reason}"
        return f"field {repeated[0]!r} occurs twice" if repeated else None


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or one that does not end: else each quote would be tried, up to the end."""
_BRACKETS, _BRACES = methodcaller("count", b"["), methodcaller("count", b"{")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def too_deep(texts: Sequence[bytes]) -> list[int]:
    """Return which texts nest arrays and objects deeper than `MAX_NESTING`.

    Example:
        >>> too_deep([b"[" * 101 + b"]" * 101, b"[" * 100 + b"]" * 100, b'"' + b"[" * 999 + b'"'])
        [0]
    """
    if max(map(len, texts), default=0) <= MAX_NESTING:
        return []
    counts = map(add, map(_BRACKETS, texts), map(_BRACES, texts))
    opened = np.fromiter(counts, np.int64, len(texts))
    suspects = np.flatnonzero(opened > MAX_NESTING).tolist()
    return [row for row in suspects if _nesting(texts[row]) > MAX_NESTING]


def _nesting(text: bytes) -> int:
    """Return how many arrays and objects are inside each other at most."""
    brackets = np.frombuffer(_STRING.sub(b"", text).translate(None, _NOT_BRACKETS), np.uint8)
    opens = (brackets == ord("[")) | (brackets == ord("{"))
    return int(np.cumsum(np.where(opens, 1, -1)).max(initial=0))


def is_control_record(text: bytes) -> bool:
    """Whether an object is Debezium's heartbeat or transaction boundary."""
    members = msgspec.json.decode(text)
    return set(members) == {"ts_ms"} or (
        "id" in members and members.get("status") in ("BEGIN", "END")
    )
