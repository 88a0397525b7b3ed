"""Encodes and decodes a few records one by one, with fastavro.

By column a batch costs 1 to 3 ms however few its records are, one by one a record costs some 10 µs.
Whatever needs a closer look (a value that does not fit, a record that may be bad) is left to the
codec by column, which alone says what is wrong: a batch that passes here has the same result there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import compress
from typing import Any

import polars as pl
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from errata.schemas.batch import MAX_RECORD_BYTES
from errata.schemas.layout import Layout, Leaf, Nested

RECORDS = 64
"""Most records of a batch that are handled here: from about 200 on it is faster by column."""
_LONGEST_DECIMAL = 16


class _DoubtError(Exception):
    """A batch has a value that is not plainly valid."""


class Few:
    """The codec of a layout.

    Args:
        layout: The layout; every field is read and written.
    """

    def __init__(self, layout: Layout) -> None:
        self._fields = [_Field(number, field) for number, field in enumerate(layout)]
        fields = [field.schema for field in self._fields]
        self._schema = parse_schema({"type": "record", "name": "R", "fields": fields})

    @classmethod
    def of(cls, layout: Layout) -> Few | None:
        """Return the codec of a layout; None if it has a type that is handled by column only."""
        leaves = [leaf for field in layout for leaf in _leaves(field)]
        plain = all(isinstance(leaf, Leaf) and leaf.kind != "variable-decimal" for leaf in leaves)
        return cls(layout) if plain and layout else None

    def encode(
        self, frame: pl.DataFrame, head: bytes, constants: Mapping[str, Any]
    ) -> list[bytes] | None:
        """Return a record for each row of a frame; None if it must be encoded by column.

        Args:
            frame: The rows; see `Encoder.series`.
            head: Bytes to put before each record.
            constants: Values of top-level fields for all rows.
        """
        try:
            columns = [
                field.repeated(constants[field.name], frame.height)
                if field.name in constants
                else field.values(frame)
                for field in self._fields
            ]
            names = [field.key for field in self._fields]
            rows = zip(*columns, strict=True)
            records = [head + self._written(dict(zip(names, row, strict=True))) for row in rows]
        except Exception:  # noqa: BLE001  by column it is found out what is wrong
            return None
        return records

    def _written(self, row: dict[str, Any]) -> bytes:
        buffer = BytesIO()
        schemaless_writer(buffer, self._schema, row)
        record = buffer.getvalue()
        if len(record) > MAX_RECORD_BYTES:
            raise _DoubtError
        return record

    def decode(self, bodies: Sequence[bytes]) -> pl.DataFrame | None:
        """Return a row for each record; None if they must be decoded by column."""
        try:
            rows = [self._read(body) for body in bodies]
            series = [
                column
                for field in self._fields
                for column in field.columns([row[field.key] for row in rows])
            ]
        except Exception:  # noqa: BLE001  by column it is found out what is wrong
            return None
        return pl.DataFrame(series)

    def _read(self, body: bytes) -> dict[str, Any]:
        if len(body) > MAX_RECORD_BYTES:
            raise _DoubtError
        row: dict[str, Any] = schemaless_reader(BytesIO(body), self._schema, None)
        if self._written(row) != body:  # left-over bytes, a long varint, a boolean of 2
            raise _DoubtError
        return row


class _Field:
    """A field of a record.

    Args:
        number: Its number.
        field: The field.
    """

    def __init__(self, number: int, field: Any) -> None:
        self.name, self.key, self._field = field.name, f"f{number}", field
        self._null_at, self._leaves = field.null_at, list[_Field]()
        if isinstance(field, Nested):
            self._leaves = [_Field(place, leaf) for place, leaf in enumerate(field.leaves)]
            name = f"R{number}"
            fields = [leaf.schema for leaf in self._leaves]
            kind: Any = {"type": "record", "name": name, "fields": fields}
        else:
            kind = {"decimal": "bytes", "enum": "int"}.get(field.coding, field.coding)
            if field.kind == "fixed":
                kind = {
                    "type": "fixed",
                    "name": f"F{number}_{field.name}".replace(".", "_"),
                    "size": field.size,
                }
        if self._null_at is not None:
            kind = ["null", kind] if self._null_at == 0 else [kind, "null"]
        self.schema: dict[str, Any] = {"name": self.key, "type": kind}

    def repeated(self, value: Any, count: int) -> list[Any]:
        """Return the same value for each of some rows."""
        _check(self._field, [value])
        return [value] * count

    def values(self, frame: pl.DataFrame, present: Sequence[bool] | None = None) -> list[Any]:
        """Return the values of the rows of a frame, or of those that are present.

        Raises:
            _DoubtError: If one is not plainly valid.
        """
        if not isinstance(self._field, Nested):
            return self._of_leaf(frame, present)
        here = None
        if self._null_at is not None:
            here = [bool(each) for each in frame[self.name].to_list()]
        names = [leaf.key for leaf in self._leaves]
        columns = [leaf.values(frame, here) for leaf in self._leaves]
        count = frame.height if here is None else sum(here)
        rows = zip(*columns, strict=True) if columns else iter([()] * count)
        found: Iterator[Any] = (dict(zip(names, row, strict=True)) for row in rows)
        return list(found) if here is None else [next(found) if each else None for each in here]

    def _of_leaf(self, frame: pl.DataFrame, present: Sequence[bool] | None) -> list[Any]:
        leaf, column = self._field, frame[self.name]
        if column.dtype != leaf.dtype:
            raise _DoubtError
        values: list[Any] = column.to_list()
        if present is not None:
            values = list(compress(values, present))
        if None in values and leaf.null_at is None and leaf.kind != "null":
            raise _DoubtError
        _check(leaf, values)
        if leaf.coding == "decimal":
            size = leaf.size if leaf.kind == "fixed" else 0
            return [None if value is None else _big_endian(value, size) for value in values]
        return values

    def columns(self, values: list[Any]) -> Iterator[pl.Series]:
        """Yield the columns of the values of some records.

        Raises:
            _DoubtError: If a value is not plainly valid.
        """
        if not isinstance(self._field, Nested):
            yield self._column(values)
            return
        if self._null_at is not None:
            yield pl.Series(self.name, [value is not None for value in values], dtype=pl.Boolean)
        for leaf in self._leaves:
            yield leaf._column([None if value is None else value[leaf.key] for value in values])

    def _column(self, values: list[Any]) -> pl.Series:
        leaf = self._field
        if leaf.coding == "decimal":
            values = [None if value is None else _number(value) for value in values]
        _check(leaf, values)
        return pl.Series(leaf.name, values, dtype=leaf.dtype)


def _check(leaf: Leaf, values: Sequence[Any]) -> None:
    """Check that numbers are within the bounds of their type."""
    if leaf.bounds is not None:
        low, high = leaf.bounds
        if not all(low <= value <= high for value in values if value is not None):
            raise _DoubtError


def _number(written: bytes) -> int:
    if len(written) > _LONGEST_DECIMAL:
        raise _DoubtError
    return int.from_bytes(written, "big", signed=True)


def _big_endian(number: int, size: int) -> bytes:
    """Return a two's complement as fastavro writes it: -128 takes two bytes."""
    return number.to_bytes(size or (abs(number).bit_length() + 8) // 8, "big", signed=True)


def _leaves(field: Any) -> Sequence[Any]:
    return field.leaves if isinstance(field, Nested) else (field,)
