"""Sources in JSON whose fields are those of a JSON Schema, by a registry."""

import json
import logging

import pytest

from errata import Network, NetworkError
from errata.processors.compile.json_schema import NoObjectSchemaError, fields_of
from errata.processors.compile.registry_fields import resolve
from errata.testing import Driver
from errata.topics.registry import NotAvroError

AT = {"type": "string", "format": "date-time"}
KINDS = {
    "long": {"type": "integer"},
    "int": {"type": "integer", "connect.type": "int16"},
    "double": {"type": "number"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string", "maxLength": 9},
    "timestamp-millis": AT,
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
    "timestamp-micros": {"type": "integer", "title": "io.debezium.time.MicroTimestamp"},
    "decimal(12,3)": {
        "type": "number", "title": "org.apache.kafka.connect.data.Decimal",
        "connect.parameters": {"scale": "3", "connect.decimal.precision": "12"},
    },
}  # fmt: skip


def of_object(properties: dict, required: list[str] | None = None) -> dict:
    return {"type": "object", "properties": properties, "required": required or []}


@pytest.mark.parametrize(("kind", "schema"), KINDS.items(), ids=list(KINDS))
def test_a_type_is_held_and_is_optional_unless_it_is_required_and_never_null(
    kind: str, schema: dict
) -> None:
    properties = {
        "plain": schema,
        "free": schema,
        "listed": {**schema, "type": [schema["type"], "null"]},
        "either": {"oneOf": [{"type": "null"}, schema]},
    }
    found = fields_of(of_object(properties, ["plain", "listed", "either"]), "t-value")
    assert {name: str(each) for name, each in found.items()} == {
        "plain": kind, "free": f"{kind}?", "listed": f"{kind}?", "either": f"{kind}?",
    }  # fmt: skip


def test_what_no_type_holds_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    decimal = {"title": "org.apache.kafka.connect.data.Decimal"}
    odd = {
        "tags": {"type": "array"},
        "inner": of_object({}),
        "any": True,
        "two": {"type": ["string", "integer"]},
        "a b": AT,
        "d": {**decimal, "connect.parameters": {"scale": "x"}},
    }
    with caplog.at_level(logging.WARNING):
        assert list(fields_of(of_object({**odd, "at": AT}), "t-value")) == ["at"]
    assert len(caplog.records) == len(odd)


@pytest.mark.parametrize("schema", [True, [], {"type": "string"}, {"properties": 5}, None])
def test_what_is_no_object_is_refused(schema: object) -> None:
    for inside in ("", "after"):
        with pytest.raises(NoObjectSchemaError):
            fields_of(schema, "t-value", inside=inside)


class JsonSchemas:
    """A registry whose schemas are JSON Schemas."""

    def __init__(self, **subjects: object) -> None:
        self.subjects = {name.replace("_", "-"): each for name, each in subjects.items()}

    def latest(self, subject: str) -> None:
        if subject in self.subjects:
            raise NotAvroError(subject, kind="JSON", text=json.dumps(self.subjects[subject]))


ROW = of_object({"id": {"type": "string"}, "at": AT, "n": {"type": "integer"}}, ["id", "at"])


def network(**options: object) -> Network:
    net = Network("j")
    net.source("rows", topic="rows", format="json", event_time="at", keep="1d", **options)
    return net


def test_fields_and_identity_come_from_the_schemas_of_the_topic() -> None:
    key = of_object({"id": {"type": "string"}}, ["id"])
    found = resolve(
        network(envelope="upsert"), JsonSchemas(rows_value=ROW, rows_key=key)
    ).declarations["rows"]
    assert {name: str(kind) for name, kind in found.fields.items()} == {
        "id": "string", "at": "timestamp-millis", "n": "long?",
    }  # fmt: skip
    assert found.identity == ("id",)
    sided = {"op": {"type": "string"}, "after": {"oneOf": [{"type": "null"}, ROW]}}
    schemas = JsonSchemas(rows_value=of_object(sided))
    native = resolve(network(envelope="native", identity=["id"]), schemas).declarations["rows"]
    assert list(native.fields) == ["id", "at", "n"]


def test_a_schema_that_can_not_be_used_is_a_fault_of_the_source() -> None:
    for schema, told in ((of_object({}), "without such fields"), ([1], "not of an object")):
        with pytest.raises(NetworkError, match=told):
            resolve(network(envelope="upsert", identity=["id"]), JsonSchemas(rows_value=schema))


def test_records_of_a_registry_s_serializer_are_read_beside_plain_ones() -> None:
    done = resolve(network(envelope="upsert", identity=["id"]), JsonSchemas(rows_value=ROW))
    from errata.topics.memory import MemoryCluster
    from errata.topics.names import SCHEMAS_TOPIC
    from errata.topics.registry import SchemaRegistry

    cluster = MemoryCluster()
    cluster.create(SCHEMAS_TOPIC, 1)
    with Driver(done, live=SchemaRegistry(cluster)) as driver:
        for number, head in enumerate((b"\0\0\0\0\x07", b"", b"\0\0\0\x01\0")):
            row = {"id": f"r{number}", "at": "2026-03-02T10:00:00Z", "n": number}
            driver.send_raw("rows", head + json.dumps(row).encode(), b"k")
        driver.send_raw("rows", b"\0\0\0\0\x07", b"k")
        driver.send_raw("rows", b"\0\0\0\0\x07{", b"k")
        driver.close_epoch()
        assert [(row["id"], row["n"]) for row in driver.table("rows")] == [
            ("r0", 0), ("r1", 1), ("r2", 2),
        ]  # fmt: skip
        letters = driver.dead_letters()
        assert [letter.value for letter in letters] == [b"\0\0\0\0\x07", b"\0\0\0\0\x07{"]
