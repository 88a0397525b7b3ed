"""Sources in Protobuf whose fields are those of the registry's latest schema."""

import logging

import pytest

from errata import Network, NetworkError
from errata.processors.compile.registry_fields import resolve
from tests.processors.envelopes.protobuf import Protos
from tests.processors.envelopes.records import record

TEXT = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
message Trade {
  string key = 1; google.protobuf.Timestamp at = 2; optional double size = 3; Side side = 4;
  confluent.type.Decimal price = 5 [
    (confluent.field_meta).params = {key: "scale", value: "2"},
    (confluent.field_meta).params = {key: "precision", value: "9"}];
  confluent.type.Decimal other = 6; repeated string tags = 7; Trade inner = 8; uint64 n = 9;
  enum Side { BUY = 0; }
}
message Unused {}"""
KEY = 'syntax = "proto3"; message Key { string key = 1; }'
FIELDS = {
    "key": "string", "at": "timestamp-micros?", "size": "double?", "side": "string",
    "price": "decimal(9,2)?", "n": "long",
}  # fmt: skip


def network(**options) -> Network:
    net = Network("n")
    declared = {"topic": "t", "envelope": "upsert", "format": "protobuf", "event_time": "at"}
    net.source("s", **declared | options)
    return net


def registry(**subjects: str) -> Protos:
    given = Protos(dict(enumerate(subjects.values(), 1)))
    given.subjects = {f"t-{name}": i for i, name in enumerate(subjects, 1)}
    return given


def test_fields_and_identity_are_those_of_the_first_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        source = resolve(network(), registry(value=TEXT, key=KEY)).declarations["s"]
    assert {name: str(kind) for name, kind in source.fields.items()} == FIELDS
    assert source.identity == ("key",)
    for name in ("other", "tags", "inner"):
        assert f"subject 't-value': field '{name}' is left out" in caplog.text


def test_revisions_have_the_fields_of_their_side() -> None:
    text = TEXT.replace("message Unused {}", "")
    text = text.replace(
        "message Trade", "message R { string op = 1; Trade after = 2; }\nmessage Trade"
    )
    source = resolve(network(envelope="native"), registry(value=text, key=KEY)).declarations["s"]
    assert {name: str(kind) for name, kind in source.fields.items()} == FIELDS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a Protobuf schema without a message"),
        ("message", "can't be compiled: line 1:"),
        ('syntax = "proto3"; import "gone.proto"; message T {}', "gone.proto"),
        ('syntax = "proto3"; message T {}', "a schema without such fields"),
    ],
)
def test_a_schema_that_gives_no_fields_is_a_fault(text: str, reason: str) -> None:
    with pytest.raises(NetworkError, match=reason):
        resolve(network(), registry(value=text or 'syntax = "proto3";', key=KEY))


def test_another_kind_of_schema_is_a_fault() -> None:
    given = registry(value=TEXT, key=KEY)
    with pytest.raises(NetworkError, match="declare the source as protobuf"):
        resolve(network(format="avro"), given)
    given.schemas[9], given.subjects["t-value"] = record({"key": "string"}), 9
    with pytest.raises(NetworkError, match="a schema of Avro, but format protobuf"):
        resolve(network(), given)
