"""Single values at the edges of what Avro allows; whole records are in test_records."""

import numpy as np
import polars as pl
import pytest

from errata.schemas.batch import MAX_RECORD_BYTES
from errata.schemas.decode import Decoder, UndecodableError, malformed

WIDE, LARGEST = b"\xff" * 9, b"\xff" * 9 + b"\x01"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
DECIMAL_38 = DECIMAL | {"precision": 38}
ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


def of(avro):
    fields = [{"name": "f", "type": avro}]
    return Decoder({"type": "record", "name": "T", "fields": fields})


def zigzag(value):
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("avro", "body", "value"),
    [
        ("boolean", b"\1", True),
        ("int", b"\xff\xff\xff\xff\x0f", -(2**31)),
        ("long", LARGEST, -(2**63)),
        ("long", b"\x80\0", 0),
        ("long", b"\x82" + b"\x80" * 8 + b"\0", 1),
        ("string", b"\0", ""),
        ("string", b"\x04\xc3\xa9", "é"),
        (["long", "null"], b"\2", None),
        (DECIMAL, b"\0", 0),
        (DECIMAL, b"\4\xff\x80", -128),
        (DECIMAL, b"\x20" + b"\xff" * 16, -1),
        (DECIMAL_38, b"\x20" + (10**38 - 1).to_bytes(16, "big"), 10**38 - 1),
        (DECIMAL_38, b"\x12" + (2**63).to_bytes(9, "big"), 2**63),
        (TIME, zigzag(-62_135_596_800_000), -62_135_596_800_000),
        (TIME, zigzag(253_402_300_799_999), 253_402_300_799_999),
        ("null", b"", None),
    ],
)
def test_a_value_at_the_edge_is_read(avro, body, value):
    assert of(avro).decode([body, body])["f"].to_list() == [value, value]


@pytest.mark.parametrize(
    ("avro", "body", "reason"),
    [
        ("boolean", b"", "ends before"),
        ("boolean", b"\2", "neither 0 nor 1"),
        ("int", b"\x80\x80\x80\x80\x10", "not between"),
        ("long", b"\x80", "ends before"),
        ("long", WIDE, "ends before"),
        ("long", WIDE + b"\2", "more than 64 bits"),
        ("long", WIDE + b"\x80\0", "more than 64 bits"),
        ("long", b"\2\2", "left over"),
        ("float", b"\0\0\0", "ends before"),
        ("double", b"\0" * 7, "ends before"),
        ("string", b"\4a", "length past the end"),
        ("string", b"\1ab", "negative length"),
        ("string", zigzag(2**63 - 1), "length past the end"),
        ("bytes", zigzag(-(2**63)), "negative length"),
        (["null", "long"], b"\4", "no such union branch"),
        (["null", "long"], b"\1", "no such union branch"),
        (ENUM, b"\4", "not between 0 and 1"),
        (ENUM, b"\1", "not between 0 and 1"),
        (ENUM, zigzag(256), "not between 0 and 1"),
        (DECIMAL, b"\4\x27\x10", "not between"),
        (DECIMAL, b"\4\xd8\xf0", "not between"),
        (DECIMAL, b"\x22" + b"\0" * 17, "more than 16 bytes"),
        (DECIMAL_38, b"\x20" + (10**38).to_bytes(16, "big"), "not between"),
        (DECIMAL_38, b"\x20" + (-(10**38)).to_bytes(16, "big", signed=True), "not between"),
        (TIME, zigzag(-62_135_596_800_001), "not between"),
        (TIME, zigzag(253_402_300_800_000), "not between"),
        ("null", b"\0", "left over"),
    ],
)
def test_a_value_past_the_edge_is_refused_with_the_reason(avro, body, reason):
    decoder = of(avro)
    frame, good, bad = decoder.decode_each([body])
    assert (frame.height, good.tolist(), bad[0][0]) == (0, [], 0)
    assert reason in bad[0][1]
    with pytest.raises(UndecodableError, match=reason):
        decoder.decode([body])


TEXTS = [b"", b"a", "é".encode(), "€".encode(), "𝄞".encode(), b"\xed\x9f\xbf", b"\xf4\x8f\xbf\xbf"]
TORN = [
    *(b"\x80", b"\xbf\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xf5\x80\x80\x80", b"\xff", b"a\xc3"),
    *(b"\xe2\x82", b"\xf0\x9d\x84", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf"),
    *(b"\xf4\x90\x80\x80", b"\xc3\xa9\xa9", b"\xe2\x82\xac\x82"),
]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("text", TEXTS)
def test_bytes_that_are_not_utf_8_are_refused_wherever_strings_meet(torn, text):
    with pytest.raises(UnicodeDecodeError):
        torn.decode()
    strings = [text, torn, text, torn, torn, text]
    bodies = [zigzag(len(string)) + string for string in strings]
    frame, good, bad = of("string").decode_each(bodies)
    assert good.tolist() == [0, 2, 5]
    assert [reason for _, reason in bad] == ["field 'f': a string is not UTF-8"] * 3
    assert frame["f"].to_list() == [text.decode()] * 3


def test_a_sequence_that_two_strings_share_is_found_in_both():
    whole = "€".encode()
    bodies = [zigzag(len(part)) + part for part in (whole[:1], whole[1:], whole)]
    assert of("string").decode_each(bodies).good.tolist() == [2]


def test_well_formed_is_what_python_decodes():
    pairs = [bytes([a, b]) for a in range(256) for b in range(256)]
    offsets = np.arange(0, 2 * len(pairs) + 1, 2)
    found = malformed(np.frombuffer(b"".join(pairs), np.uint8), offsets)
    for pair, bad in zip(pairs, found.tolist(), strict=True):
        assert (pair.decode(errors="ignore").encode() != pair) == bad, pair


def test_an_empty_batch_has_the_columns():
    frame, good, bad = of(["null", "string"]).decode_each([])
    assert frame.schema == pl.Schema({"f": pl.String})
    assert (len(good), bad) == (0, [])


def test_a_record_over_the_cap_is_refused_though_well_formed():
    text = bytes(MAX_RECORD_BYTES - 3)  # three bytes of length
    fits, over = (zigzag(len(value)) + value for value in (text, text + b"x"))
    assert of("bytes").decode_each([over, fits]).bad == [(0, "more than 1048576 bytes")]


def test_a_foreign_debezium_envelope_is_read_in_its_own_order():
    value = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "note", "type": ["string", "null"]},
            {"name": "id", "type": {"type": "long", "connect.name": "x"}},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "namespace": "io.debezium",
                    "fields": [
                        {"name": "db", "type": "string"},
                        {"name": "lsn", "type": ["null", "long"]},
                    ],
                },
            },
            {"name": "op", "type": "string"},
        ],
    }
    body = b"\0" + b"\2\2\x0e" + b"\2d\0" + b"\2c"
    (row,) = Decoder(envelope).decode([body]).rows(named=True)
    assert row == {
        "before": False,
        "before.note": None,
        "before.id": None,
        "after": True,
        "after.note": None,
        "after.id": 7,
        "source.db": "d",
        "source.lsn": None,
        "op": "c",
    }
