"""Byte strings in one buffer are the strings that they were; values nobody asks for are skipped."""

import io

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.schemas.batch import MAX_ITEMS, Joined
from errata.schemas.decode import Decoder
from errata.schemas.layout import MAX_DEPTH, MAX_FIELDS, UnsupportedSchemaError, layout_of

PLAIN = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
]


class Typer:
    """Makes Avro types with a strategy for their values, names counted."""

    def __init__(self) -> None:
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"N{self.count}"

    def of(self, draw, depth: int):
        kind = draw(st.integers(0, 13 if depth else 7))
        if kind < 8:
            return PLAIN[kind]
        if kind == 8:
            return {"type": "enum", "name": self.name(), "symbols": ["a", "b"]}, st.sampled_from(
                "ab"
            )
        if kind == 9:
            size = draw(st.integers(0, 3))
            fixed = {"type": "fixed", "name": self.name(), "size": size}
            return fixed, st.binary(min_size=size, max_size=size)
        inner, values = self.of(draw, depth - 1)
        if kind == 10:
            return {"type": "array", "items": inner}, st.lists(values, max_size=3)
        if kind == 11:
            strings = st.text(max_size=3)
            return {"type": "map", "values": inner}, st.dictionaries(strings, values, max_size=3)
        if kind == 12 and not isinstance(inner, list) and inner != "null":
            return ["null", inner], st.none() | values
        fields = [{"name": "f", "type": inner}, {"name": "g", "type": "long"}]
        record = {"type": "record", "name": self.name(), "fields": fields}
        return record, st.fixed_dictionaries({"f": values, "g": st.integers(-5, 5)})


@st.composite
def batches(draw):
    typer = Typer()
    types = [typer.of(draw, 3) for _ in range(draw(st.integers(1, 3)))]
    fields = [{"name": "first", "type": "long"}]
    fields += [{"name": f"x{i}", "type": avro} for i, (avro, _) in enumerate(types)]
    inner = {
        "type": "record",
        "name": "Side",
        "fields": [*fields, {"name": "last", "type": "string"}],
    }
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [
            {"name": "side", "type": ["null", inner]},
            {"name": "same", "type": "Side"},
            {"name": "end", "type": "long"},
        ],
    }
    values = {"first": st.integers(-99, 99), "last": st.text(max_size=3)}
    values |= {f"x{i}": value for i, (_, value) in enumerate(types)}
    side = st.fixed_dictionaries(values)
    rows = st.fixed_dictionaries(
        {"side": st.none() | side, "same": side, "end": st.integers(-99, 99)}
    )
    return schema, draw(st.lists(rows, min_size=1, max_size=4))


def body(schema, record) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record, strict=True)
    return out.getvalue()


@settings(max_examples=150)
@given(batches())
def test_what_is_wanted_is_read_past_whatever_is_not(batch) -> None:
    schema, rows = batch
    bodies = [body(schema, row) for row in rows]
    wanted = {"side.first", "side.last", "same.last", "end"}
    frame, _, bad = Decoder(schema, wanted=wanted).decode_each(bodies)
    assert not bad
    for found, row in zip(frame.rows(named=True), rows, strict=True):
        side = row["side"] or {"first": None, "last": None}
        assert found == {
            "side": row["side"] is not None,
            "side.first": side["first"],
            "side.last": side["last"],
            "same.last": row["same"]["last"],
            "end": row["end"],
        }
    for text in bodies:  # a torn record is a fault, whatever was passed over
        assert Decoder(schema, wanted={"end"}).decode_each([text[:-1]]).bad
        assert Decoder(schema, wanted={"end"}).decode_each([text + b"\0"]).bad


def of(avro):
    fields = [{"name": "x", "type": avro}, {"name": "n", "type": "long"}]
    return Decoder({"type": "record", "name": "T", "fields": fields}, wanted={"n"})


def zigzag(value: int) -> bytes:
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


LONGS = {"type": "array", "items": "long"}
INNER = zigzag(100) + b"\2" * 100 + b"\0"
NULLS = {"type": "array", "items": "null"}


@pytest.mark.parametrize(
    ("avro", "skipped"),
    [
        (LONGS, b"\0"),
        (LONGS, b"\4\2\xff\1\2\6\0"),
        (LONGS, b"\3\4\2\2\0"),
        ({"type": "array", "items": "double"}, b"\4" + bytes(16) + b"\0"),
        ({"type": "map", "values": LONGS}, b"\2\2k\2\2\0\0"),
        (NULLS, zigzag(MAX_ITEMS) + b"\0"),
        (["null", "long", "string"], b"\4\2z"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
    ],
)
def test_blocks_with_and_without_sizes_are_passed_over(avro, skipped) -> None:
    assert of(avro).decode([skipped + b"\x0e"] * 2)["n"].to_list() == [7, 7]


@pytest.mark.parametrize(
    ("avro", "skipped", "reason"),
    [
        (NULLS, zigzag(MAX_ITEMS + 1) + b"\0", "more than 10000 items"),
        (NULLS, zigzag(30_000_000) + b"\0", "more than 10000 items"),
        (NULLS, b"\2" * 10_001 + b"\0", "more than 10000 items"),
        (LONGS, zigzag(2**62) + b"\0", "more than 10000 items"),
        (LONGS, zigzag(-(2**63)) + b"\0", "more than 10000 items"),
        (LONGS, b"\3\x7e\2\2\0", "another size"),
        (LONGS, b"\3\1\2\2\0", "another size"),
        (LONGS, b"\3\2\2\2\0", "another size"),
        (LONGS, b"\3" + zigzag(2**62) + b"\2\2\0", "another size"),
        ({"type": "array", "items": "string"}, b"\3\2a\0", "negative length"),
        (LONGS, b"\xc8\1" + b"\2", "ends before"),
        (["null", "long"], b"\6", "no such union branch"),
        (["null", "long"], b"\1", "no such union branch"),
        ({"type": "array", "items": LONGS}, zigzag(101) + INNER * 101, "10000 items"),
    ],
)
def test_what_a_few_bytes_expand_to_is_bounded(avro, skipped, reason) -> None:
    decoder = of(avro)
    good = b"\0\x0e"
    frame, _, bad = decoder.decode_each([good, skipped + b"\x0e", good])
    assert frame["n"].to_list() == [7, 7]
    ((row, why),) = bad
    assert row == 1
    assert reason in why


def nested(depth: int):
    schema: object = "long"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def wide():
    """Return a type of 10 records of 10 records of ..., each declared once."""
    schema: object = "long"
    for level in range(8):
        fields = [{"name": "f0", "type": schema}]
        fields += [
            {"name": f"f{i}", "type": f"L{level - 1}" if level else "long"} for i in range(1, 10)
        ]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    return schema


LOOP = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (nested(MAX_DEPTH + 1), "deeper than"),
        (nested(100_000), "deeper than"),
        (LOOP, "in itself"),
        (wide(), f"more than {MAX_FIELDS} fields"),
        ({"type": "array"}, "needs one type"),
        ({"type": "fixed", "name": "F"}, "a fixed needs a size"),
        ({"type": "fixed", "name": "F", "size": 2**40}, "a fixed needs a size"),
        (["null", "Missing"], "not known"),
    ],
)
def test_a_schema_that_could_cost_much_is_refused_where_it_is_not_wanted(schema, said) -> None:
    fields = [{"name": "x", "type": schema}, {"name": "n", "type": "long"}]
    with pytest.raises(UnsupportedSchemaError, match=said):
        layout_of({"type": "record", "name": "Top", "fields": fields}, wanted={"n"})


def test_a_type_declared_in_what_is_passed_over_is_known_behind_it() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "long"}]}
    fields = [{"name": "x", "type": {"type": "array", "items": inner}}, {"name": "y", "type": "I"}]
    decoder = Decoder({"type": "record", "name": "Top", "fields": fields}, wanted={"y.n"})
    assert decoder.decode([b"\2\2\0\x0e"])["y.n"].to_list() == [7]


@given(st.lists(st.binary(max_size=6)), st.integers(0, 7), st.integers(0, 9), st.integers(0, 9))
def test_strings_without_their_first_bytes_are_as_if_each_were_cut_alone(values, count, low, high):
    joined = Joined.of(values).after(count)
    cut = [value[count:] for value in values]
    assert list(joined) == cut
    assert list(joined[low:high]) == cut[low:high]
    assert Joined.of(joined) is joined
