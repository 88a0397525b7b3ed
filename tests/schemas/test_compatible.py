"""Which Avro schemas can read what others wrote: the rules, and fastavro as a second opinion."""

import io
import random

import fastavro
import pytest

from errata.schemas.avro import revision_schema
from errata.schemas.compatible import incompatibilities
from errata.schemas.fields import FieldType

ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{u}"} for u in ("millis", "micros"))


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name, kind, **more):
    return {"name": name, "type": kind, **more}


def x(kind):
    return record(field("x", kind))


def tuples(**kinds):
    fields = {name: FieldType.parse(kind) for name, kind in kinds.items()}
    return revision_schema("trades", fields)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("double", "float"),
        ("string", "bytes"),
        (["null", "long"], "int"),
        (MILLIS, "long"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        (ENUM | {"symbols": ["a", "b", "c"]}, ENUM),
        (ENUM | {"symbols": ["a"], "default": "a"}, ENUM),
        (FIXED | {"name": "some.F"}, FIXED),
        (FIXED | {"name": "G", "aliases": ["F"]}, FIXED),
    ],
)
def test_what_can_be_read(reader, writer):
    assert incompatibilities(x(reader), x(writer)) == []


@pytest.mark.parametrize(
    ("reader", "writer", "told"),
    [
        ("int", "long", "field 'x' was long, is int"),
        ("long", ["null", "long"], "field 'x' was nullable, is not"),
        (["null", "string"], "long", "field 'x' was long, is null or string"),
        (MICROS, MILLIS, "field 'x' was timestamp-millis, is timestamp-micros"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"},
         "field 'x{}' was string, is int"),
        (ENUM | {"symbols": ["a"]}, ENUM, "field 'x' lacks the symbols b"),
        (FIXED | {"size": 8}, FIXED, "field 'x' had 4 bytes, has 8"),
        (FIXED | {"name": "G"}, FIXED, "field 'x' was named 'F', is 'G'"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_told(reader, writer, told):
    assert incompatibilities(x(reader), x(writer)) == [told]


def test_of_the_tuples_of_revisions_the_field_is_named():
    old = tuples(key="string", price="decimal(9,2)")
    assert incompatibilities(tuples(key="string", price="decimal(9,2)", fee="long?"), old) == []
    assert incompatibilities(tuples(key="string"), old) == []
    assert incompatibilities(tuples(key="string", price="decimal(9,4)"), old) == [
        f"field '{side}.price' was decimal(9,2), is decimal(9,4)" for side in ("before", "after")
    ]
    assert incompatibilities(tuples(key="string", price="decimal(9,2)", fee="long"), old) == [
        f"field '{side}.fee' is new and has no default" for side in ("before", "after")
    ]


def test_a_schema_that_names_itself_is_judged():
    tree = record(field("x", "int"), field("next", ["null", "R"]))
    other = record(field("x", "string"), field("next", ["null", "R"]))
    assert incompatibilities(tree, tree) == []
    assert incompatibilities(tree, other) == ["field 'x' was string, is int"]


def test_what_is_no_schema_is_told():
    assert "not Avro" in incompatibilities({"type": "recrod"}, x("int"))[0]


KINDS = [
    "int", "long", "float", "double", "string", "bytes", "boolean", "null", ENUM, FIXED,
    {"type": "array", "items": "int"}, {"type": "array", "items": "string"},
    ["null", "int"], ["null", "string"], ["int", "string"], ENUM | {"symbols": ["a"]},
]  # fmt: skip
VALUES = {
    "int": 1, "long": 1, "float": 1.0, "double": 1.0, "string": "s", "bytes": b"b",
    "boolean": True, "null": None, "enum": "b", "fixed": b"1234",
}  # fmt: skip


def values(kind):
    """Values of a type, one for each branch."""
    if isinstance(kind, list):
        return [value for branch in kind for value in values(branch)]
    name = kind if isinstance(kind, str) else kind["type"]
    if name == "array":
        return [[VALUES[kind["items"]]]]
    return [kind["symbols"][-1] if name == "enum" else VALUES[name]]


def is_read(reader, writer, content) -> bool:
    packed = io.BytesIO()
    fastavro.schemaless_writer(packed, writer, content)
    packed.seek(0)
    try:
        fastavro.schemaless_reader(packed, writer, reader)
    except (fastavro.read.SchemaResolutionError, ValueError, TypeError, IndexError):
        return False
    return True


def test_oracle_fastavro_reads_all_values_exactly_where_nothing_is_told():
    rng = random.Random(7)
    for reader in KINDS:
        for writer in KINDS:
            both, told = rng.random() < 0.5, incompatibilities(x(reader), x(writer))
            old, new = x(writer), x(reader)
            if both:  # a field that comes and one that goes
                old = record(*old["fields"], field("gone", "int"))
                new = record(*new["fields"], field("come", "int", default=3))
            contents = [{"x": value} | ({"gone": 1} if both else {}) for value in values(writer)]
            assert all(is_read(new, old, each) for each in contents) == (told == []), (
                reader, writer, told,
            )  # fmt: skip
