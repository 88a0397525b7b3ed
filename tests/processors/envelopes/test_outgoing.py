"""The records of sinks, read back by others: fastavro and plain JSON; and by our own envelopes."""

import base64
import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import fastavro
import polars as pl
import pytest

from errata.processors.envelopes.batch import Batch
from errata.processors.envelopes.make import make
from errata.processors.envelopes.outgoing import Outgoing
from errata.schemas import framing
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from tests.processors.envelopes.records import Registry, kinds, rows, source

FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "price": "decimal(20,2)?",
    "whole": "decimal(5,0)?",
    "day": "date?",
    "micros": "timestamp-micros?",
    "raw": "bytes?",
    "id": "uuid?",
    "x": "double?",
    "f": "float?",
    "n": "int?",
    "yes": "boolean?",
}
HIDDEN = {"__count": "long"}
UID = "550e8400-e29b-41d4-a716-446655440000"
ONE = {
    "key": 'a"\\\n\x01é',
    "at": 5,
    "price": -(10**19) - 5,
    "whole": 12,
    "day": -1,
    "micros": 1_000_001,
    "raw": b"\xff\x00",
    "id": UID,
    "x": 0.1,
    "f": 0.10000000149011612,
    "n": -7,
    "yes": True,
    "__count": 1,
}
NONE = dict.fromkeys(ONE) | {"key": "b", "at": 6, "__count": 1}
ARC = Arc("sums", kinds(FIELDS | HIDDEN), ("key",), "at", ())
PLAIN = {
    "key": ONE["key"],
    "at": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC),
    "price": Decimal("-100000000000000000.05"),
    "whole": Decimal(12),
    "day": date(1969, 12, 31),
    "micros": datetime(1970, 1, 1, 0, 0, 1, 1, UTC),
    "raw": b"\xff\x00",
    "id": UUID(UID),
    "x": 0.1,
    "f": ONE["f"],
    "n": -7,
    "yes": True,
}
IN_JSON = PLAIN | {
    "at": 5,
    "day": "1969-12-31",
    "micros": 1_000_001,
    "raw": base64.b64encode(b"\xff\x00").decode(),
    "id": UID,
    "f": 0.1,
}
NULLS = {name: None for name in FIELDS} | {"key": "b"}


def revisions(*told) -> pl.DataFrame:
    data = [
        {"op": op}
        | {f"before.{n}": (before or {}).get(n) for n in ARC.fields}
        | {f"after.{n}": (after or {}).get(n) for n in ARC.fields}
        for op, before, after in told
    ]
    return pl.DataFrame(data, schema=frames.schema(ARC.fields))


ALL = revisions(
    (frames.INSERT, None, ONE),
    (frames.REPLACE, ONE, ONE | {"__count": 2}),
    (frames.REPLACE, NONE, NONE | {"n": 1}),
    (frames.DELETE, NONE, None),
    (frames.INSERT, None, NONE),
)


def encode(envelope, format, frame=ALL):
    registry = Registry()
    made = Outgoing(ARC, "out", envelope, format, registry)
    return registry, made.encode(frame, epoch=9, time_ms=450)


def read(registry, value):
    schema = registry.schemas[int.from_bytes(value[1:5], "big")]
    parsed = fastavro.parse_schema(schema)
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)


def reader(registry, format):
    if format == "avro":
        return lambda text: None if text is None else read(registry, text)
    return lambda text: None if text is None else json.loads(text, parse_float=Decimal)


def wanted(format, row):
    """Return a visible tuple as the format tells it."""
    if row is None:
        return None
    plain = PLAIN if format == "avro" else IN_JSON
    told = plain if row["key"] == ONE["key"] else NULLS | {"n": row["n"]}
    at = datetime(1970, 1, 1, 0, 0, 0, 6000, UTC) if format == "avro" else 6
    return told if row["key"] == ONE["key"] else told | {"at": at}


def same(found, row):
    if isinstance(row, dict):
        assert found.keys() == row.keys()
        for name in row:
            same(found[name], row[name])
    elif isinstance(row, float):
        assert float(found) == row
    else:
        assert found == row
        assert isinstance(found, bool) == isinstance(row, bool)


SIDES = [("i", None, ONE), ("r", NONE, NONE | {"n": 1}), ("d", NONE, None), ("i", None, NONE)]


@pytest.mark.parametrize("format", ["avro", "json"])
def test_native_records_are_op_before_and_after_of_what_is_visible(format):
    registry, (keys, values) = encode("native", format)
    take = reader(registry, format)
    for key, value, (op, before, after) in zip(keys, values, SIDES, strict=True):
        found = take(value)
        assert found["op"] == {"i": "insert", "r": "replace", "d": "delete"}[op]
        same(found["before"], wanted(format, before))
        same(found["after"], wanted(format, after))
        assert take(key) == {"key": (after or before)["key"]}
        assert len(found) == 3


@pytest.mark.parametrize("format", ["avro", "json"])
def test_debezium_records_have_a_tombstone_behind_each_delete(format):
    registry, (keys, values) = encode("debezium", format)
    take = reader(registry, format)
    told = [take(value) for value in values]
    assert [event and event["op"] for event in told] == ["c", "u", "d", None, "c"]
    assert keys[2] == keys[3]
    for event, (_, before, after) in zip(filter(None, told), SIDES, strict=True):
        same(event["before"], wanted(format, before))
        same(event["after"], wanted(format, after))
        assert event["ts_ms"] == 450
        assert event["source"] == {
            "connector": "errata",
            "name": "out",
            "table": "sums",
            "epoch": 9,
            "ts_ms": 450,
        }


@pytest.mark.parametrize("format", ["avro", "json"])
def test_upserts_are_the_tuple_or_no_value(format):
    registry, (keys, values) = encode("upsert", format)
    take = reader(registry, format)
    found = [take(value) for value in values]
    for tuple_, (_, _, after) in zip(found, SIDES, strict=True):
        same(tuple_, wanted(format, after))
    assert [take(key)["key"] for key in keys] == [ONE["key"], "b", "b", "b"]


@pytest.mark.parametrize("envelope", ["native", "debezium", "upsert"])
@pytest.mark.parametrize("format", ["avro", "json"])
def test_our_own_envelopes_read_what_a_sink_writes(envelope, format):
    registry, (keys, values) = encode(envelope, format)
    own = make(source(envelope, format, FIELDS), registry)
    found = own.decode(Batch(values, keys))
    assert not found.refused

    def seen(row):
        return {n: v for n, v in (row or {}).items() if v is not None and n in FIELDS}

    told = [(op, seen(before), seen(after)) for op, before, after in SIDES]
    if envelope == "upsert":  # it tells no originals
        told = [
            ("d", {"key": before["key"]}, {}) if op == "d" else ("i", {}, after)
            for op, before, after in told
        ]
    if envelope == "debezium":
        assert found.passed == 1
    assert rows(found) == told


def test_avro_is_registered_under_the_topics_subjects_and_not_for_json():
    registry, _ = encode("debezium", "avro")
    assert set(registry.subjects) == {"out-key", "out-value"}
    assert not encode("debezium", "json")[0].subjects


@pytest.mark.parametrize("envelope", ["native", "debezium", "upsert"])
@pytest.mark.parametrize("format", ["avro", "json"])
def test_what_nobody_sees_gives_no_record(envelope, format):
    hidden = ALL[1:2]
    assert encode(envelope, format, hidden)[1] == ([], [])
    assert encode(envelope, format, ALL[:0])[1] == ([], [])


def test_what_json_has_no_number_for_is_null():
    rows_ = [ONE | {"x": x, "f": f} for x, f in ((math.nan, math.inf), (-math.inf, 1.0))]
    frame = revisions(*((frames.INSERT, None, row) for row in rows_))
    _, (_, values) = encode("upsert", "json", frame)
    assert [json.loads(v)["x"] for v in values] == [None, None]
    assert [json.loads(v)["f"] for v in values] == [None, 1.0]


def test_an_identity_that_is_all_hidden_gives_one_key():
    arc = Arc("all", kinds({"n": "long", "__at": "timestamp-millis"}), ("__at",), "__at", ())
    frame = pl.DataFrame(
        {"op": [0], "before.n": [None], "before.__at": [None], "after.n": [7], "after.__at": [1]},
        schema=frames.schema(arc.fields),
    )
    for format, key in (("json", b"{}"), ("avro", framing.frame([b""], 1)[0])):
        keys, values = Outgoing(arc, "o", "upsert", format, Registry()).encode(
            frame, epoch=1, time_ms=1
        )
        assert (keys, len(values)) == ([key], 1)
