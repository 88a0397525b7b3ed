"""The registry that is a server, asked of a real one."""

import json

import pytest

from errata import Network
from errata.processors.compile.registry_fields import resolve
from errata.schemas.avro import key_schema, revision_schema, tuple_schema
from errata.schemas.fields import FieldType
from errata.topics import registry_server
from errata.topics.cluster import ClusterError
from errata.topics.memory import MemoryCluster
from errata.topics.registry import NotAvroError, UnknownSchemaError
from errata.topics.registry_server import registry

pytestmark = pytest.mark.registry

FIELDS = {n: FieldType.parse(t) for n, t in {"key": "string", "price": "decimal(9,2)"}.items()}


def revisions(**more):
    return revision_schema("a", FIELDS | {n: FieldType.parse(kind) for n, kind in more.items()})


@pytest.fixture
def server(apicurio):
    return lambda: registry(MemoryCluster(), {"url": apicurio.url})


def test_what_is_registered_is_there_for_others_by_id_and_as_the_latest(server, apicurio):
    one, other = server(), server()
    assert one.latest("s.a-value") is None
    key, first = key_schema("a", FIELDS, ["key"]), revisions()
    ids = [one.register(f"s.a-{part}", each) for part, each in (("key", key), ("value", first))]
    assert len(set(ids)) == 2
    assert [other.schema(i) for i in ids] == [key, first]
    assert [other.register("s.a-key", key), other.register("s.a-value", first)] == ids
    assert other.latest("s.a-value") == (ids[1], first)
    wider = revisions(fee="long?")
    second = one.register("s.a-value", wider)
    assert server().latest("s.a-value") == (second, wider)
    assert server().register("s.a-value", first) == ids[1]
    assert {"s.a-key", "s.a-value"} <= set(apicurio.subjects())
    with pytest.raises(UnknownSchemaError, match="schema 99999"):
        other.schema(99999)


def test_one_schema_under_two_subjects_has_one_id(server):
    schemas = server()
    assert schemas.register("s.b-value", revisions()) == schemas.register("s.c-value", revisions())


def test_an_incompatible_schema_is_judged_and_refused(server, apicurio):
    schemas = server()
    assert schemas.judge("s.d-value", revisions()).kind == "new"
    schemas.register("s.d-value", revisions())
    other = server()
    assert other.judge("s.d-value", revisions()).kind == "same"
    assert other.judge("s.d-value", revisions(fee="long?")).kind == "compatible"
    refused = other.judge("s.d-value", revisions(fee="long"))
    assert (refused.kind, refused.level) == ("incompatible", "BACKWARD")
    assert "field 'before.fee' is new and has no default" in refused.reasons
    with pytest.raises(ClusterError, match="the schema registry refuses the schema of subject"):
        other.register("s.d-value", revisions(fee="long"))
    apicurio.ask("PUT", "config/s.d-value", {"compatibility": "FORWARD"})
    turned = server()
    assert turned.judge("s.d-value", revisions(fee="long")).kind == "compatible"
    narrower = tuple_schema("Tuple", {"key": FIELDS["key"]})
    assert turned.judge("s.d-value", narrower).kind == "incompatible"


def test_a_schema_of_another_kind_is_told(server, apicurio):
    text = 'syntax = "proto3"; message A { int64 x = 1; }'
    body = {"schemaType": "PROTOBUF", "schema": text}
    told = apicurio.ask("POST", "subjects/s.proto-value/versions", body)
    with pytest.raises(NotAvroError, match="of kind PROTOBUF"):
        server().schema(told["id"])


def test_the_fields_of_a_source_in_json_are_those_of_its_json_schema(server, apicurio):
    at = {"type": "string", "format": "date-time"}
    properties = {"id": {"type": "string"}, "at": at, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["id", "at"]}
    body = {"schemaType": "JSON", "schema": json.dumps(schema)}
    apicurio.ask("POST", "subjects/s.json-value/versions", body)
    net = Network("j")
    net.source(
        "rows", topic="s.json", format="json", envelope="upsert", identity=["id"], event_time="at"
    )
    found = resolve(net, server()).declarations["rows"].fields
    assert {name: str(kind) for name, kind in found.items()} == {
        "id": "string", "at": "timestamp-millis", "n": "long?",
    }  # fmt: skip


def test_a_server_that_is_not_there_is_told(server, monkeypatch):
    monkeypatch.setattr(registry_server, "WAIT_S", 1.0)
    with pytest.raises(ClusterError, match="did not answer"):
        registry(MemoryCluster(), {"url": "http://127.0.0.1:9"}).latest("a")
