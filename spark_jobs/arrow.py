"""An arc's tuples and revisions in Spark: the types, and Arrow record batches of them.

A polars column becomes an Arrow column without a copy. Physical types become logical ones by
another view of the same buffers; only milliseconds are multiplied, since Spark counts microseconds.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from pyspark.sql import types as spark

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


def tuples(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of tuples as a record batch of `tuple_type`."""
    return pa.RecordBatch.from_arrays(_columns(arc, frame), names=arc.visible)


def revisions(arc: Arc, frame: pl.DataFrame) -> pa.RecordBatch:
    """Return a frame of revisions, with their epoch, as a record batch of `revision_type`."""
    op = frame["op"]
    columns = {
        "op": _arrow(pl.Series(frames.OPS).gather(op.cast(pl.UInt32))),
        "before": _side(arc, frame, frames.BEFORE, absent=op == frames.INSERT),
        "after": _side(arc, frame, frames.AFTER, absent=op == frames.DELETE),
        "epoch": _arrow(frame["epoch"]),
    }
    return pa.RecordBatch.from_pydict(columns)


def column(values: pl.Series, kind: FieldType) -> pa.Array:
    """Return a column of a field's physical type as Arrow's logical one.

    Example:
        >>> column(pl.Series([-5, None], dtype=pl.Int128), FieldType.parse("decimal(38,2)?"))[0]
        <pyarrow.Decimal128Scalar: Decimal('-0.05')>
        >>> column(pl.Series([1_500]), FieldType("timestamp-millis"))[0].as_py().isoformat()
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
    return pa.StructArray.from_arrays(columns, names=arc.visible, mask=_arrow(absent))


def _columns(arc: Arc, frame: pl.DataFrame, prefix: str = "") -> list[pa.Array]:
    return [column(frame[prefix + name], arc.fields[name]) for name in arc.visible]


def _arrow(values: pl.Series) -> pa.Array:
    return values.to_arrow(compat_level=_PLAIN)
