import copy

import polars as pl
import pytest

from errata.schemas.avro import key_schema, revision_schema
from errata.schemas.fields import FieldType
from errata.schemas.layout import (
    MAX_FIELDS,
    Leaf,
    Nested,
    UnsupportedSchemaError,
    columns,
    layout_of,
)
from errata.schemas.revisions import OPS

FIELDS = {
    name: FieldType.parse(kind)
    for name, kind in {"key": "string", "px": "decimal(18,2)?", "at": "timestamp-millis"}.items()
}


def record(*types, name="T"):
    fields = [{"name": f"f{i}", "type": avro} for i, avro in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def test_a_revision_has_op_two_sides_of_one_type_and_who_wrote_it():
    op, before, after, *writer = layout_of(revision_schema("prices", FIELDS))
    assert op == Leaf("op", "enum", symbols=OPS)
    assert before == Nested(
        "before",
        (
            Leaf("before.key", "string"),
            Leaf("before.px", "bytes", "decimal", 18, 2, null_at=0),
            Leaf("before.at", "long", "timestamp-millis"),
        ),
        null_at=0,
    )
    assert [leaf.name for leaf in after.leaves] == ["after.key", "after.px", "after.at"]
    assert writer == [Leaf("task", "string"), Leaf("attempt", "long"), Leaf("epoch", "long")]


def test_a_key_has_the_identity_in_its_own_order():
    assert list(columns(layout_of(key_schema("prices", FIELDS, ["at", "key"])))) == ["at", "key"]


def test_a_nested_record_that_may_be_null_shows_a_column_that_says_so():
    inner = record("long", name="I")
    assert columns(layout_of(record(["null", inner], "I"))) == {
        "f0": pl.Boolean,
        "f0.f0": pl.Int64,
        "f1.f0": pl.Int64,
    }


def test_names_resolve_in_the_namespace_around_them():
    inner = record({"type": "enum", "name": "E", "symbols": ["a"]}, name="I")
    outer = record(inner, "n.I", "I", "n.E") | {"namespace": "n"}
    assert [field.name for field in layout_of(outer)] == ["f0", "f1", "f2", "f3"]


def test_a_logical_type_that_is_not_understood_is_read_as_what_is_under_it():
    (leaf,) = layout_of(record({"type": "string", "logicalType": "iban"}))
    assert leaf == Leaf("f0", "string")


def deep():
    schema = "long"
    for i in range(5000):
        schema = record(schema, name=f"R{i}")
    return schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "needs one type"),
        ("long", "needs a record"),
        ({"type": "record", "name": "T"}, "list of fields"),
        (record({"type": "array", "items": "long"}), "'array'"),
        (record({"type": "map", "values": "long"}), "'map'"),
        (record({"type": "fixed", "name": "F", "size": 2}), "'fixed'"),
        (record(["long", "string"]), "union"),
        (record(["null", "long", "string"]), "union"),
        (record(["null", "null"]), "union"),
        (record([["null", "long"], "null"]), "needs one type"),
        (record(["null", "T"]), "deeper than one level"),
        (record("Missing"), "not known"),
        (deep(), "deeper than one level"),
        (record(*["long"] * (MAX_FIELDS + 1)), "more than 1000 fields"),
        (record({"type": "enum", "name": "E", "symbols": []}), "symbols"),
        (record({"type": "enum", "name": "E", "symbols": ["a", "a"]}), "symbols"),
        (record({"type": "enum", "name": "E", "symbols": list(map(str, range(256)))}), "symbols"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39}), "precision"),
        (record({"type": "bytes", "logicalType": "decimal"}), "precision"),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}),
            "precision",
        ),
        (record(record("long"), name="T"), "declared twice"),
        ({"type": "record", "name": "T", "fields": [{"name": "a.b", "type": "long"}]}, "plain"),
        ({"type": "record", "name": "T", "fields": [{"name": "a", "type": "long"}] * 2}, "named"),
    ],
)
def test_a_schema_that_is_not_flat_or_malformed_is_refused(schema, said):
    with pytest.raises(UnsupportedSchemaError, match=said):
        layout_of(schema)


def test_resolving_leaves_the_schema_as_it_was():
    schema = revision_schema("prices", FIELDS)
    before = copy.deepcopy(schema)
    layout_of(schema)
    assert schema == before
