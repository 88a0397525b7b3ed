"""The codec agrees with fastavro, and with a strict reader that takes one value at a time.

The strict reader is the law; fastavro holds it honest. What the strict reader accepts, fastavro
accepts with the same values; what only fastavro accepts is refused for one of `LAXER` reasons.
"""

import io
import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

import fastavro
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errata.schemas.decode import Decoder
from errata.schemas.encode import Encoder
from errata.schemas.layout import Leaf, UnsupportedSchemaError

EXACT = Context(prec=60)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
LAXER = ("varint", "not between", "no such union branch", "boolean", "16 bytes")
SYMBOLS = ["a", "b", "c"]


def decimals(precision, scale):
    most = 10**precision - 1
    edges = [0, -1, 127, 128, -128, -129, 2**63, -(2**63), 2**64, -(2**64), most, -most]
    fits = st.sampled_from([edge for edge in edges if abs(edge) <= most])
    return (fits | st.integers(-most, most)).map(lambda n: Decimal(n).scaleb(-scale, EXACT))


def edged(low, high):
    near = [0, -1, 63, 64, -64, -65, 8191, 8192, 2**55, 2**62, low, high]
    return st.sampled_from([n for n in near if low <= n <= high]) | st.integers(low, high)


def decimal_type(precision, scale):
    digits = {"precision": precision, "scale": scale}
    return {"type": "bytes", "logicalType": "decimal", **digits}, decimals(precision, scale)


PLAIN = [
    ("boolean", st.booleans()),
    ("int", edged(-(2**31), 2**31 - 1)),
    ("long", edged(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", st.text(max_size=20)),
    ("bytes", st.binary(max_size=20)),
    ({"type": "long", "logicalType": "timestamp-millis"}, edged(FIRST_MS, LAST_MS)),
    decimal_type(4, 2),
    decimal_type(18, 2),
    decimal_type(38, 0),
    decimal_type(38, 38),
]


@st.composite
def leaf(draw, name):
    """Return an Avro type and values of it; null first, second or not allowed."""
    enum = ({"type": "enum", "name": f"E_{name}", "symbols": SYMBOLS}, st.sampled_from(SYMBOLS))
    avro, values = draw(st.sampled_from([*PLAIN, enum]))
    return draw(perhaps_null(avro, values))


def perhaps_null(avro, values):
    either = st.none() | values
    return st.sampled_from([(avro, values), (["null", avro], either), ([avro, "null"], either)])


@st.composite
def record(draw, name, *, nested):
    fields, values = [], {}
    for i in range(draw(st.integers(1, 4))):
        inner = f"{name}_{i}"
        if nested and draw(st.booleans()):
            avro, rows = draw(perhaps_null(*draw(record(f"R_{inner}", nested=False))))
        else:
            avro, rows = draw(leaf(inner))
        fields.append({"name": f"f{i}", "type": avro})
        values[f"f{i}"] = rows
    return {"type": "record", "name": name, "fields": fields}, st.fixed_dictionaries(values)


@st.composite
def batch(draw):
    schema, rows = draw(record("Top", nested=True))
    return schema, draw(st.lists(rows, min_size=1, max_size=6))


def written(schema, row):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def read_by_fastavro(schema, body):
    """Return the row, or None if it is refused or bytes are left over."""
    stream = io.BytesIO(body)
    try:
        row = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    except (EOFError, IndexError, OverflowError, UnicodeDecodeError, ValueError):
        return None
    return row if stream.tell() == len(body) else None


def physical(field, value):
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(value, Decimal):
        return int(value.scaleb(field.scale, EXACT))
    return field.symbols.index(value) if field.symbols and value is not None else value


def flat(layout, row):
    """Return a fastavro row as the decoder's columns have it."""
    cells = {}
    for field in layout:
        value = row[field.name]
        if isinstance(field, Leaf):
            cells[field.name] = physical(field, value)
            continue
        if field.null_at is not None:
            cells[field.name] = value is not None
        for inner in field.leaves:
            inside = None if value is None else value[inner.name.partition(".")[2]]
            cells[inner.name] = physical(inner, inside)
    return cells


class Strict:
    """Reads one record, a value at a time, raising ValueError for what Avro does not allow."""

    def __init__(self, layout, body):
        self.body, self.at, self.cells = body, 0, {}
        for field in layout:
            self.field(field, present=True)
        if self.at != len(body):
            raise ValueError("left over")

    def take(self, count):
        if not 0 <= count <= len(self.body) - self.at:
            raise ValueError("length")
        self.at += count
        return self.body[self.at - count : self.at]

    def long(self):
        value = 0
        for k in range(10):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * k)
            if byte < 0x80:
                break
        else:
            raise ValueError("varint")
        if value >= 2**64:
            raise ValueError("varint")
        return (value >> 1) ^ -(value & 1)

    def field(self, field, *, present):
        if present and field.null_at is not None:
            branch = self.long()
            if branch not in (0, 1):
                raise ValueError("branch")
            present = branch != field.null_at
        if isinstance(field, Leaf):
            self.cells[field.name] = self.value(field) if present else None
            return
        if field.null_at is not None:
            self.cells[field.name] = present
        for inner in field.leaves:
            if present:
                self.field(inner, present=True)
            else:
                self.cells[inner.name] = None

    def value(self, field):
        match field.coding:
            case "boolean":
                return {0: False, 1: True}[self.take(1)[0]]
            case "float" | "double":
                code, size = ("<f", 4) if field.coding == "float" else ("<d", 8)
                return struct.unpack(code, self.take(size))[0]
            case "string":
                return self.take(self.long()).decode()
            case "bytes":
                return self.take(self.long())
            case "decimal":
                digits = self.take(self.long())
                if len(digits) > 16:
                    raise ValueError("decimal")
                number = int.from_bytes(digits, "big", signed=True)
            case _:
                number = self.long()
        low, high = field.bounds or (number, number)
        if not low <= number <= high:
            raise ValueError("bounds")
        return number


def strict(layout, body):
    try:
        return Strict(layout, body).cells
    except (ValueError, KeyError):
        return None


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("<d", a) == struct.pack("<d", b)
    return a == b and type(a) is type(b)


def assert_same_rows(got, wanted):
    assert [list(row) for row in got] == [list(row) for row in wanted]
    for one, other in zip(got, wanted, strict=True):
        assert all(same(one[name], other[name]) for name in one), (one, other)


@st.composite
def damaged(draw, bodies):
    """Return the bodies, some of them cut, lengthened, or with a byte changed or put in."""
    out = []
    for body in bodies:
        at = draw(st.integers(0, len(body)))
        byte = draw(st.binary(min_size=1, max_size=1) | st.sampled_from([b"\xff" * 9, b"\x80" * 5]))
        cut = [body[:at], body[:at] + byte + body[at + 1 :], body[:at] + byte + body[at:]]
        out.append(draw(st.sampled_from([body, *cut, body + byte, byte])))
    return out


SLOW = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@SLOW
@given(st.data())
def test_encoding_gives_the_bytes_of_fastavro_and_decoding_the_values(data):
    schema, rows = data.draw(batch())
    encoder, decoder = Encoder(schema), Decoder(schema)
    cells = [flat(encoder.layout, row) for row in rows]
    bodies = [written(schema, row) for row in rows]
    frame = pl.DataFrame(cells, schema=encoder.columns)
    assert encoder.encode(frame) == bodies
    assert_same_rows(decoder.decode(bodies).rows(named=True), cells)


@SLOW
@given(st.data())
def test_damaged_records_are_refused_as_by_a_strict_reader_and_the_others_kept(data):
    schema, rows = data.draw(batch())
    decoder = Decoder(schema)
    bodies = data.draw(damaged([written(schema, row) for row in rows]))
    frame, good, bad = decoder.decode_each(bodies)
    wanted = [strict(decoder.layout, body) for body in bodies]
    assert good.tolist() == [i for i, cells in enumerate(wanted) if cells is not None]
    assert [i for i, _ in bad] == [i for i, cells in enumerate(wanted) if cells is None]
    assert_same_rows(frame.rows(named=True), [cells for cells in wanted if cells is not None])
    assert frame.schema == pl.Schema(decoder.columns)
    for i, reason in bad:
        laxer = any(words in reason for words in LAXER)
        assert laxer or read_by_fastavro(schema, bodies[i]) is None, reason
    for i, row in zip(good.tolist(), frame.rows(named=True), strict=True):
        assert_same_rows([row], [flat(decoder.layout, read_by_fastavro(schema, bodies[i]))])


@SLOW
@given(st.data())
def test_a_constant_is_encoded_as_a_column_of_it_is(data):
    schema, rows = data.draw(batch())
    encoder = Encoder(schema)
    tops = [field for field in encoder.layout if isinstance(field, Leaf)]
    frame = pl.DataFrame([flat(encoder.layout, row) for row in rows], schema=encoder.columns)
    constants = {field.name: frame[field.name][0] for field in tops}
    same_rows = frame.with_columns(
        pl.lit(pl.Series([constants[field.name]], dtype=field.dtype)).first().alias(field.name)
        for field in tops
    )
    rest = frame.drop(list(constants))
    rest = rest if rest.width else pl.DataFrame({"unused": [0] * frame.height})
    assert encoder.encode(rest, **constants) == encoder.encode(same_rows)


def test_a_record_without_fields_takes_no_bytes_and_has_nothing_to_decode():
    schema = {"type": "record", "name": "T", "fields": []}
    assert Encoder(schema).encode(pl.DataFrame({"x": [1, 2]})) == [b"", b""]
    with pytest.raises(UnsupportedSchemaError, match="needs a field"):
        Decoder(schema)
