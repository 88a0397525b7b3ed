"""Sources in Protobuf over a real registry, from a producer that shares no code with Errata."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from errata.processors.envelopes.protobuf_schema import compiled, messages
from errata.topics.admin import create_topics
from errata.topics.memory import MemoryCluster
from errata.topics.registry import NotAvroError
from errata.topics.registry_server import registry
from errata.topics.settings import TopicSpec
from tests.processors.envelopes.protobuf import classes

pytestmark = [pytest.mark.kafka, pytest.mark.registry]

TRADE = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Trade {
  string id = 1; google.protobuf.Timestamp at = 2; string desk = 3; int64 cents = 4; bytes note = 5;
}"""
KEY = 'syntax = "proto3"; package shop; message TradeKey { string id = 1; }'
NETWORK = """
from errata import Network, tumbling

net = Network("shops")
trades = net.source(
    "trades", topic="shops.in", envelope="upsert", format="protobuf", event_time="at",
    partition_by=["desk"], keep="1d",
)
trades.aggregate(
    "sums", by=["desk"], window=tumbling("1m"), total="sum(cents)", keep="1d", emit="on_update"
)
"""


class Trades:
    """Sends trades by Confluent's own serializers, which register their schemas."""

    def __init__(self, settings: dict[str, Any], url: str) -> None:
        # without a limit a lost answer hangs
        self.client = client = SchemaRegistryClient({"url": url, "timeout": 30})
        self.trade, self.key = classes(TRADE)["Trade"], classes(KEY)["TradeKey"]
        conf = {"use.deprecated.format": False}
        self.write = ProtobufSerializer(self.trade, client, conf)
        self.write_key = ProtobufSerializer(self.key, client, conf)
        self.producer = Producer(settings)

    def send(self, name: str, **fields: Any) -> None:
        """Send a trade; without fields its deletion."""
        value = None
        if fields:
            trade = self.trade(id=name, desk=fields["desk"], cents=fields["cents"])
            trade.at.seconds = fields["at"]
            value = self.write(trade, SerializationContext("shops.in", MessageField.VALUE))
        key = self.write_key(self.key(id=name), SerializationContext("shops.in", MessageField.KEY))
        self.producer.produce("shops.in", key=key, value=value)
        self.producer.flush()

    def close(self) -> None:
        """Close the connections to the registry."""
        self.client.__exit__()


def test_a_network_is_fed_corrected_and_revised_in_protobuf(on, apicurio, broker):
    running = on(apicurio.url)
    running.declare(NETWORK)
    create_topics(broker.settings, [TopicSpec("shops.in", 1)])
    trades = Trades({"bootstrap.servers": broker.bootstrap_servers}, apicurio.url)
    for number in range(20):
        trades.send(f"t{number}", at=number, desk="ab"[number % 2], cents=100 + number)
    running.start("up", "net.py")

    def totals() -> dict[str, int]:
        return {row["desk"]: row["total"] for row in running.table("sums")}

    first = {
        desk: sum(100 + n for n in range(start, 20, 2)) for desk, start in (("a", 0), ("b", 1))
    }
    running.wait_for(lambda: totals() == first, "the sums of all trades")
    trades.send("t0", at=0, desk="a", cents=1)
    trades.send("t1")
    second = {"a": first["a"] - 99, "b": first["b"] - 101}
    running.wait_for(lambda: totals() == second, "the sums of corrected trades")

    trades.close()
    found = running.errata(
        "revise", "net.py", "trades", "replace", "--key", "t3", "--set", "cents=0"
    )
    assert found.returncode == 0, found.stderr
    third = {"a": second["a"], "b": second["b"] - 103}
    running.wait_for(lambda: totals() == third, "the sum after a revision by hand")

    after = {"id": "t99", "at": "1970-01-01T00:00:03Z", "desk": "b", "cents": 7, "note": "aGk="}
    line = json.dumps({"op": "insert", "after": after})
    (running.folder / "more.jsonl").write_text(line + "\n")
    fed = running.errata("feed", "net.py", "trades", "more.jsonl")
    assert fed.returncode == 0, fed.stderr
    fourth = {"a": third["a"], "b": third["b"] + 7}
    running.wait_for(lambda: totals() == fourth, "the sum after a file")


def test_imports_are_those_of_the_registry(apicurio):
    side = 'syntax = "proto3"; package c; enum Side { BUY = 0; }'
    inner = 'syntax = "proto3"; package c; import "c/side.proto"; message In { Side side = 1; }'
    outer = 'syntax = "proto3"; import "c/in.proto"; message Out { c.In one = 1; }'
    with SchemaRegistryClient({"url": apicurio.url, "timeout": 30}) as client:
        client.register_schema("c.side", Schema(side, "PROTOBUF"))
        of_side = [SchemaReference("c/side.proto", "c.side", 1)]
        client.register_schema("c.in", Schema(inner, "PROTOBUF", of_side))
        of_inner = [SchemaReference("c/in.proto", "c.in", 1)]
        schema_id = client.register_schema("out-value", Schema(outer, "PROTOBUF", of_inner))
    server = registry(MemoryCluster(), {"url": apicurio.url})
    for ask in (lambda: server.schema(schema_id), lambda: server.latest("out-value")):
        with pytest.raises(NotAvroError) as found:
            ask()
        assert found.value.schema_id == schema_id
        assert set(found.value.imports) == {"c/side.proto", "c/in.proto"}
        file = compiled(found.value.text, found.value.imports)
        assert [message.full_name for _, message in messages(file)] == ["Out"]
