"""An arc's tuples as Arrow has them, with logical types.

A polars column of numbers becomes an Arrow column without a copy. Physical types become logical
ones by another view of the same buffers; milliseconds are multiplied, since most readers count
microseconds, and the offsets of texts are narrowed.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

VIEWS = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
}
_NARROW = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_PLAIN = pl.CompatLevel.oldest()  # Spark's Java reader does not support string views


def tuple_batch(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of tuples as a record batch of their visible fields."""
    return pa.RecordBatch.from_arrays(
        tuple_columns(arc, frame), schema=pa.schema(tuple_fields(arc))
    )


def arrow_column(values: pl.Series, kind: FieldType) -> pa.Array:
    """Return a column of a field's physical type as Arrow's logical one.

    Example:
        >>> prices = pl.Series([-5, None], dtype=pl.Int128)
        >>> arrow_column(prices, FieldType.parse("decimal(38,2)?"))[0]
        <pyarrow.Decimal128Scalar: Decimal('-0.05')>
        >>> arrow_column(pl.Series([1_500]), FieldType("timestamp-millis"))[0].as_py().isoformat()
        '1970-01-01T00:00:01.500000+00:00'
    """
    if kind.kind == "decimal":
        unscaled = arrow(values.cast(pl.Decimal(38, 0)))
        return unscaled.view(pa.decimal128(kind.precision, kind.scale))
    if kind.kind == "timestamp-millis":
        values = values * 1000
    plain = arrow(values)
    return plain.view(VIEWS[kind.kind]) if kind.kind in VIEWS else plain


def tuple_fields(arc: Arc) -> list[pa.Field]:
    """Return the fields of an arc's tuples, as `arrow_column` returns their columns."""
    empty = {name: pl.Series([], dtype=arc.fields[name].dtype) for name in arc.visible}
    types = {name: arrow_column(values, arc.fields[name]).type for name, values in empty.items()}
    return [pa.field(name, types[name], arc.fields[name].optional) for name in arc.visible]


def tuple_columns(arc: Arc, frame: pl.DataFrame, prefix: str = "") -> list[pa.Array]:
    """Return the visible columns of a frame; their names there begin with `prefix`."""
    return [arrow_column(frame[prefix + name], arc.fields[name]) for name in arc.visible]


def arrow(values: pl.Series) -> pa.Array:
    """Return a column with offsets of 32 bits, if it has any."""
    column = values.to_arrow(compat_level=_PLAIN)
    return column.cast(_NARROW[column.type]) if column.type in _NARROW else column
