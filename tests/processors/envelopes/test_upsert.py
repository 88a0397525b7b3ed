"""Upserts and appends: values that are tuples, identities in keys, no value for a delete."""

import pytest

from tests.processors.envelopes.records import Registry, avro, decode, record, rows, text, why

AT = {"type": "long", "logicalType": "timestamp-millis"}
FIELDS = {"key": "string", "at": "timestamp-millis", "n": "long?"}
VALUE = record({"n": ["null", "long"], "key": "string", "at": AT})
NAMELESS = record({"at": AT, "n": "long"})
KEY = record({"key": "string", "shard": "int"}, "Key")
SCHEMAS = {
    1: VALUE,
    2: NAMELESS,
    3: KEY,
    4: "string",
    5: record({"other": "string"}, "Key"),
    6: ["null", "string"],
}


def of(n=7, **more):
    return {"key": "a", "at": 5, "n": n} | more


VALUES = {
    "avro": avro(VALUE, of()),
    "json": text(of()),
    "csv": b"a,5,7",
}
NAMELESS_VALUES = {
    "avro": avro(NAMELESS, {"at": 5, "n": 7}, 2),
    "json": text({"at": 5, "n": 7}),
    "csv": b",5,7",
}
KEYS = {
    "avro record": avro(KEY, {"key": "a", "shard": 1}, 3),
    "avro string": avro("string", "a", 4),
    "avro union": avro(["null", "string"], "a", 6),
    "json object": b'{"key": "a", "more": [1]}',
    "json string": b'"a"',
    "json behind a block": b'{"schema":{"type":"string"},"payload":"a"}',
    "plain text": b"a",
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("format", VALUES)
def test_a_value_is_the_tuple_and_no_value_deletes_what_the_key_names(format, key):
    batch = [(b"\xff", VALUES[format]), (KEYS[key], None), (KEYS[key], NAMELESS_VALUES[format])]
    found = decode("upsert", format, batch, registry=Registry(SCHEMAS), fields=FIELDS)
    assert why(found) == []
    assert rows(found) == [("i", {}, of()), ("d", {"key": "a"}, {}), ("i", {}, of())]
    assert found.frame["__row"].to_list() == [0, 1, 2]


BAD_KEYS = {
    "none": (None, "is missing"),
    "an unknown schema": (b"\0\0\0\0\x63x", "schema id 99"),
    "another record": (avro(SCHEMAS[5], {"other": "a"}, 5), "missing field 'key'"),
    "an object without it": (b'{"other": 1}', "the identity is needed"),
    "an object with null": (b'{"key": null}', "the identity is needed"),
    "an object of another type": (b'{"key": 5}', "Expected `str"),
    "null behind a block": (b'{"schema":null,"payload":null}', "is null"),
    "no UTF-8": (b"\xff\xfe", "needs string"),
    "broken JSON": (b'{"key"', "JSON"),
    "a torn string": (b'"a', "JSON"),
    "null in Avro": (avro(["null", "string"], None, 6), "the identity is needed"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_key_that_names_nothing_is_refused_and_the_others_are_not(name):
    key, detail = BAD_KEYS[name]
    batch = [(b"x", None), (key, None), (key, NAMELESS_VALUES["json"]), (b"y", None)]
    found = decode("upsert", "json", batch, registry=Registry(SCHEMAS), fields=FIELDS)
    assert rows(found) == [("d", {"key": "x"}, {}), ("d", {"key": "y"}, {})]
    assert [row for row, _ in why(found)] == [1, 2]
    assert all(detail in text for _, text in why(found)), why(found)


def test_identities_of_other_kinds_and_of_several_fields_come_from_keys():
    fields = {"id": "uuid", "day": "date", "at": "timestamp-millis"}
    canonical = "550e8400-e29b-41d4-a716-446655440000"
    batch = [(text({"day": "1970-01-02", "id": canonical.upper()}), None), (b"7", None)]
    found = decode("upsert", "json", batch, fields=fields, identity=("id", "day"))
    assert rows(found) == [("d", {"id": canonical, "day": 1}, {})]
    assert "neither Avro nor a JSON object with id, day" in why(found)[0][1]
    fields = {"id": "long", "at": "timestamp-millis"}
    batch = [(b"42", None), (b"4.2", None), (b'{"id": 43}', None)]
    found = decode("upsert", "json", batch, fields=fields, identity=("id",))
    assert [before["id"] for _, before, _ in rows(found)] == [42, 43]
    assert [row for row, _ in why(found)] == [1]


@pytest.mark.parametrize("format", VALUES)
def test_an_append_inserts_and_refuses_what_has_no_value(format):
    batch = [(b"a", VALUES[format]), (b"a", None)]
    found = decode("append", format, batch, registry=Registry(SCHEMAS), fields=FIELDS)
    assert rows(found) == [("i", {}, of())]
    assert why(found) == [(1, "no value, but envelope append has no deletes; declare it as upsert")]


def test_json_behind_a_schema_block_is_unwrapped_and_null_in_it_is_no_value():
    def block(at):
        return {"type": "struct", "fields": [{"field": "at", "type": "int64", "name": at}]}

    micros, nothing = "io.debezium.time.MicroTimestamp", "unknown.Name"
    values = [
        text({"schema": block(micros), "payload": of(at=5000)}),
        text(of()),
        text({"schema": block(nothing), "payload": of()}),
        text({"schema": None, "payload": None}),
        text({"schema": block(micros), "payload": of(at="x")}),
    ]
    values = [value.replace(b'{"schema": ', b'{"schema":') for value in values]
    found = decode("upsert", "json", [(b"k", value) for value in values], fields=FIELDS)
    assert rows(found) == [("i", {}, of())] * 3 + [("d", {"key": "k"}, {})]
    assert found.frame["__row"].to_list() == [0, 1, 2, 3]
    assert "timestamp-micros" in why(found)[0][1]


def test_a_field_named_schema_is_no_schema_block():
    fields = {"schema": "string", "at": "timestamp-millis"}
    value = b'{"schema":"x", "at":5}'
    found = decode("append", "json", [value], fields=fields, identity=("schema",))
    assert rows(found) == [("i", {}, {"schema": "x", "at": 5})]


def test_records_stay_in_their_order_whoever_tells_the_identity():
    batch = [(b"a", NAMELESS_VALUES["json"]), (None, VALUES["json"]), (b"a", None)]
    for records in (batch, batch[:2]):
        found = decode("upsert", "json", records, fields=FIELDS)
        assert found.frame["__row"].to_list() == list(range(len(records)))
