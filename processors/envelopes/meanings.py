"""The meanings of Kafka Connect's and Debezium's type names.

A value is sent as a plain integer or text. Its schema holds the type name: in Avro as
``connect.name`` or a logical type, in JSON in the schema block in front of the value.
"""

from __future__ import annotations

import polars as pl

from errata.schemas.fields import FieldType
from errata.schemas.layout import CONNECT_DECIMAL, VARIABLE_DECIMAL

_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."

DECIMAL, VARIABLE, ZONED, NANOS = "decimal", "variable-decimal", "zoned", "timestamp-nanos"

MEANINGS = {
    CONNECT_DECIMAL: DECIMAL,
    VARIABLE_DECIMAL: VARIABLE,
    _CONNECT + "Date": "date",
    _CONNECT + "Timestamp": "timestamp-millis",
    _DEBEZIUM + "time.Date": "date",
    _DEBEZIUM + "time.Timestamp": "timestamp-millis",
    _DEBEZIUM + "time.MicroTimestamp": "timestamp-micros",
    _DEBEZIUM + "time.NanoTimestamp": NANOS,
    _DEBEZIUM + "time.ZonedTimestamp": ZONED,
    _DEBEZIUM + "data.Uuid": "uuid",
}
"""Other names are ignored: such a value has its plain type."""

_NANOS_PER = {"timestamp-millis": 1_000_000, "timestamp-micros": 1_000, NANOS: 1}
_MOST_MS = 253_402_300_799_999


def is_instant(meaning: str) -> bool:
    """Whether integers of this meaning are instants."""
    return meaning in _NANOS_PER


def instant(values: pl.Series, meaning: str, kind: FieldType) -> pl.Series:
    """Convert instants to the unit of a type, truncating; null beyond the year 9999.

    Args:
        values: Int64.
        meaning: Their unit.
        kind: A timestamp type.

    Example:
        >>> instant(pl.Series([1_999]), "timestamp-micros", FieldType("timestamp-millis")).to_list()
        [1]
    """
    given, wanted = _NANOS_PER[meaning], _NANOS_PER[kind.kind]
    if given <= wanted:
        return values // (wanted // given) if given < wanted else values
    fits = values.is_between(-_MOST_MS, _MOST_MS)
    return values.zip_with(fits.fill_null(False), values.clear(1)) * (given // wanted)
