"""Fields and identities that a network leaves to the registry."""

import logging

import pytest

from errata import Network
from errata.processors.compile.compiler import compile_network
from errata.processors.compile.registry_fields import resolve
from errata.processors.declare.faults import NetworkError
from tests.processors.envelopes.records import Registry, record

AT = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
CONNECT = MONEY | {"precision": 64, "connect.name": "org.apache.kafka.connect.data.Decimal"}
VARIABLE = record(
    {"scale": "int", "value": "bytes"},
    "V",
    **{"connect.name": "io.debezium.data.VariableScaleDecimal"},
)
ROW = record(
    {
        "key": "string",
        "at": AT,
        "price": ["null", MONEY],
        "wide": CONNECT,
        "seen": ["null", MICROS],
        "zoned": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        "day": {"type": "int", "logicalType": "date"},
        "id": {"type": "string", "logicalType": "uuid"},
        "side": {"type": "enum", "name": "Side", "symbols": ["buy", "sell"]},
        "n": "int",
        "f": "float",
        "raw": ["bytes", "null"],
        "tags": {"type": "array", "items": "string"},
        "extra": record({"x": "long"}, "Extra"),
        "vague": VARIABLE,
        "__deleted": "string",
    },
    "Row",
)
FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "price": "decimal(12,2)?",
    "wide": "decimal(38,2)",
    "seen": "timestamp-micros?",
    "zoned": "timestamp-micros",
    "day": "date",
    "id": "uuid",
    "side": "string",
    "n": "int",
    "f": "float",
    "raw": "bytes?",
}
SIDED = record(
    {"op": "string", "before": ["null", ROW], "after": ["null", "Row"], "more": VARIABLE},
    "Envelope",
)
KEY = record({"key": "string"}, "Key")


def registry(**subjects) -> Registry:
    found = Registry()
    for name, schema in subjects.items():
        found.register(name.replace("_", "-"), schema)
    return found


def network(envelope="append", **more) -> Network:
    net = Network("t")
    net.source("s", topic="shop", envelope=envelope, event_time="at", **more)
    return net


def texts(fields) -> dict[str, str]:
    return {name: str(kind) for name, kind in fields.items()}


@pytest.mark.parametrize(
    ("envelope", "schema"),
    [("append", ROW), ("upsert", ROW), ("native", SIDED), ("debezium", SIDED)],
)
def test_fields_are_those_of_the_record_and_what_none_can_hold_is_left_out(
    envelope, schema, caplog
):
    caplog.set_level(logging.WARNING)
    net = network(envelope)
    done = resolve(net, registry(shop_value=schema, shop_key=KEY))
    source = done.declarations["s"]
    assert (texts(source.fields), source.identity) == (FIELDS, ("key",))
    assert net.declarations["s"].fields is None
    left = {message.split("field ")[1].split()[0] for message in caplog.messages}
    assert left == {"'tags'", "'extra'", "'vague'", "'__deleted'"}
    assert compile_network(done).topology.arcs["s"].identity == ("key",)


def test_the_identity_is_never_null_and_may_be_in_the_key_alone():
    value = record({"at": AT, "key": ["null", "string"], "n": "long"})
    key = record({"shard": "int", "key": "string"}, "Key")
    source = resolve(network(), registry(shop_value=value, shop_key=key)).declarations["s"]
    assert source.identity == ("shard", "key")
    assert texts(source.fields) == {
        "shard": "int",
        "at": "timestamp-millis",
        "key": "string",
        "n": "long",
    }


def test_what_is_declared_is_taken_as_it_is_and_nothing_else_is_asked_for():
    class Silent(Registry):
        def latest(self, subject):
            raise AssertionError(subject)

    fields = {"key": "string", "at": "timestamp-millis"}
    net = network(fields=fields, identity=["key"])
    assert resolve(net, Silent()).declarations == net.declarations
    asked = network(fields=fields)
    source = resolve(asked, registry(shop_key=KEY)).declarations["s"]
    assert (source.fields, source.identity) == (fields, ("key",))


FAULTS = {
    "no value subject": (
        registry(shop_key=KEY),
        {},
        "subject 'shop-value'; found no such subject",
        'declare fields={"...": "..."}',
    ),
    "no key subject": (
        registry(shop_value=ROW),
        {},
        "subject 'shop-key'; found no such subject",
        'declare identity=["..."]',
    ),
    "a key that is no record": (
        registry(shop_value=ROW, shop_key={"type": "string"}),
        {},
        "needs a record, found 'string'",
        'declare identity=["..."]',
    ),
    "a value without sides": (
        registry(shop_value=ROW, shop_key=KEY),
        {"envelope": "debezium"},
        "found a schema without such fields",
        "declare fields=",
    ),
    "csv": (registry(shop_key=KEY), {"format": "csv"}, "format csv has no schema", "declare"),
    "json with a schema of Avro": (
        registry(shop_value=ROW, shop_key=KEY),
        {"format": "json"},
        "found a schema of Avro, but format json",
        "declare fields=",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_registry_lacks_is_a_fault_of_the_source_with_a_remedy(name):
    schemas, options, found, remedy = FAULTS[name]
    with pytest.raises(NetworkError) as caught:
        resolve(network(**options), schemas)
    ((fault,), text) = caught.value.faults, str(caught.value)
    assert (fault.box, fault.place.file) == ("s", "test_registry_fields.py")
    assert found in text
    assert remedy in text


def test_all_sources_at_fault_are_told_at_once():
    net = network()
    net.source("other", event_time="at")
    with pytest.raises(NetworkError, match="2 faults"):
        resolve(net, Registry())
