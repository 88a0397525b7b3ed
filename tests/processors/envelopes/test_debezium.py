"""Debezium's change events, as its connectors write them in Avro and in JSON."""

import base64
import copy
from decimal import Decimal

import pytest

from errata.processors.wire.dead_letter import TRUNCATE
from tests.processors.envelopes.records import Registry, avro, decode, record, rows, text, why

CONNECT = "org.apache.kafka.connect.data."
PRICE = {
    "type": "bytes",
    "scale": 2,
    "precision": 64,
    "connect.version": 1,
    "connect.parameters": {"scale": "2"},
    "connect.name": CONNECT + "Decimal",
    "logicalType": "decimal",
}
AT = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
VALUE = record(
    {
        "key": "string",
        "at": AT,
        "tags": {"type": "array", "items": ["null", "string"]},
        "price": PRICE,
        "size": ["null", "double"],
        "more": ["null", {"type": "map", "values": {"type": "array", "items": "long"}}],
    },
    "Value",
)
SOURCE = record(
    {
        "version": "string",
        "ts_ms": "long",
        "snapshot": [
            {"type": "string", "connect.default": "false", "connect.parameters": {"allowed": "x"}},
            "null",
        ],
        "sequence": ["null", "string"],
        "lsn": ["null", "long"],
    },
    "Source",
    namespace="io.debezium.connector.postgresql",
)
BLOCK = record(
    {"id": "string", "total_order": "long", "data_collection_order": "long"},
    "block",
    namespace="event",
)
ENVELOPE = record(
    {
        "before": ["null", VALUE],
        "after": ["null", "Value"],
        "source": SOURCE,
        "transaction": ["null", BLOCK],
        "op": "string",
        "ts_ms": ["null", "long"],
        "ts_us": ["null", "long"],
        "ts_ns": ["null", "long"],
    },
    "Envelope",
    namespace="shop.public.orders",
)
KEY = record({"key": "string"}, "Key", namespace="shop.public.orders")
HEARTBEAT = record({"ts_ms": "long"}, "Heartbeat", namespace="io.debezium.connector.common")
BOUND = record(
    {
        "status": "string",
        "id": "string",
        "event_count": ["null", "long"],
        "data_collections": [
            "null",
            {"type": "array", "items": record({"n": "string", "c": "long"}, "C")},
        ],
        "ts_ms": "long",
    },
    "TransactionMetadataValue",
)
MESSAGE = record(
    {
        "op": "string",
        "ts_ms": ["null", "long"],
        "source": SOURCE,
        "message": ["null", record({"prefix": "string", "content": "bytes"}, "M")],
    },
    "MessageValue",
)


def registry() -> Registry:
    schemas = {1: ENVELOPE, 2: KEY, 3: HEARTBEAT, 4: BOUND, 5: MESSAGE, 6: '"string"'[1:-1]}
    return Registry(copy.deepcopy(schemas))


ORIGIN = {"version": "2.7", "ts_ms": 1, "snapshot": "false", "sequence": '["1","2"]', "lsn": 7}


def value(key="a", *, at=1_000_500, price="1.50", size=None, tags=(None, "x"), more=None):
    return {
        "key": key,
        "at": at,
        "tags": list(tags),
        "price": Decimal(price),
        "size": size,
        "more": more,
    }


def event(op, before=None, after=None, transaction=None):
    told = {"before": before, "after": after, "source": ORIGIN, "transaction": transaction}
    return told | {"op": op, "ts_ms": 1, "ts_us": None, "ts_ns": 5}


def framed(*args, **more) -> bytes:
    return avro(ENVELOPE, event(*args, **more))


def key(identity="a") -> bytes:
    return avro(KEY, {"key": identity}, 2)


def test_creates_reads_updates_and_deletes_in_avro_are_revisions():
    transaction = {"id": "9", "total_order": 1, "data_collection_order": 1}
    found = decode(
        "debezium",
        "avro",
        [
            framed("c", after=value(more={"k": [1, 2], "l": []}), transaction=transaction),
            framed("r", after=value("b", tags=())),
            framed("u", before=value(), after=value(price="-2.00", size=0.5)),
            framed("d", before=value(price="-2.00")),
        ],
        registry=registry(),
    )
    assert not found.refused
    assert rows(found) == [
        ("i", {}, {"key": "a", "at": 1000, "price": 150}),
        ("i", {}, {"key": "b", "at": 1000, "price": 150}),
        (
            "r",
            {"key": "a", "at": 1000, "price": 150},
            {"key": "a", "at": 1000, "price": -200, "size": 0.5},
        ),
        ("d", {"key": "a", "at": 1000, "price": -200}, {}),
    ]
    assert found.frame["has_before"].to_list() == [False, False, True, True]


def test_a_before_of_the_key_alone_is_no_original_unless_the_key_moved():
    keys_only = {"key": "a", "at": 0, "tags": [], "price": Decimal(0), "size": None, "more": None}
    schema = copy.deepcopy(ENVELOPE)
    for name in ("at", "price"):  # a column that may be null comes as null
        member = next(f for f in schema["fields"][0]["type"][1]["fields"] if f["name"] == name)
        member["type"] = ["null", member["type"]]
    lone = keys_only | {"at": None, "price": None}
    values = [
        avro(schema, event("u", before=lone, after=value())),
        avro(schema, event("u", before=lone | {"key": "z"}, after=value())),
        avro(schema, event("d", before=lone)),
    ]
    found = decode("debezium", "avro", values, registry=Registry({1: schema}))
    assert not found.refused
    assert found.frame["has_before"].to_list() == [False, True, False]
    assert [before for _, before, _ in rows(found)] == [{"key": "a"}, {"key": "z"}, {"key": "a"}]


@pytest.mark.parametrize("given", [key(), b'{"key": "a"}', b'"a"', b"a", avro("string", "a", 6)])
def test_a_delete_without_before_takes_the_identity_from_the_key(given):
    found = decode("debezium", "avro", [(given, framed("d"))], registry=registry())
    assert (rows(found), why(found)) == ([("d", {"key": "a"}, {})], [])


def test_a_delete_that_nobody_names_is_refused_and_the_others_are_not():
    batch = [(None, framed("d")), (key("b"), framed("d")), (b"\0\0\0\0\x09x", framed("d"))]
    found = decode("debezium", "avro", batch, registry=registry())
    assert rows(found) == [("d", {"key": "b"}, {})]
    (first, lacking), (third, unknown) = why(found)
    assert (first, third) == (0, 2)
    assert "identity is needed from the key, which is missing" in lacking
    assert "schema id 9" in unknown


def test_a_key_change_is_a_delete_a_tombstone_and_a_create():
    batch = [(key("a"), framed("d", before=value("a"))), (key("a"), None)]
    found = decode(
        "debezium", "avro", [*batch, (key("b"), framed("c", after=value("b")))], registry=registry()
    )
    assert [op for op, _, _ in rows(found)] == ["d", "i"]
    assert (found.frame["__row"].to_list(), found.passed, found.refused) == ([0, 2], 1, [])


def test_what_says_nothing_of_tuples_is_passed_over_and_counted():
    end = {
        "status": "END",
        "id": "9",
        "event_count": 2,
        "data_collections": [{"n": "x", "c": 2}],
        "ts_ms": 1,
    }
    message = {
        "op": "m",
        "ts_ms": 1,
        "source": ORIGIN,
        "message": {"prefix": "p", "content": b"x"},
    }
    batch = [
        avro(HEARTBEAT, {"ts_ms": 5}, 3),
        avro(BOUND, end, 4),
        avro(MESSAGE, message, 5),
        None,
        framed("c", after=value()),
    ]
    found = decode("debezium", "avro", batch, registry=registry())
    assert (found.passed, found.refused, found.frame["__row"].to_list()) == (4, [], [4])


def test_a_truncation_is_told_as_a_dead_letter_of_its_own_kind():
    (refusal,) = decode("debezium", "avro", [framed("t")], registry=registry()).refused
    assert refusal.reason == TRUNCATE
    assert "the arc keeps them" in refusal.detail


def test_a_decimal_longer_than_the_field_is_refused_by_its_value():
    values = [framed("c", after=value(price="10000000.00")), framed("c", after=value(price="1.00"))]
    found = decode("debezium", "avro", values, registry=registry())
    assert [row for row, _ in why(found)] == [0]
    assert rows(found)[0][2]["price"] == 100


VARIABLE = record(
    {"scale": "int", "value": "bytes"},
    "VariableScaleDecimal",
    namespace="io.debezium.data",
    **{"connect.version": 1, "connect.name": "io.debezium.data.VariableScaleDecimal"},
)


def test_debeziums_own_types_become_the_declared_ones():
    fields = {
        "key": "uuid",
        "at": "timestamp-millis",
        "fine": "timestamp-micros?",
        "nano": "timestamp-micros?",
        "zoned": "timestamp-micros?",
        "day": "date?",
        "amount": "decimal(12,3)?",
        "colour": "string?",
    }
    semantic = {"connect.version": 1}
    schema = record(
        {
            "key": {"type": "string", "connect.name": "io.debezium.data.Uuid", **semantic},
            "at": {"type": "long", "connect.name": "io.debezium.time.Timestamp", **semantic},
            "fine": AT,
            "nano": {"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"},
            "zoned": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
            "day": {"type": "int", "connect.name": "io.debezium.time.Date"},
            "amount": ["null", VARIABLE],
            "colour": {"type": "string", "connect.name": "io.debezium.data.Enum"},
        }
    )
    told = {
        "key": "550E8400-E29B-41D4-A716-446655440000",
        "at": 5,
        "fine": 1_000_001,
        "nano": -1,
        "zoned": "1970-01-01T01:00:00.000001+01:00",
        "day": -1,
        "amount": {"scale": 1, "value": b"\xff\x00"},
        "colour": "red",
    }
    values = [
        avro(schema, told),
        avro(schema, told | {"amount": None}),
        avro(schema, told | {"amount": {"scale": 4, "value": b"\x0b"}}),
        avro(schema, told | {"zoned": "yesterday"}),
        avro(schema, told | {"amount": {"scale": -2, "value": b"\x0b"}}),
    ]
    found = decode("append", "avro", values, registry=Registry({1: schema}), fields=fields)
    after = rows(found)[0][2]
    assert after == {
        "key": "550e8400-e29b-41d4-a716-446655440000",
        "at": 5,
        "fine": 1_000_001,
        "nano": -1,
        "zoned": 1,
        "day": -1,
        "amount": -25600,
        "colour": "red",
    }
    assert found.frame["after.amount"].to_list() == [-25600, None, 1_100_000]
    assert why(found) == [
        (2, "'amount' needs decimal(12,3), found 11"),
        (3, "'zoned' needs timestamp-micros, found yesterday"),
    ]


# ------------------------------------------------------------------------------------ JSON

FIELDS_BLOCK = [
    {"field": "key", "type": "string", "optional": False},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {
        "field": "price",
        "type": "bytes",
        "name": CONNECT + "Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "9"},
    },
    {"field": "size", "type": "double", "optional": True},
]
SCHEMA_BLOCK = {
    "type": "struct",
    "fields": [
        {"type": "struct", "fields": FIELDS_BLOCK, "optional": True, "field": "before"},
        {"type": "struct", "fields": FIELDS_BLOCK, "optional": True, "field": "after"},
        {"type": "struct", "fields": [], "field": "source"},
        {"type": "string", "field": "op"},
    ],
}


def side(key="a", price=150, **more):
    coded = base64.b64encode(price.to_bytes(2, "big", signed=True)).decode()
    return {"key": key, "at": 1_000_500, "price": coded, "size": None} | more


def wrapped(payload) -> bytes:
    return text({"schema": SCHEMA_BLOCK, "payload": payload}).replace(b'": ', b'":')


def test_events_in_json_with_their_schema_block_are_read_by_it():
    source = {"version": "2", "name": "shop", "table": "orders"}
    found = decode(
        "debezium",
        "json",
        [
            wrapped({"before": None, "after": side(), "source": source, "op": "c", "ts_ms": 1}),
            wrapped({"before": side(), "after": side(price=-200), "op": "u"}),
            (b'{"key": "a"}', wrapped({"before": None, "after": None, "op": "d"})),
            wrapped(None),
            wrapped({"after": side(price=7) | {"price": "@@"}, "op": "c"}),
        ],
    )
    assert rows(found) == [
        ("i", {}, {"key": "a", "at": 1000, "price": 150}),
        (
            "r",
            {"key": "a", "at": 1000, "price": 150},
            {"key": "a", "at": 1000, "price": -200},
        ),
        ("d", {"key": "a"}, {}),
    ]
    assert why(found) == [(4, "'price' needs decimal(9,2), found \"@@\"")]
    assert found.passed == 1


def test_events_in_json_without_a_block_are_read_by_the_declared_types():
    told = {"key": "a", "at": 5, "price": 1.5, "size": 2}
    batch = [
        text({"op": "c", "after": told, "source": {"key": "x", "name": "y"}}),
        text({"op": "d", "before": told, "after": None}),
        text({"ts_ms": 5}),
        text({"status": "BEGIN", "id": "7", "ts_ms": 5}),
        text({"op": "m", "message": {}}),
        text({"op": "t"}),
        text({"databaseName": "shop", "ddl": "drop table x"}),
        text({"ts_ms": 5, "more": 1}),
    ]
    found = decode("debezium", "json", batch)
    assert rows(found)[:2] == [
        ("i", {}, {"key": "a", "at": 5, "price": 150, "size": 2.0}),
        ("d", {"key": "a", "at": 5, "price": 150, "size": 2.0}, {}),
    ]
    assert [op for op, _, _ in rows(found)[2:]] == ["?", "?"]  # refused by the checks
    assert found.frame["__row"].to_list() == [0, 1, 6, 7]
    assert (found.passed, [r.row for r in found.refused]) == (3, [5])


def test_base64_of_a_decimal_without_a_block_is_refused_with_a_hint():
    batch = [text({"op": "c", "after": side() | {"at": 5}})]
    assert "schema block" in why(decode("debezium", "json", batch))[0][1]


def test_a_decimal_of_variable_scale_in_json_brings_its_scale():
    block = copy.deepcopy(SCHEMA_BLOCK)
    named = {"field": "price", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    block["fields"][1]["fields"][2] = named
    prices = [{"scale": 1, "value": "Dw=="}, {"scale": 3, "value": "Dw=="}, None]
    batch = [
        text({"schema": block, "payload": {"after": side() | {"price": p}, "op": "c"}})
        for p in prices
    ]
    found = decode("debezium", "json", [b.replace(b'": ', b'":') for b in batch])
    assert found.frame["after.price"].to_list() == [150, None]
    assert [row for row, _ in why(found)] == [1]


def test_a_control_record_that_is_none_of_its_schema_is_refused():
    """As a change with the schema id of heartbeats would be: it must not get lost."""
    heartbeat = record({"ts_ms": "long"}, "Heartbeat")
    good = avro(heartbeat, {"ts_ms": 5}, 3)
    found = decode(
        "debezium", "avro", [good, good + b"x", good[:5], good], registry=Registry({3: heartbeat})
    )
    assert found.passed == 2
    assert [row for row, _ in why(found)] == [1, 2]
