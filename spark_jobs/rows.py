"""An arc's rows as Spark has them: their types, and polars frames as Arrow record batches.

Spark compares the schema of a batch with the one that was declared, down to what may be null.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import types as spark

from errata.processors.wire.report import INTERVAL_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.arrow import VIEWS, arrow, arrow_column, tuple_columns, tuple_fields
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


def revision_batch(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of revisions, with their epoch, as a record batch of `revision_type`."""
    op, sides = frame["op"], pa.struct(tuple_fields(arc))
    columns = [
        arrow(pl.Series(frames.OPS).gather(op.cast(pl.UInt32))),
        _side(arc, frame, frames.BEFORE, absent=op == frames.INSERT),
        _side(arc, frame, frames.AFTER, absent=op == frames.DELETE),
        arrow(frame["epoch"]),
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
        arrow(_CHANGES.gather(joined([kind for *_, kind in sides]))),
        arrow(epochs),
        arrow_column(epochs * INTERVAL_MS, FieldType("timestamp-millis")),
    ]
    added = [
        pa.field("_change_type", pa.string(), nullable=False),
        pa.field("_commit_version", pa.int64(), nullable=False),
        pa.field("_commit_timestamp", VIEWS["timestamp-millis"], nullable=False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*tuple_fields(arc), *added]))


def _side(arc: Arc, frame: pl.DataFrame, prefix: str, *, absent: pl.Series) -> pa.StructArray:
    columns = tuple_columns(arc, frame, prefix)
    return pa.StructArray.from_arrays(columns, fields=tuple_fields(arc), mask=arrow(absent))
