"""Sources in Protobuf: every kind of field, presence, message indexes, and what is refused."""

import datetime
import random
import re

import polars as pl
import pytest
from google.protobuf import timestamp_pb2

from errata.client import protobuf_records
from errata.client.sending import source_records
from errata.processors.envelopes.protobuf_schema import (
    ProtobufSchemaError,
    avro_schema,
    compiled,
    messages,
)
from tests.processors.envelopes.protobuf import Protos, classes, framed
from tests.processors.envelopes.records import FIELDS, decode, record, rows, source, why

HEAD = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
import "google/type/date.proto"; import "google/type/decimal.proto";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
"""
TRADE = """message Trade {
  string key = 1; int64 at = 2; string price = 3; optional double size = 4;
  google.protobuf.StringValue note = 5; repeated int32 more = 6; map<string, int32> tags = 7;
}"""
REVISION = f"""{TRADE} message Revision {{ string op = 1; Trade before = 2; Trade after = 3; }}"""
AT = int(datetime.datetime(2024, 1, 31, 1, 2, 3, tzinfo=datetime.UTC).timestamp())


def of_one(field: str, kind: str, value: object, **options) -> tuple[list, list]:
    """Decode one message of a key, a time and one more field."""
    extra = options.get("extra", "")
    text = f"{HEAD} message T {{ string key = 1; int64 at = 2; {field} = 3; }} {extra}"
    message = classes(text)["T"](key="a", at=5)
    if value is not None:
        parts = value if isinstance(value, dict) else None
        if parts is None:
            message.x = value
        else:
            message.x.SetInParent()
            for name, each in parts.items():
                setattr(message.x, name, each)
    fields = {"key": "string", "at": "timestamp-millis", "x": kind}
    found = decode(
        "append", "protobuf", [framed(message)], registry=Protos({1: text}), fields=fields
    )
    return [after.get("x") for _, _, after in rows(found)], [reason for _, reason in why(found)]


ENUM = "enum Side { BUY = 0; SELL = 7; }"
HELD = [
    ("int32 x", "int", -5, -5),
    ("sint64 x", "long", -(2**63), -(2**63)),
    ("int32 x", "long", -5, -5),
    ("uint32 x", "long", 2**32 - 1, 2**32 - 1),
    ("fixed64 x", "long", 2**63 - 1, 2**63 - 1),
    ("float x", "float", 0.5, 0.5),
    ("float x", "double", 0.5, 0.5),
    ("double x", "double", 0.1, 0.1),
    ("bool x", "boolean", True, True),
    ("string x", "string", "é\0", "é\0"),
    ("bytes x", "bytes", b"\xff", b"\xff"),
    ("Side x", "string", 7, "SELL"),
    ("string x", "decimal(9,2)", "-12.5", -1250),
    ("string x", "date", "2024-01-31", 19_753),
    ("string x", "timestamp-micros", "2024-01-31T01:02:03.000004Z", AT * 1_000_000 + 4),
    ("string x", "uuid", "A" * 32, "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"),
    ("int64 x", "timestamp-micros", 7, 7),
    ("int32 x", "date", 19_753, 19_753),
    ("google.protobuf.Timestamp x", "timestamp-millis", {"seconds": AT, "nanos": 1_999_999},
     AT * 1000 + 1),
    ("google.protobuf.Timestamp x", "timestamp-micros", {"seconds": -1, "nanos": 999_999_999}, -1),
    ("google.type.Date x", "date", {"year": 2024, "month": 1, "day": 31}, 19_753),
    ("google.type.Date x", "date", {"year": 1, "month": 1, "day": 1}, -719_162),
    ("google.type.Decimal x", "decimal(9,2)", {"value": "1.5e1"}, 1500),
    ("google.protobuf.Int64Value x", "long?", {"value": 0}, 0),
    ("google.protobuf.BytesValue x", "bytes?", {"value": b"a"}, b"a"),
    ("confluent.type.Decimal x", "decimal(9,2)", {"value": b"\xff\x38", "scale": 2}, -200),
    ("confluent.type.Decimal x", "decimal(9,2)", {"value": b"\x05", "scale": -1}, 5000),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "kind", "value", "expected"), HELD, ids=[f"{f}-{k}" for f, k, *_ in HELD]
)
def test_a_field_is_read_as_its_declared_type(field, kind, value, expected):
    assert of_one(field, kind, value, extra=ENUM) == ([expected], [])


def test_the_digits_of_a_decimal_come_from_its_options():
    options = '[(confluent.field_meta).params = {key: "scale", value: "3"}, '
    options += '(confluent.field_meta).params = {key: "precision", value: "12"}]'
    for scale, expected in ((3, 5), (2, 50), (4, None)):
        kinds = f"string key = 1; int64 at = 2; confluent.type.Decimal x = 3 {options};"
        text = f"{HEAD} message T {{ {kinds} }}"
        message = classes(text)["T"](key="a", at=5)
        message.x.value, message.x.scale = b"\x05", scale
        fields = {"key": "string", "at": "timestamp-millis", "x": "decimal(12,3)"}
        found = decode(
            "append", "protobuf", [framed(message)], registry=Protos({1: text}), fields=fields
        )
        told = [after["x"] for _, _, after in rows(found)]
        assert told == ([] if expected is None else [expected])
        assert len(why(found)) == (expected is None)
    schema = avro_schema(compiled(text, {}).message_types_by_name["T"])
    kind = schema["fields"][2]["type"][1]
    assert (kind["precision"], kind["scale"]) == (12, 3)


REFUSED = [
    ("uint64 x", "long", 2**63, "a number above 2\\^63 - 1"),
    ("Side x", "string", 9, "a number that enum shop.Side does not have"),
    ("google.protobuf.Timestamp x", "timestamp-millis", {"seconds": 2**62}, "not a valid google"),
    ("google.protobuf.Timestamp x", "timestamp-millis", {"nanos": -1}, "not a valid google"),
    ("google.type.Date x", "date", {"year": 2024, "month": 2, "day": 30}, "not a valid google"),
    ("google.type.Date x", "date", {"year": 2024}, "not a valid google"),
    ("google.type.Date x", "date", {"year": -5, "month": 1, "day": 1}, "not a valid google"),
    ("google.type.Decimal x", "decimal(9,2)", {"value": "1.555"}, "'x' needs decimal"),
    ("confluent.type.Decimal x", "decimal(9,2)", {"value": b"\1" * 17}, "'x'"),
    ("confluent.type.Decimal x", "decimal(9,2)", {"value": b"\1", "scale": 2**31 - 1}, "'x'"),
    ("string x", "decimal(9,2)", "a", "'x' needs decimal"),
    ("int64 x", "int", 5, "field 'x' needs int, found long"),
    ("double x", "decimal(9,2)", 0.1, "field 'x' needs decimal.9,2., found double"),
    ("repeated int32 x", "int", None, "x: type 'array'"),
    ("map<string, int32> x", "int", None, "x: type 'array'"),
    ("google.protobuf.Timestamp x", "long", None, "field 'x' needs long, found timestamp-micros"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "kind", "value", "reason"), REFUSED)
def test_what_does_not_fit_is_refused_with_a_reason(field, kind, value, reason):
    held, told = of_one(field, kind, value, extra=ENUM)
    assert held == []
    assert len(told) == 1
    assert re.search(reason, told[0]), told[0]


def test_absent_fields_are_null_only_where_protobuf_tells():
    text = HEAD + TRADE
    empty, full = classes(text)["Trade"](key="a", at=5, price="1"), classes(text)["Trade"]()
    full.key, full.at, full.price, full.size, full.note.value = "b", 0, "0", 0.0, ""
    found = decode(
        "append",
        "protobuf",
        [framed(empty), framed(full)],
        registry=Protos({1: text}),
        fields=FIELDS,
    )
    assert [after for _, _, after in rows(found)] == [
        {"key": "a", "at": 5, "price": 100},
        {"key": "b", "at": 0, "price": 0, "size": 0.0, "note": ""},
    ]


def test_an_empty_text_that_stands_for_another_type_is_null():
    text = f"{HEAD} message T {{ string key = 1; int64 at = 2; string x = 3; string y = 4; }}"
    fields = {"key": "string", "at": "timestamp-millis", "x": "date?", "y": "string?"}
    value = framed(classes(text)["T"](key="a", at=5))
    found = decode("append", "protobuf", [value], registry=Protos({1: text}), fields=fields)
    assert rows(found) == [("i", {}, {"key": "a", "at": 5, "y": ""})]


@pytest.mark.parametrize("envelope", ["native", "debezium"])
def test_revisions_have_sides(envelope):
    text = HEAD + REVISION
    made = classes(text)
    trade, revision = made["Trade"], made["Revision"]
    one, two = trade(key="a", at=5, price="1.00"), trade(key="a", at=6, price="2.00")
    ops = ("insert", "replace", "delete") if envelope == "native" else ("c", "u", "d")
    values = [
        framed(revision(op=ops[0], after=one), indexes=b"\2\2"),
        framed(revision(op=ops[1], before=one, after=two), indexes=b"\2\2"),
        framed(revision(op=ops[2], before=two), indexes=b"\2\2"),
    ]
    found = decode(envelope, "protobuf", values, registry=Protos({1: text}), fields=FIELDS)
    first, second = {"key": "a", "at": 5, "price": 100}, {"key": "a", "at": 6, "price": 200}
    assert rows(found) == [("i", {}, first), ("r", first, second), ("d", second, {})]
    without = decode(
        envelope,
        "protobuf",
        [framed(revision(op=ops[2]), indexes=b"\2\2")],
        registry=Protos({1: text}),
        fields=FIELDS,
    )
    assert not any(before for _, before, _ in rows(without))  # an absent side has no empty texts


def test_debeziums_heartbeats_are_passed_over():
    text = 'syntax = "proto3"; message Heartbeat { int64 ts_ms = 1; }'
    value = framed(classes(text)["Heartbeat"](ts_ms=5))
    assert decode("debezium", "protobuf", [value], registry=Protos({1: text})).passed == 1
    native = decode("native", "protobuf", [value], registry=Protos({1: text}))
    assert (native.passed, len(why(native))) == (0, 1)


def test_message_indexes_choose_the_message():
    inner = (
        TRADE.replace("message Trade {", "message Outer { message Skip {} message Trade {") + "}"
    )
    text = f"{HEAD} message First {{ bool no = 1; }} {inner}"
    assert {path: each.name for path, each in messages(compiled(text, {}))} == {
        (0,): "First", (1,): "Outer", (1, 0): "Skip", (1, 1): "Trade",
    }  # fmt: skip
    trade, first = classes(text)["Trade"](key="a", at=5, price="1"), classes(text)["First"]()
    values = [
        framed(trade, indexes=b"\4\2\2"), framed(first), framed(first, indexes=b"\2\0"),
        framed(trade, indexes=b"\4\2\4"), framed(trade, indexes=b"\4\2\x82\0"), b"\0\0\0\0\1",
        framed(trade, indexes=b"\4\2\2"),
    ]  # fmt: skip
    found = decode("append", "protobuf", values, registry=Protos({1: text}), fields=FIELDS)
    assert [after["key"] for _, _, after in rows(found)] == ["a", "a"]
    refused = dict(why(found))
    assert sorted(refused) == [1, 2, 3, 4, 5]
    assert {refused[row] for row in (3, 4, 5)} == {
        "the message indexes name no message of its Protobuf schema"
    }
    assert all("message shop.First" in refused[row] for row in (1, 2))


def test_keys_are_read_in_protobuf_too():
    text, key_text = (
        HEAD + TRADE.replace("string key = 1;", ""),
        'syntax = "proto3"; message Key { string key = 9; }',
    )
    registry = Protos({1: text, 2: key_text})
    value = framed(classes(text)["Trade"](at=5, price="1"))
    key = framed(classes(key_text)["Key"](key="a"), 2)
    found = decode(
        "upsert", "protobuf", [(key, value), (key, None)], registry=registry, fields=FIELDS
    )
    assert rows(found) == [
        ("i", {}, {"key": "a", "at": 5, "price": 100}),
        ("d", {"key": "a"}, {}),
    ]


def test_another_kind_of_schema_refuses_its_records_alone():
    text = HEAD + TRADE
    registry = Protos({1: text, 3: "no Protobuf", 4: 'syntax = "proto3"; import "gone.proto";'})
    registry.schemas[2] = record({"key": "string"})
    good = framed(classes(text)["Trade"](key="a", at=5, price="1"))
    values = [good, *(framed(timestamp_pb2.Timestamp(), i) for i in (2, 3, 4, 99))]
    found = decode("append", "protobuf", values, registry=registry, fields=FIELDS)
    assert [after["key"] for _, _, after in rows(found)] == ["a"]
    told = dict(why(found))
    assert "schema of Avro, but the source's format is protobuf" in told[1]
    assert "can't be compiled: line 1:1" in told[2]
    assert "gone.proto" in told[3]
    assert "schema 99" in told[4]
    as_avro = decode("append", "avro", [good], registry=registry, fields=FIELDS)
    assert "declare the source as protobuf" in why(as_avro)[0][1]


def test_files_are_imported_by_reference_and_never_written_elsewhere(tmp_path):
    imports = {"a/b.proto": 'syntax = "proto3"; package b; enum Side { BUY = 0; }'}
    text = 'syntax = "proto3"; import "a/b.proto"; message T { b.Side side = 1; }'
    assert (
        compiled(text, imports).message_types_by_name["T"].fields[0].enum_type.full_name == "b.Side"
    )
    for name in ("../x.proto", str(tmp_path / "x.proto"), "a/../../x.proto"):
        with pytest.raises(ProtobufSchemaError, match="can't be imported"):
            compiled(text, {name: ""})


def test_texts_of_proto2_that_are_not_utf8_are_refused():
    kinds = "optional string key = 1; optional int64 at = 2; optional string x = 3;"
    text = f'syntax = "proto2"; message T {{ {kinds} }}'
    fields = {"key": "string", "at": "timestamp-millis", "x": "string?"}
    values = [b"\0\0\0\0\1\0\x0a\1a\x10\5", b"\0\0\0\0\1\0\x0a\1b\x10\5\x1a\2\xff\xfe"]
    found = decode("append", "protobuf", values, registry=Protos({1: text}), fields=fields)
    assert [after["key"] for _, _, after in rows(found)] == ["a"]
    assert why(found) == [(1, "field 'x': not UTF-8")]


def test_damaged_records_are_read_or_refused():
    text, chance = HEAD + REVISION, random.Random(3)
    made = classes(text)
    trade = made["Trade"](key="a" * 9, at=5, price="1.00", size=2.0, more=[1, 2], tags={"a": 1})
    trade.note.value = "n"
    good = [framed(trade), framed(made["Revision"](op="insert", after=trade), indexes=b"\2\2")]
    values = []
    for _ in range(3_000):
        damaged = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(5, len(damaged))] = chance.randrange(256)
        values.append(bytes(damaged[: chance.randint(5, len(damaged))]))
    for envelope in ("append", "upsert", "native", "debezium"):
        found = decode(envelope, "protobuf", values, registry=Protos({1: text}), fields=FIELDS)
        assert len(rows(found)) + len(why(found)) + found.passed == len(values)
        assert len(why(found)) > 1_000


@pytest.mark.parametrize("envelope", ["append", "upsert", "native", "debezium"])
def test_what_is_sent_by_hand_is_read_back(envelope):
    kinds = """string key = 1; google.protobuf.Timestamp at = 2; confluent.type.Decimal price = 3;
    google.protobuf.DoubleValue size = 4; optional string note = 5; google.type.Date day = 6;
    google.type.Decimal other = 7; Side side = 8; string when = 9; int64 count = 10;"""
    text = f"{HEAD} {ENUM} message Trade {{ {kinds} }}"
    if envelope in ("native", "debezium"):
        sides = "Trade before = 2; Trade after = 3; int64 ts_ms = 4;"
        text = f"{HEAD} {ENUM} message R {{ string op = 1; {sides} message Trade {{ {kinds} }} }}"
    fields = FIELDS | {
        "day": "date?", "other": "decimal(20,3)?", "side": "string", "when": "timestamp-micros",
        "count": "timestamp-millis",
    }  # fmt: skip
    registry = Protos({1: text})
    registry.subjects["s-value"] = 1
    of = source(envelope, "protobuf", fields)
    lines = [
        b'{"op":"insert","before":null,"after":{"key":"a","at":-1,"price":-1.5,"size":0.0,'
        b'"note":"","day":"2024-01-31","other":-0.005,"side":"SELL","when":"2024-01-31T01:02:03.000004Z",'
        b'"count":5}}',
        b'{"op":"insert","before":null,"after":{"key":"b","at":"2024-01-31","price":123,"size":null,'
        b'"note":null,"day":null,"other":null,"side":"BUY","when":0,"count":0}}',
    ]
    if envelope != "append":
        lines.append(
            b'{"op":"delete","before":{"key":"a","at":-1,"price":-1.5,"side":"SELL","when":0,"count":5}}'
        )
    revisions = decode("native", "json", lines, fields=fields).frame
    assert revisions.height == len(lines)
    pairs = source_records(of, revisions, registry=registry, time_ms=7)
    found = decode(envelope, "protobuf", pairs, registry=registry, fields=fields)
    assert why(found) == []
    names = [f"after.{name}" for name in fields]
    entering = pl.col("op") != 1
    assert (
        found.frame.filter(entering)
        .select("op", *names)
        .equals(revisions.filter(entering).select("op", *names))
    )
    if envelope != "append":
        left = found.frame.filter(~entering)
        assert left["before.key"].to_list() == ["a"]


def test_sending_needs_a_schema_with_the_fields():
    of = source("upsert", "protobuf")
    revisions = decode(
        "native", "json", [b'{"op":"insert","after":{"key":"a","at":5,"price":1}}']
    ).frame
    registry = Protos({1: HEAD + "message T { string key = 1; int64 at = 2; }"})
    with pytest.raises(protobuf_records.NoMessageError, match="of subject 's-value', found none"):
        source_records(of, revisions, registry=registry, time_ms=0)
    registry.subjects["s-value"] = 1
    with pytest.raises(protobuf_records.NoMessageError, match=r"shop\.T has no field 'price'"):
        source_records(of, revisions, registry=registry, time_ms=0)
    registry.texts[1] = (
        HEAD + "message T { string key = 1; int64 at = 2; int32 size = 3; string price = 4; }"
    )
    wrong = decode(
        "native", "json", [b'{"op":"insert","after":{"key":"a","at":5,"price":1,"size":0.5}}']
    ).frame
    with pytest.raises(
        protobuf_records.NoMessageError, match=r"'size' of message shop\.T can't hold"
    ):
        source_records(of, wrong, registry=registry, time_ms=0)
