"""Every kind of field, in every format: what was written is what is read."""

import base64
import csv
import io
import json
import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.schemas.fields import FieldType
from tests.processors.envelopes.records import Registry, avro, decode, record, rows, why

EXACT = Context(prec=60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = {
    "s": "string",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "b": "boolean",
    "y": "bytes",
    "n": "decimal(18,2)",
    "w": "decimal(38,10)",
    "t": "date",
    "u": "timestamp-micros",
    "g": "uuid",
}
FIELDS = {"key": "long", "at": "timestamp-millis"}
FIELDS |= {name: kind + ("?" if i % 2 else "") for i, (name, kind) in enumerate(KINDS.items())}


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    edges = st.sampled_from([0, 1, -1, most, -most, 2**63, -(2**63) - 1])
    fits = (edges | st.integers(-most, most)).filter(lambda n: abs(n) <= most)
    return fits.map(lambda n: Decimal(n).scaleb(-scale, EXACT))


FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 30)
FLOATS = st.floats(width=32)
VALUES = {
    "key": st.integers(0, 5),
    "at": st.datetimes(datetime(1000, 1, 2), datetime(8999, 12, 30)).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)
    ),
    "s": st.text(max_size=8),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "f": FLOATS,
    "d": st.floats(),
    "b": st.booleans(),
    "y": st.binary(max_size=8),
    "n": decimals(18, 2),
    "w": decimals(38, 10),
    "t": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "u": st.datetimes(FIRST, LAST).map(lambda t: t.replace(tzinfo=UTC)),
    "g": st.uuids(),
}
ROWS = st.fixed_dictionaries(
    {
        name: values if not FIELDS[name].endswith("?") else st.none() | values
        for name, values in VALUES.items()
    }
)


def physical(name: str, value: object) -> object:
    """Return a plain value as a column holds it."""
    if isinstance(value, datetime):
        unit = 1000 if name == "at" else 1
        return (value - EPOCH) // timedelta(microseconds=unit)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    if isinstance(value, Decimal):
        return int(value.scaleb(FieldType.parse(KINDS[name]).scale, EXACT))
    return str(value) if isinstance(value, UUID) else value


def bits(value: object) -> object:
    return struct.pack(">d", value) if isinstance(value, float) else value


def same(found: dict, row: dict) -> None:
    wanted = {name: physical(name, value) for name, value in row.items() if value is not None}
    for name, value in wanted.items():
        if isinstance(value, float) and math.isnan(value):
            assert math.isnan(found[name])
        else:
            assert bits(found[name]) == bits(value), name
    assert found.keys() == wanted.keys()


SCHEMA = record({name: FieldType.parse(kind).avro for name, kind in FIELDS.items()})
SIDED = record({"op": "string", "before": ["null", SCHEMA], "after": ["null", "T"]}, "R")


@settings(max_examples=20)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_avro_of_fastavro_is_read_exactly(given_rows) -> None:
    values = [avro(SCHEMA, row) for row in given_rows]
    for envelope in ("append", "upsert"):
        found = decode(envelope, "avro", values, registry=Registry({1: SCHEMA}), fields=FIELDS)
        assert not found.refused
        for (_, _, after), row in zip(rows(found), given_rows, strict=True):
            same(after, row)
    for envelope, op in (("native", "replace"), ("debezium", "u")):
        sided = [avro(SIDED, {"op": op, "before": row, "after": row}) for row in given_rows]
        found = decode(envelope, "avro", sided, registry=Registry({1: SIDED}), fields=FIELDS)
        assert not found.refused
        for (_, before, after), row in zip(rows(found), given_rows, strict=True):
            same(before, row)
            same(after, row)


def in_json(name: str, value: object, *, quoted: bool) -> str:
    if isinstance(value, datetime):
        number = physical(name, value)
        return json.dumps(value.isoformat()) if quoted else str(number)
    if isinstance(value, date):
        return json.dumps(value.isoformat()) if quoted else str(physical(name, value))
    if isinstance(value, Decimal):
        return json.dumps(str(value)) if quoted else str(value)
    if isinstance(value, UUID):
        return json.dumps(str(value).upper() if quoted else value.hex)
    if isinstance(value, bytes):
        coded = json.dumps(base64.b64encode(value).decode())
        return coded.replace("/", "\\/") if quoted else coded
    return json.dumps(value, ensure_ascii=quoted)


def finite(row: dict) -> bool:
    return all(math.isfinite(row[name]) for name in ("f", "d") if row[name] is not None)


@settings(max_examples=20)
@given(st.lists(ROWS.filter(finite), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_json_is_read_exactly_in_either_form_of_its_values(given_rows, quoted, omit) -> None:
    texts = [
        "{"
        + ", ".join(
            f'"{name}": {in_json(name, value, quoted=quoted)}'
            for name, value in row.items()
            if value is not None or not omit
        )
        + "}"
        for row in given_rows
    ]
    found = decode("append", "json", [text.encode() for text in texts], fields=FIELDS)
    assert not found.refused
    for (_, _, after), row in zip(rows(found), given_rows, strict=True):
        same(after, row)
    sided = [f'{{"op": "d", "before": {text}}}'.encode() for text in texts]
    found = decode("debezium", "json", sided, fields=FIELDS)
    assert not found.refused
    for (_, before, _), row in zip(rows(found), given_rows, strict=True):
        same(before, row)


def cell(name: str, value: object) -> object:
    if isinstance(value, bool):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return json.loads(in_json(name, value, quoted=True))


ENDS = st.sampled_from(["", "\n", "\r\n"])


@settings(max_examples=20)
@given(st.lists(ROWS.filter(finite), min_size=1, max_size=4), ENDS)
def test_csv_is_read_exactly(given_rows, end) -> None:
    lines = []
    for row in given_rows:
        out = io.StringIO()
        csv.writer(out).writerow([cell(n, row[n]) for n in FIELDS])
        lines.append((out.getvalue().removesuffix("\r\n") + end).encode())
    found = decode("upsert", "csv", lines, fields=FIELDS)
    assert not found.refused
    for (_, _, after), row in zip(rows(found), given_rows, strict=True):
        same(after, row | {"s": row["s"] or None, "y": row["y"] or None})


NARROW = {
    ("int", "long"): (5, 5),
    ("int", "double"): (5, 5.0),
    ("float", "double"): (0.5, 0.5),
    ("string", "uuid"): (
        "550E8400E29B41D4A716446655440000",
        "550e8400-e29b-41d4-a716-446655440000",
    ),
}


@pytest.mark.parametrize(("written", "declared"), NARROW)
def test_a_narrower_type_of_a_writer_is_widened(written, declared) -> None:
    given_value, wanted = NARROW[written, declared]
    schema = record({"key": "long", "at": FieldType("timestamp-millis").avro, "x": written})
    fields = {"key": "long", "at": "timestamp-millis", "x": declared}
    value = avro(schema, {"key": 1, "at": 0, "x": given_value})
    found = decode("append", "avro", [value], registry=Registry({1: schema}), fields=fields)
    assert rows(found)[0][2]["x"] == wanted


def test_an_enum_is_a_string_and_a_fixed_decimal_a_decimal() -> None:
    enum = {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}
    fixed = {"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal"}
    schema = record(
        {
            "key": "long",
            "at": FieldType("timestamp-millis").avro,
            "c": ["null", enum],
            "p": fixed | {"precision": 10, "scale": 1},
        }
    )
    fields = {"key": "long", "at": "timestamp-millis", "c": "string?", "p": "decimal(12,2)"}
    values = [
        avro(schema, {"key": 1, "at": 0, "c": c, "p": Decimal(p)})
        for c, p in (("blue", "-1.5"), (None, "999999999.9"))
    ]
    found = decode("append", "avro", values, registry=Registry({1: schema}), fields=fields)
    assert found.frame.select("after.c", "after.p").rows() == [("blue", -150), (None, 99999999990)]


@pytest.mark.parametrize(
    ("written", "declared", "found_type"),
    [
        ("long", "int", "found long"),
        ("long", "double", "found long"),
        ("double", "float", "found double"),
        ("long", "timestamp-millis", "found long"),
        ("string", "date", "found string"),
        ("int", "date", "found int"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "long", "found timestamp-micros"),
        ({"type": "int", "logicalType": "date"}, "timestamp-millis", "found date"),
        ("bytes", "decimal(9,2)", "found bytes"),
        ("bytes", "string", "found bytes"),
        ({"type": "array", "items": "long"}, "long", "array"),
        ({"type": "fixed", "name": "F", "size": 2}, "bytes", "'fixed'"),
        (["null", "long", "string"], "long", "union"),
    ],
)
def test_another_type_of_a_writer_is_refused_by_name(written, declared, found_type) -> None:
    schema = record({"key": "long", "at": FieldType("timestamp-millis").avro, "x": written})
    fields = {"key": "long", "at": "timestamp-millis", "x": declared}
    found = decode("append", "avro", [b"\0\0\0\0\1"], registry=Registry({1: schema}), fields=fields)
    assert found_type in why(found)[0][1]


def test_slashes_may_be_escaped_in_base64() -> None:
    fields = {"key": "long", "at": "timestamp-millis", "y": "bytes"}
    value = b'{"key": 1, "at": 0, "y": "\\/\\/\\/\\/"}'
    found = decode("append", "json", [value], fields=fields)
    assert rows(found)[0][2]["y"] == b"\xff\xff\xff"


def test_a_float_in_json_that_is_too_large_is_refused() -> None:
    fields = {"key": "long", "at": "timestamp-millis", "f": "float"}
    values = [b'{"key": 1, "at": 0, "f": %s}' % number for number in (b"1e39", b"1", b"1e400")]
    found = decode("append", "json", values, fields=fields)
    assert [after["f"] for _, _, after in rows(found)] == [1.0]
    assert [row for row, _ in why(found)] == [0, 2]


def test_coarser_instants_are_widened_and_those_beyond_the_years_refused() -> None:
    millis = {"type": "long", "connect.name": "io.debezium.time.Timestamp"}
    schema = record({"key": "long", "at": FieldType("timestamp-millis").avro, "u": millis})
    fields = {"key": "long", "at": "timestamp-millis", "u": "timestamp-micros"}
    values = [avro(schema, {"key": 1, "at": 0, "u": u}) for u in (-7, 2**62, 10**12)]
    found = decode("append", "avro", values, registry=Registry({1: schema}), fields=fields)
    assert [after["u"] for _, _, after in rows(found)] == [-7_000, 10**15]
    assert [row for row, _ in why(found)] == [1]
