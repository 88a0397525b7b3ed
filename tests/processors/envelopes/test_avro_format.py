"""Which schemas a registry gives, and what follows if it gives none."""

import pytest

from errata.topics.cluster import ClusterError
from errata.topics.registry import NotAvroError
from tests.processors.envelopes.records import FIELDS, Registry, avro, decode, record, rows, why

HEARTBEAT = record({"ts_ms": "long"}, "Heartbeat")


class Refusing(Registry):
    """Has one schema, and an error for every other."""

    def __init__(self, error: Exception) -> None:
        super().__init__({1: record({"key": "string"})})
        self.error = error

    def schema(self, schema_id):
        if schema_id != 1:
            raise self.error
        return super().schema(schema_id)


def test_a_schema_that_is_not_avro_refuses_its_records_alone():
    registry = Refusing(NotAvroError("schema 2", kind="PROTOBUF"))
    values = [avro(record({"key": "string"}), {"key": "a"}, schema_id) for schema_id in (1, 2)]
    found = decode("append", "avro", values, registry=registry, fields=FIELDS)
    assert [row for row, _ in why(found)] == [0, 1]
    assert "schema 2 is of kind PROTOBUF" in why(found)[1][1]


def test_a_registry_that_gives_no_answer_refuses_no_records():
    with pytest.raises(ClusterError, match="no answer"):
        decode("append", "avro", [b"\0\0\0\0\2x"], registry=Refusing(ClusterError("no answer")))


def test_a_schema_that_is_registered_later_is_read_then():
    fields = {"key": "string", "at": "timestamp-millis"}
    at = {"type": "long", "logicalType": "timestamp-millis"}
    schema, registry = record({"key": "string", "at": at}), Registry({9: "string"})
    value = avro(schema, {"key": "a", "at": 5}, 10)
    assert why(decode("append", "avro", [value], registry=registry, fields=fields))
    registry.register("s-value", schema)
    found = decode("append", "avro", [value], registry=registry, fields=fields)
    assert rows(found) == [("i", {}, {"key": "a", "at": 5})]


def test_only_debeziums_own_sources_pass_over_heartbeats():
    registry, value = Registry({3: HEARTBEAT}), avro(HEARTBEAT, {"ts_ms": 5}, 3)
    assert decode("debezium", "avro", [value], registry=registry).passed == 1
    native = decode("native", "avro", [value], registry=registry)
    assert (native.passed, why(native)[0][0]) == (0, 0)
