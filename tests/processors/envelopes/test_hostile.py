"""Hostile records of each format become dead letters, one by one, and the others are read."""

import struct
from decimal import Decimal

import pytest

from tests.processors.envelopes.records import Registry, avro, decode, record, rows, why

ONE = Decimal("1.00")
FIELDS = {"key": "string", "at": "timestamp-millis", "price": "decimal(9,2)", "n": "long?"}
AT = {"type": "long", "logicalType": "timestamp-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
VALUE = record({"key": "string", "at": AT, "price": PRICE, "n": ["null", "long"]})
GOOD = avro(VALUE, {"key": "a", "at": 5, "price": ONE, "n": 7})
NEWER = record({"extra": "int", "price": PRICE, "at": AT, "key": "string"})
RECURSIVE = record({"key": "string", "next": ["null", "T"]})
DEEP: object = "long"
for _depth in range(3000):
    DEEP = {"type": "array", "items": DEEP}
SCHEMAS = {
    1: VALUE,
    2: NEWER,
    3: record({"key": "string", "at": AT, "price": "string", "n": "long"}),
    4: RECURSIVE,
    5: record({"x": "string"}, "Other"),
    6: "string",
    7: {"type": "record"},
    8: record({"key": "string", "at": AT, "price": PRICE, "deep": DEEP}),
    9: record(
        {"key": "string", "at": AT, "price": PRICE, "items": {"type": "array", "items": "string"}}
    ),
}
ITEMS = avro(SCHEMAS[9], {"key": "a", "at": 5, "price": ONE, "items": ["x", "y"]}, 9)

AVRO = {
    "empty": (b"", "shorter than the 5 bytes"),
    "truncated head": (GOOD[:4], "shorter than the 5 bytes"),
    "truncated": (GOOD[:-1], "ends before"),
    "more behind it": (GOOD + b"x", "left over"),
    "wrong magic byte": (b"\1" + GOOD[1:], "magic byte"),
    "JSON": (b'{"key": "a"}', "magic byte"),
    "unknown schema id": (b"\0\0\0\0\x63" + GOOD[5:], "schema id 99"),
    "negative schema id": (b"\0\xff\0\0\0" + GOOD[5:], "negative"),
    "another subject's schema": (avro(SCHEMAS[5], {"x": "y"}, 5), "missing field"),
    "incompatible evolution": (b"\0\0\0\0\3x", "needs decimal(9,2), found string"),
    "recursive schema": (b"\0\0\0\0\4" + b"\2\2" * 5000, "in itself"),
    "schema that is no record": (b"\0\0\0\0\6", "needs a record"),
    "malformed schema": (b"\0\0\0\0\7", "needs a name"),
    "schema nested deeply": (b"\0\0\0\0\x08", "deeper than"),
    "invalid UTF-8": (GOOD[:5] + b"\2\xff" + GOOD[7:], "not UTF-8"),
    "huge number": (GOOD[:5] + b"\2a" + b"\xff" * 10 + b"\1", "64 bits"),
    "huge length": (GOOD[:5] + b"\xfe\xff\xff\xff\x0f", "past the end"),
    "wide decimal": (GOOD[:8] + b"\x28" + b"\x01" * 20, "16 bytes"),
    "too many digits": (GOOD[:8] + b"\x0a" + b"\x7f" * 5 + b"\0", "not between"),
    "30 million items": (ITEMS[:10] + b"\xfe\xff\xff\x1b", "more than 10000 items"),
    "a string of 10 MB": (
        avro(VALUE, {"key": "a" * 10_000_000, "at": 5, "price": ONE, "n": 7}),
        "1048576",
    ),
}

OBJECT = b'{"key": "a", "at": 5, "price": 1.00, "n": 7}'


def with_(name: bytes, value: bytes) -> bytes:
    parts = {b"key": b'"a"', b"at": b"5", b"price": b"1.00", b"n": b"7", name: value}
    return b"{" + b", ".join(b'"%s": %s' % part for part in parts.items()) + b"}"


JSON = {
    "empty": (b"", "truncated"),
    "truncated": (OBJECT[:-1], "truncated"),
    "null": (b"null", "got `null`"),
    "an array": (b"[" + OBJECT + b"]", "got `array`"),
    "two objects": (OBJECT + OBJECT, "trailing"),
    "trailing comma": (OBJECT[:-1] + b",}", "trailing comma"),
    "wrong type": (with_(b"key", b"5"), "got `int`"),
    "nested": (with_(b"key", b'{"a": 1}'), "got `object`"),
    "nested decimal": (with_(b"price", b'{"a": 1}'), "needs decimal(9,2)"),
    "nested time": (with_(b"at", b"[5]"), "needs timestamp-millis"),
    "huge number": (with_(b"n", b"1" * 5000), "-"),
    "huge decimal": (with_(b"price", b"1" * 5000), "needs decimal(9,2)"),
    "huge exponent": (with_(b"price", b"1e999999999"), "needs decimal(9,2)"),
    "fraction of a long": (with_(b"n", b"1.5"), "got `float`"),
    "long in quotes": (with_(b"n", b'"7"'), "got `str`"),
    "wrong scale": (with_(b"price", b"1.005"), "found 1.005"),
    "too many digits": (with_(b"price", b"10000000.00"), "found 10000000.00"),
    "no number": (with_(b"price", b'"much"'), 'found "much"'),
    "no time": (with_(b"at", b'"1970-02-30"'), 'found "1970-02-30"'),
    "time beyond 64 bits": (with_(b"at", b"9" * 30), "found 999"),
    "boolean time": (with_(b"at", b"true"), "found true"),
    "NaN": (with_(b"n", b"NaN"), "invalid character"),
    "Infinity as a decimal": (with_(b"price", b'"Infinity"'), "found"),
    "invalid UTF-8": (with_(b"key", b'"\xff"'), "utf-8"),
    "invalid UTF-8 in a number": (with_(b"price", b'"\xff"'), "needs decimal"),
    "invalid UTF-8 in what is passed over": (with_(b"more", b'"\xff"'), "not UTF-8"),
    "half a surrogate": (with_(b"key", b'"\\ud800"'), "JSON"),
    "control character": (with_(b"key", b'"\n"'), "invalid character"),
    "escaped digits": (with_(b"price", b'"\\u0031"'), "needs decimal"),
    "duplicate key": (OBJECT[:-1] + b', "price": 2}', "'price' occurs twice"),
    "duplicate of another spelling": (OBJECT[:-1] + b', "pr\\u0069ce": 2}', "occurs twice"),
    "deep": (with_(b"more", b"[" * 100_000 + b"]" * 100_000), "at most 100 deep"),
    "deep objects": (with_(b"more", b'{"a":' * 90_000 + b"1" + b"}" * 90_000), "at most 100 deep"),
    "one too deep": (with_(b"more", b"[" * 100 + b"]" * 100), "at most 100 deep"),
    "deep enough to end one of two parsers": (
        with_(b"more", b"[" * 980 + b"]" * 980)[:-1] + b', "key": "b"}',
        "at most 100 deep",
    ),
    "a deep schema block": (
        b'{"schema":' + b'{"fields":[' * 900 + b"]}" * 900 + b', "payload": ' + OBJECT + b"}",
        "at most 100 deep",
    ),
    "brackets in strings, and one field twice": (
        with_(b"more", b'"' + b"[{" * 500 + b'"')[:-1] + b', "key": "b"}',
        "'key' occurs twice",
    ),
    "Avro": (GOOD, "JSON"),
}

CSV = {
    "empty": (b"", "4 well-formed cells"),
    "too few cells": (b"a,5,1.00", "4 well-formed cells"),
    "too many cells": (b"a,5,1.00,7,8", "4 well-formed cells"),
    "open quote": (b'"a,5,1.00,7', "4 well-formed cells"),
    "quote inside": (b'a"b,5,1.00,7', "4 well-formed cells"),
    "two lines": (b"a,5,1.00,7\nb,5,1.00,7", "4 well-formed cells"),
    "open quote over a line": (b'a,5,1.00,"7\n', "4 well-formed cells"),
    "invalid UTF-8": (b"\xff,5,1.00,7", "not UTF-8"),
    "wrong type": (b"a,5,1.00,x", "'n' needs long, found x"),
    "wrong scale": (b"a,5,1.005,7", "'price' needs decimal(9,2), found 1.005"),
    "huge number": (b"a,5,1.00," + b"9" * 5000, "'n' needs long"),
    "NaN": (b"a,NaN,1.00,7", "'at' needs timestamp-millis, found NaN"),
    "a NUL": (b"a,5\0,1.00,7", "'at' needs"),
}
GOODS = {"avro": GOOD, "json": OBJECT, "csv": b"a,5,1.00,7"}
TABLE = [(f, name) for f, cases in (("avro", AVRO), ("json", JSON), ("csv", CSV)) for name in cases]
WANTED = ("i", {}, {"key": "a", "at": 5, "price": 100, "n": 7})


def case(format: str, name: str) -> tuple[bytes, str]:
    return {"avro": AVRO, "json": JSON, "csv": CSV}[format][name]


@pytest.mark.parametrize(("format", "name"), TABLE)
def test_a_hostile_record_is_refused_alone_and_says_why(format, name):
    value, detail = case(format, name)
    good = GOODS[format]
    found = decode("append", format, [good, value, good], registry=Registry(SCHEMAS), fields=FIELDS)
    assert rows(found) == [WANTED, WANTED]
    assert found.frame["__row"].to_list() == [0, 2]
    ((row, why_),) = why(found)
    assert row == 1
    assert detail in why_, why_
    assert len(why_) < 600


@pytest.mark.parametrize("format", GOODS)
def test_all_hostile_records_of_a_batch_are_refused_one_by_one(format):
    bad = [case(f, name)[0] for f, name in TABLE if f == format]
    batch = [record for value in bad for record in (value, GOODS[format])]
    found = decode("append", format, batch, registry=Registry(SCHEMAS), fields=FIELDS)
    assert rows(found) == [WANTED] * len(bad)
    assert [row for row, _ in why(found)] == list(range(0, 2 * len(bad), 2))


def test_a_hundred_levels_are_read_and_brackets_in_strings_are_no_levels():
    more = [b"[" * 99 + b"]" * 99, b'"' + b'[\\"{' * 500 + b'"', b"[" + b"[]," * 999 + b"[]]"]
    batch = [with_(b"more", value) for value in more]
    found = decode("append", "json", batch, registry=Registry(SCHEMAS), fields=FIELDS)
    assert why(found) == []
    assert rows(found) == [WANTED] * len(batch)


def test_two_schemas_in_one_topic_are_each_read_by_their_own():
    newer = avro(NEWER, {"extra": 9, "key": "a", "at": 5, "price": ONE}, 2)
    found = decode(
        "append", "avro", [GOOD, newer, ITEMS, GOOD], registry=Registry(SCHEMAS), fields=FIELDS
    )
    assert why(found) == []
    assert [after.get("n") for _, _, after in rows(found)] == [7, None, None, 7]


def test_nan_and_the_infinities_are_values_in_avro():
    fields = {"key": "string", "at": "timestamp-millis", "x": "double"}
    schema = record({"key": "string", "at": AT, "x": "double"})
    numbers = [float("nan"), float("inf"), float("-inf"), -0.0]
    values = [avro(schema, {"key": "a", "at": 5, "x": x}) for x in numbers]
    found = decode("append", "avro", values, registry=Registry({1: schema}), fields=fields)
    told = [struct.pack(">d", after["x"]) for _, _, after in rows(found)]
    assert told == [struct.pack(">d", x) for x in numbers]


@pytest.mark.parametrize("piece", [b"1234", b"true", b"[]", b"0.5", b"1" * 32])
@pytest.mark.parametrize("name", ["raw", "id"])
def test_bytes_and_uuids_in_json_are_strings(name, piece):
    """Digits, and `true`, would be base64, and 32 digits a uuid."""
    fields = {"key": "string", "at": "timestamp-millis", "raw": "bytes?", "id": "uuid?"}
    bad = b'{"key": "a", "at": 5, "%s": %s}' % (name.encode(), piece)
    good = b'{"key": "a", "at": 5, "raw": "QUI=", "id": "%s"}' % (b"1" * 32)
    found = decode("append", "json", [good, bad, good], fields=fields)
    wanted = {"key": "a", "at": 5, "raw": b"AB", "id": "11111111-1111-1111-1111-111111111111"}
    assert rows(found) == [("i", {}, wanted)] * 2
    ((row, why_),) = why(found)
    assert row == 1
    assert f"{name!r} needs" in why_


def test_a_record_that_is_not_utf8_hides_no_fields_that_occur_twice():
    """Its four fields are not counted in the text, as many as occur twice in the others."""
    unread = with_(b"more", b'"\xff"')
    twice = OBJECT[:-1] + b', "price": 2}'
    found = decode("append", "json", [unread, *[twice] * 4, OBJECT], fields=FIELDS)
    assert rows(found) == [WANTED]
    assert [row for row, _ in why(found)] == [0, 1, 2, 3, 4]
