"""An arc's rows as Spark has them: their types, and polars frames as Arrow record batches.

A polars column of numbers becomes an Arrow column without a copy. Physical types become logical
ones by another view of the same buffers; milliseconds are multiplied, since Spark counts
microseconds, and the offsets of texts are narrowed. Spark compares the schema of a batch with the
one that was declared, down to what may be null.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import types as spark

from errata.processors.wire.report import INTERVAL_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

_TYPES: dict[str, type[spark.DataType]] = {
    "string": spark.StringType,
    "int": spark.IntegerType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "double": spark.DoubleType,
    "boolean": spark.BooleanType,
    "bytes": spark.BinaryType,
    "date": spark.DateType,
    "timestamp-millis": spark.TimestampType,
    "timestamp-micros": spark.TimestampType,
    "uuid": spark.StringType,
}
_VIEWS = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
}
_NARROW = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_PLAIN = pl.CompatLevel.oldest()  # Spark's Java reader does not support string views


def spark_type(kind: FieldType) -> spark.DataType:
    """Return the Spark type of a field.

    Example:
        >>> spark_type(FieldType.parse("decimal(38,10)?")), spark_type(FieldType("uuid"))
        (DecimalType(38,10), StringType())
    """
    if kind.kind == "decimal":
        return spark.DecimalType(kind.precision, kind.scale)
    return _TYPES[kind.kind]()


def tuple_type(arc: Arc) -> spark.StructType:
    """Return the type of an arc's tuples: its visible fields."""
    return spark.StructType(
        [
            spark.StructField(name, spark_type(arc.fields[name]), arc.fields[name].optional)
            for name in arc.visible
        ]
    )


def revision_type(arc: Arc) -> spark.StructType:
    """Return the type of an arc's revisions: op, before, after and epoch."""
    return spark.StructType(
        [
            spark.StructField("op", spark.StringType(), nullable=False),
            spark.StructField("before", tuple_type(arc)),
            spark.StructField("after", tuple_type(arc)),
            spark.StructField("epoch", spark.LongType(), nullable=False),
        ]
    )


def change_type(arc: Arc) -> spark.StructType:
    """Return the type of an arc's changes: its visible fields, and Delta's three columns."""
    columns = {
        "_change_type": spark.StringType(),
        "_commit_version": spark.LongType(),
        "_commit_timestamp": spark.TimestampType(),
    }
    added = [spark.StructField(name, kind, nullable=False) for name, kind in columns.items()]
    return spark.StructType([*tuple_type(arc).fields, *added])


def tuple_batch(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of tuples as a record batch of `tuple_type`."""
    return pa.RecordBatch.from_arrays(_columns(arc, frame), schema=pa.schema(_fields(arc)))


def revision_batch(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of revisions, with their epoch, as a record batch of `revision_type`."""
    op, sides = frame["op"], pa.struct(_fields(arc))
    columns = [
        _arrow(pl.Series(frames.OPS).gather(op.cast(pl.UInt32))),
        _side(arc, frame, frames.BEFORE, absent=op == frames.INSERT),
        _side(arc, frame, frames.AFTER, absent=op == frames.DELETE),
        _arrow(frame["epoch"]),
    ]
    schema = [
        pa.field("op", pa.string(), nullable=False),
        pa.field("before", sides),
        pa.field("after", sides),
        pa.field("epoch", pa.int64(), nullable=False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(schema))


_CHANGES = pl.Series(["insert", "delete", "update_preimage", "update_postimage"])


def change_batch(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of revisions, with their epoch, as a record batch of `change_type`.

    A replace becomes two rows; what was there comes first.
    """
    op, row = frame["op"], pl.Series(np.arange(frame.height))
    sides = [
        (frames.BEFORE, op != frames.INSERT, (op == frames.REPLACE).cast(pl.UInt32) + 1),
        (frames.AFTER, op != frames.DELETE, (op == frames.REPLACE).cast(pl.UInt32) * 3),
    ]
    order = np.argsort(np.concatenate([row.filter(there) for _, there, _ in sides]), kind="stable")

    def joined(parts: list[pl.Series]) -> pl.Series:
        both = [part.filter(there) for part, (_, there, _) in zip(parts, sides, strict=True)]
        return pl.concat(both).gather(pl.Series(order))

    columns = [
        arrow_column(joined([frame[side + name] for side, *_ in sides]), arc.fields[name])
        for name in arc.visible
    ]
    epochs = joined([frame["epoch"], frame["epoch"]])
    columns += [
        _arrow(_CHANGES.gather(joined([kind for *_, kind in sides]))),
        _arrow(epochs),
        arrow_column(epochs * INTERVAL_MS, FieldType("timestamp-millis")),
    ]
    added = [
        pa.field("_change_type", pa.string(), nullable=False),
        pa.field("_commit_version", pa.int64(), nullable=False),
        pa.field("_commit_timestamp", _VIEWS["timestamp-millis"], nullable=False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*_fields(arc), *added]))


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
        unscaled = _arrow(values.cast(pl.Decimal(38, 0)))
        return unscaled.view(pa.decimal128(kind.precision, kind.scale))
    if kind.kind == "timestamp-millis":
        values = values * 1000
    plain = _arrow(values)
    return plain.view(_VIEWS[kind.kind]) if kind.kind in _VIEWS else plain


def _side(arc: Arc, frame: pl.DataFrame, prefix: str, *, absent: pl.Series) -> pa.StructArray:
    columns = _columns(arc, frame, prefix)
    return pa.StructArray.from_arrays(columns, fields=_fields(arc), mask=_arrow(absent))


def _fields(arc: Arc) -> list[pa.Field]:
    """Return the fields of an arc's tuples, as `arrow_column` returns their columns."""
    empty = {name: pl.Series([], dtype=arc.fields[name].dtype) for name in arc.visible}
    types = {name: arrow_column(values, arc.fields[name]).type for name, values in empty.items()}
    return [pa.field(name, types[name], arc.fields[name].optional) for name in arc.visible]


def _columns(arc: Arc, frame: pl.DataFrame, prefix: str = "") -> list[pa.Array]:
    return [arrow_column(frame[prefix + name], arc.fields[name]) for name in arc.visible]


def _arrow(values: pl.Series) -> pa.Array:
    """Return a column with offsets of 32 bits, if it has any."""
    column = values.to_arrow(compat_level=_PLAIN)
    return column.cast(_NARROW[column.type]) if column.type in _NARROW else column
